package train

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/reward"
)

// samplingSpec is a run of steps on answers that it samples itself. The reward is how often the letter e is in them.
func samplingSpec(t testing.TB, steps int) Spec {
	t.Helper()
	s := testSpec(t, steps)
	var text strings.Builder
	for _, name := range []string{"Tom", "Lily", "Ben", "Mia", "Sam", "Anna", "Tim", "Sue"} {
		fmt.Fprintf(&text, `{"prompt": "Once upon a time, %s", "name": %q}`+"\n", name, name)
	}
	s.Dataset.Path, s.Dataset.Format, s.Dataset.Fields = filepath.Join(t.TempDir(), "prompts.jsonl"), "", nil
	if err := os.WriteFile(s.Dataset.Path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	c := &s.Training
	c.BatchSize, c.GradientAccumulationSteps, c.LoggingSteps, c.EvalSteps, c.SaveSteps = 1, 2, 2, 0, 0
	c.Objective, c.LearningRate = "grpo", 5e-3
	s.Objectives.GRPO = objective.Defaults().GRPO
	g := s.Objectives.GRPO
	g.NumGenerations, g.MaxCompletionLength = 6, 16
	g.Rewards = []reward.Config{{Name: "letter", Type: "count", Pattern: "e", Workers: 1, Timeout: 1, OnError: "error"}}
	return s
}

// TestSamplingLearns checks that the reward of sampled answers rises in 60 steps.
func TestSamplingLearns(t *testing.T) {
	t.Parallel()
	s := samplingSpec(t, 60)
	s.Training.LoggingSteps = 10
	mustStart(t, s, oneWorker)
	lines := linesWith(t, s.OutputDir, "loss", "reward", "sampling/sampling_logp_difference/mean")
	if len(lines) != 6 {
		t.Fatalf("%d lines", len(lines))
	}
	if first, last := lines[0][0], lines[len(lines)-1][0]; !(last > 1.5*first) {
		t.Errorf("the reward went from %v to %v", first, last)
	}
	for _, line := range lines {
		if !(line[1] < 1e-4) {
			t.Errorf("the sampler's log-probabilities differ from the trainer's by %v", line[1])
		}
	}
}

// TestSamplingFitsMemory checks that a plan samples fewer answers at a time where memory allows no more, and says so.
func TestSamplingFitsMemory(t *testing.T) {
	s := samplingSpec(t, 1) // of a shape whose cache takes more than the activations of a step
	s.Dataset.MaxLength, s.Training.GradientCheckpointing, s.Training.GradientAccumulationSteps = 300, "full", 6
	s.Objectives.GRPO.NumGenerations, s.Objectives.GRPO.MaxCompletionLength = 2, 256
	planned := func() (PlanReport, string) {
		r, err := PlanRun(t.Context(), s, Env{})
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(r.Notes, func(n string) bool { return strings.Contains(n, "are sampled at a time") })
		if at < 0 {
			t.Fatalf("no note about sampling: %q", r.Notes)
		}
		return r, r.Notes[at]
	}
	whole, note := planned()
	if !strings.HasPrefix(note, "8 of a step's 12 answers are sampled at a time") {
		t.Errorf("the plan says %s", note)
	}
	for _, c := range whole.Categories {
		if strings.HasSuffix(c.Name, nn.CacheGroup) {
			t.Errorf("the cache is held apart from the activations: %v", c)
		}
	}
	s.VRAM = fmt.Sprint(whole.TotalBytes - 1)
	less, note := planned()
	if less.TotalBytes >= whole.TotalBytes || less.Checkpointing != whole.Checkpointing {
		t.Errorf("%d bytes with %s, %d without a limit", less.TotalBytes, less.Checkpointing, whole.TotalBytes)
	}
	if !strings.HasPrefix(note, "4 of a") || !strings.HasSuffix(note, "; 8 at a time would be faster and do not fit") {
		t.Errorf("the plan says %s", note)
	}
	few := s
	few.OutputDir = filepath.Join(t.TempDir(), "few")
	s.VRAM = ""
	mustStart(t, s, oneWorker)
	mustStart(t, few, oneWorker)
	sameRun(t, "4 answers at a time", s.OutputDir, few.OutputDir)
	s.OutputDir, s.Training.SamplePrompts = filepath.Join(t.TempDir(), "beside"), []string{"Once"}
	s.Training.SampleMaxTokens = 4
	mustStart(t, s, oneWorker)
	sameRun(t, "samples of the run beside it", few.OutputDir, s.OutputDir)
}

// TestSamplingResumes checks that a run of sampled answers repeats to the last bit, over ranks, and after an interrupt
// between two steps on the same answers.
func TestSamplingResumes(t *testing.T) {
	t.Parallel()
	names := []string{"loss", "reward", "clip_ratio/high_mean", "completions/mean_length"}
	whole := samplingSpec(t, 6)
	whole.Objectives.GRPO.NumIterations, whole.Objectives.GRPO.RecordRollouts = 2, true
	mustStart(t, whole, oneWorker)
	steps := linesWith(t, whole.OutputDir, "loss", names...)
	if n := len(fileLines(t, filepath.Join(whole.OutputDir, RolloutsFile))); n != 3*2*6 {
		t.Errorf("%d answers were recorded, want %d", n, 3*2*6)
	}
	again := whole
	again.OutputDir = filepath.Join(t.TempDir(), "again")
	mustStart(t, again, oneWorker)
	sameRun(t, "again", whole.OutputDir, again.OutputDir)
	ranks := over(t, whole, 2)
	mustStart(t, ranks, oneWorker)
	sameRun(t, "2 ranks", whole.OutputDir, ranks.OutputDir)
	parts := whole
	parts.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := stopping(3) // the second step on the second answers follows
	mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
	parts.Training.Resume = "auto"
	mustStart(t, parts, oneWorker)
	sameRun(t, "resumed", whole.OutputDir, parts.OutputDir)
	if got := linesWith(t, parts.OutputDir, "loss", names...); fmt.Sprint(got) != fmt.Sprint(steps) {
		t.Errorf("resumed: %v, want %v", got, steps)
	}
	file := whole
	file.OutputDir = filepath.Join(t.TempDir(), "file")
	file.Dataset.Path, file.Dataset.Format = filepath.Join(whole.OutputDir, RolloutsFile), "rollouts"
	file.Objectives.GRPO.Rewards = nil
	mustStart(t, file, oneWorker)
}

// TestSamplingEvaluates checks evaluations on held-out prompts, greedy and sampled: their numbers rise, choose the best
// checkpoint, are judged by expect, and are the same over ranks and after an interrupt.
func TestSamplingEvaluates(t *testing.T) {
	s := samplingSpec(t, 20)
	s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.EvalOnStart = 0.25, 5, true
	s.Training.MetricForBestModel = "eval_reward"
	s.Expect.AtLeast = map[string]float64{"eval_pass@1": 0.5, "eval_rewards/letter/mean": 1}
	g := s.Objectives.GRPO
	g.PassThreshold = 2
	names := []string{"eval_reward", "eval_rewards/letter/mean", "eval_pass@1", "eval_loss",
		"eval_completions/mean_length"}
	for _, sampled := range []bool{false, true} {
		one := s
		own := *g
		one.Objectives.GRPO, one.OutputDir = &own, filepath.Join(t.TempDir(), fmt.Sprint(sampled))
		if sampled {
			own.NumGenerationsEval, own.EvalTemperature = 4, 1
			names = append(names, "eval_pass@2", "eval_pass@4")
		}
		result := mustStart(t, one, oneWorker)
		lines := linesWith(t, one.OutputDir, "eval_loss", names...)
		first, last := lines[0], lines[len(lines)-1]
		if len(lines) != 5 || !(last[0] > first[0]) || last[0] != last[1] || last[3] != -last[0] || last[4] > 16 {
			t.Errorf("%v: evaluations %v", sampled, lines)
		}
		if sampled && !(last[2] <= last[5] && last[5] <= last[6]) {
			t.Errorf("pass@1, 2, 4: %v, %v, %v", last[2], last[5], last[6])
		}
		if result.EvalLoss == nil || *result.EvalLoss != -last[0] {
			t.Errorf("the result has the evaluation %v", result.EvalLoss)
		}
		ranks := over(t, one, 2)
		mustStart(t, ranks, oneWorker)
		parts := one
		parts.OutputDir = filepath.Join(t.TempDir(), "parts")
		stop := stopping(7)
		mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
		parts.Training.Resume = "auto"
		mustStart(t, parts, oneWorker)
		for _, other := range []Spec{ranks, parts} {
			sameRun(t, other.OutputDir, one.OutputDir, other.OutputDir)
			if got := linesWith(t, other.OutputDir, "eval_loss", names...); fmt.Sprint(got) != fmt.Sprint(lines) {
				t.Errorf("%s: evaluations %v, want %v", other.OutputDir, got, lines)
			}
		}
	}
}

// TestTrainersLogprobs checks that sampling_logprobs: trainer has no gap and no ratio but 1, and trains nearly as the
// sampler's log-probabilities do in fp32.
func TestTrainersLogprobs(t *testing.T) {
	exact := samplingSpec(t, 4)
	mustStart(t, exact, oneWorker)
	trainer := exact
	own := *exact.Objectives.GRPO
	own.SamplingLogprobs = "trainer"
	trainer.Objectives.GRPO, trainer.OutputDir = &own, filepath.Join(t.TempDir(), "trainer")
	mustStart(t, trainer, oneWorker)
	names := []string{"loss", "reward", "sampling/sampling_logp_difference/mean", "clip_ratio/high_mean"}
	want, got := linesWith(t, exact.OutputDir, "loss", names...), linesWith(t, trainer.OutputDir, "loss", names...)
	for i := range want {
		if math.Abs(got[i][0]-want[i][0]) > 1e-4 || got[i][1] != want[i][1] || got[i][2] != 0 || got[i][3] != 0 {
			t.Errorf("line %d: %v, with the sampler's %v", i+1, got[i], want[i])
		}
		if want[i][2] == 0 {
			t.Errorf("line %d: the sampler's have no gap, so there is nothing to compare", i+1)
		}
	}
	own.NumIterations = 2
	all := objective.Check("grpo", trainer.Objectives)
	if len(all) == 0 || !strings.HasPrefix(all[len(all)-1].Error(), "grpo.sampling_logprobs: trainer takes the log-") {
		t.Errorf("problems %v", all)
	}
}

// TestStillRewards checks when a run says that rewards don't vary.
func TestStillRewards(t *testing.T) {
	var warnings []string
	s := stillRewards{say: func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }}
	still := []dataset.Value{{Name: "frac_reward_zero_std", Value: 1}}
	moved := []dataset.Value{{Name: "frac_reward_zero_std"}}
	for _, values := range [][]dataset.Value{still, moved, still, still, still} {
		s.add(32, values)
	}
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "warning: the answers of the last 64 prompts got one reward") {
		t.Errorf("warnings %q", warnings)
	}
}

