package train

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/reward"
)

// judgedBy is a run whose reward is the reward model in a folder.
func judgedBy(t *testing.T, dir string, steps int) Spec {
	t.Helper()
	s := samplingSpec(t, steps)
	g := *s.Objectives.GRPO
	g.RecordRollouts = true
	g.Rewards = []reward.Config{{Name: "judge", Type: "model", Model: dir, Workers: 1, Timeout: 1, OnError: "error"}}
	s.Objectives.GRPO = &g
	return s
}

// TestRewardModelJudges checks that the rewards of a run are the scores that the reward model gives the sampled tokens,
// for an adapter and for its merged folder, over ranks too, and that the plan says what the model takes.
func TestRewardModelJudges(t *testing.T) {
	runs := headRuns(t)
	merged := mergedHeads(t, map[string]Spec{"reward": runs["reward"]})["reward"]
	var first []float64
	for _, dir := range []string{runs["reward"].OutputDir, merged} {
		s := judgedBy(t, dir, 2)
		mustStart(t, s, oneWorker)
		judge, err := infer.OpenRewardModel(t.Context(), dir, 64, session.Options{Device: "cpu"}, oneWorker.Env)
		if err != nil {
			t.Fatal(err)
		}
		defer judge.Close()
		var own []float64
		for _, text := range fileLines(t, filepath.Join(s.OutputDir, RolloutsFile)) {
			var line recordedRollout
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatal(err)
			}
			want, err := judge.Scores(t.Context(), []infer.Exchange{{Prompt: line.Prompt, Answer: line.Answer}})
			if err != nil {
				t.Fatal(err)
			}
			if got := line.Rewards["judge"]; got == nil || *got != want[0] {
				t.Fatalf("%s: a reward is %v, the model's score %v", dir, got, want[0])
			}
			own = append(own, want[0])
		}
		if len(own) != 24 || own[0] == own[1] {
			t.Fatalf("%s: the scores are %v", dir, own)
		}
		if first == nil {
			first = own
		}
		if math.Abs(first[0]-own[0]) > 1e-4 {
			t.Errorf("the first score is %v by the adapter and %v by the merged folder", first[0], own[0])
		}
		if dir == merged {
			ranks := over(t, s, 2)
			mustStart(t, ranks, oneWorker)
			sameRun(t, "2 ranks", s.OutputDir, ranks.OutputDir)
		}
	}
}

// TestRewardModelIsPlanned checks the plan's note, that the memory limit leaves the model's bytes free, and messages.
func TestRewardModelIsPlanned(t *testing.T) {
	runs := headRuns(t)
	s := judgedBy(t, runs["reward"].OutputDir, 1)
	r, err := PlanRun(t.Context(), s, oneWorker)
	if err != nil {
		t.Fatal(err)
	}
	note := "the reward model " + runs["reward"].OutputDir + " (reward judge) lies beside the run, in "
	if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.HasPrefix(n, note) }) {
		t.Errorf("notes %q", r.Notes)
	}
	s.VRAM = fmt.Sprint(r.TotalBytes + 1<<24)
	limited, err := PlanRun(t.Context(), s, oneWorker)
	if err != nil || limited.Limit >= r.TotalBytes+1<<24 || limited.Limit < r.TotalBytes {
		t.Errorf("a limit of %d leaves %d, error %v", r.TotalBytes+1<<24, limited.Limit, err)
	}
	for dir, want := range map[string]string{
		runs["class"].OutputDir: "grpo.rewards[0].model: open reward model " + runs["class"].OutputDir +
			": it has task_type SEQ_CLS and 3 labels, want SEQ_CLS and 1",
		s.OutputDir + "/none": "grpo.rewards[0].model: open reward model " + s.OutputDir + "/none: ",
	} {
		_, err := PlanRun(t.Context(), judgedBy(t, dir, 1), oneWorker)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	short := judgedBy(t, runs["reward"].OutputDir, 1)
	short.Objectives.GRPO.Rewards[0].MaxLength = 16
	_, err = Start(t.Context(), short, oneWorker)
	if want := "tokens of the reward model, which reads 16: raise max_length of the reward"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestRewardModelReadsText checks what a reward model with other tokens reads: the text, or the conversation.
func TestRewardModelReadsText(t *testing.T) {
	dir := headRuns(t)["reward"].OutputDir
	judge, err := infer.OpenRewardModel(t.Context(), dir, 64, session.Options{Device: "cpu"}, oneWorker.Env)
	if err != nil {
		t.Fatal(err)
	}
	defer judge.Close()
	m := &rewardModel{RewardModel: judge}
	a := reward.Answer{Prompt: "Once upon a time, Tom", Completion: " had a dog.", Columns: []byte(`{"prompt": "x"}`)}
	got, err := m.Score(t.Context(), []reward.Answer{a})
	if err != nil {
		t.Fatal(err)
	}
	want, err := judge.Scores(t.Context(), []infer.Exchange{{Prompt: judge.Encode(a.Prompt),
		Answer: judge.Encode(a.Completion)}})
	if err != nil || got[0] != want[0] {
		t.Errorf("the text has the score %v, want %v (%v)", got, want, err)
	}
	conv, err := conversationIn([]byte(`{"messages": [{"role": "user", "content": "hi"},
		{"role": "assistant", "content": "you"}]}`))
	if err != nil || conv == nil || len(conv.Messages) != 1 || conv.Messages[0].Role != "user" {
		t.Errorf("a conversation before its answer is %+v (%v)", conv, err)
	}
	if conv, err = conversationIn([]byte(`{"prompt": "hi"}`)); conv != nil || err != nil {
		t.Errorf("a text is %+v (%v)", conv, err)
	}
}