// TestSamplingRefusesShardedBase checks the message of a run that would shard the base model and sample answers.
func TestSamplingRefusesShardedBase(t *testing.T) {
	s := over(t, samplingSpec(t, 2), 2)
	s.Training.BaseSharding = "always"
	_, err := Start(t.Context(), s, oneWorker)
	if err == nil || !strings.Contains(err.Error(), "training.base_sharding: training.objective: grpo samples answers "+
		"on one device, which needs the whole base model") {
		t.Errorf("error %v", err)
	}
}

// TestSamplingIsPlannedOverQuantisedWeights checks that a GPU's sampling and step see quantised weights in one form,
// with dequantised copies and without.
func TestSamplingIsPlannedOverQuantisedWeights(t *testing.T) {
	for _, kept := range []string{"auto", "never"} {
		s := samplingSpec(t, 1)
		s.Device, s.Training.DequantisedWeights = "cuda", kept
		if s.Quantization == nil {
			t.Fatal("the base model is not quantised")
		}
		if _, err := PlanFor(t.Context(), s, Env{}, chipOf(t, "h100")); err != nil {
			t.Errorf("dequantised_weights %s: %v", kept, err)
		}
	}
}

// TestCompletionsFile checks the record of the best and the worst answers: a line for each prompt of a step, rewards as
// they were given, the same over ranks, after an interrupt, and bounded.
func TestCompletionsFile(t *testing.T) {
	whole := samplingSpec(t, 4)
	var news []string
	env := oneWorker
	env.Log = func(line string) { news = append(news, line) }
	mustStart(t, whole, env)
	lines := fileLines(t, filepath.Join(whole.OutputDir, CompletionsFile))
	if len(lines) != 4*2 {
		t.Fatalf("%d lines of 4 steps with 2 prompts", len(lines))
	}
	for i, text := range lines {
		var l CompletionLine
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		best, worst := strings.Count(l.Best.Text, "e"), strings.Count(l.Worst.Text, "e")
		if l.Step != 1+i/2 || !strings.Contains(l.Prompt, "Once upon a time, ") || l.Best.Reward != float64(best) ||
			l.Worst.Reward != float64(worst) || *l.Best.Rewards["letter"] != float64(best) || l.Mean < l.Worst.Reward ||
			l.Mean > l.Best.Reward || l.Std > 0 != (l.Best.Reward > l.Worst.Reward) || l.Best.Tokens > 16 {
			t.Errorf("line %d: %s", i+1, text)
		}
	}
	shown := slices.ContainsFunc(news, func(n string) bool {
		return strings.HasPrefix(n, "step 2, best answer (reward ") && strings.Contains(n, `to "Once upon a time, `)
	})
	if !shown {
		t.Errorf("the terminal shows no best answer: %q", news)
	}
	ranks := over(t, whole, 2)
	mustStart(t, ranks, oneWorker)
	parts := whole
	parts.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := stopping(3)
	mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
	parts.Training.Resume = "auto"
	mustStart(t, parts, oneWorker)
	for _, other := range []Spec{ranks, parts} {
		if got := fileLines(t, filepath.Join(other.OutputDir, CompletionsFile)); !slices.Equal(got, lines) {
			t.Errorf("%s:\n%s\nwant\n%s", other.OutputDir, strings.Join(got, "\n"), strings.Join(lines, "\n"))
		}
	}
}
