package train

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/reward"
)

// talkingSpec is a run whose answers go on after a program's messages: up to three turns of four tokens. The program
// ends a conversation at the second turn where the model wrote an a.
func talkingSpec(t *testing.T, steps int) Spec {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	s := samplingSpec(t, steps)
	program := filepath.Join(t.TempDir(), "environment.sh")
	put(t, program, `while read -r line; do
tail=${line##*'"completion":"'}
case "$line" in
*'"last":true'*) echo '{"reward": -1}';;
*'"turn":1,'*) echo '{"messages": [{"role": "tool", "content": " and then"}]}';;
*) case "${tail%%'"columns"'*}" in
  *a*) echo '{"done": true, "reward": 2}';;
  *) echo '{"messages": [{"role": "tool", "content": " Tom"}, {"role": "user", "content": "!"}]}';; esac;; esac; done`)
	g := s.Objectives.GRPO
	g.NumIterations, g.RecordRollouts, g.MaxCompletionLength, s.Training.LoggingSteps = 2, true, 20, 1
	g.Environment = reward.EnvironmentConfig{Command: []string{"sh", program}, MaxTurns: 3, MaxTurnLength: 4,
		Workers: 2, Timeout: 20, OnError: "error"}
	g.Rewards = append(g.Rewards, reward.Config{Name: "talk", Type: "environment"})
	return s
}

// TestConversations checks a run with an environment: its tokens are in the answers and not in the loss, the trainer's
// log-probabilities of the model's tokens are the sampler's, and ranks and an interrupt between two steps on the same
// conversations change no bit.
func TestConversations(t *testing.T) {
	t.Parallel()
	whole := talkingSpec(t, 4)
	mustStart(t, whole, oneWorker)
	names := []string{"loss", "sampling/sampling_logp_difference/mean", "completions/max_length", "rewards/talk/mean"}
	for i, line := range linesWith(t, whole.OutputDir, "loss", names...) {
		if i%2 == 0 && !(line[1] < 1e-4) || line[2] > 12 || line[3] < -1 || line[3] > 2 { // the first of two steps
			t.Errorf("line %d: %v", i+1, line)
		}
	}
	turns, rewards := map[int]bool{}, map[float64]bool{}
	for _, text := range fileLines(t, filepath.Join(whole.OutputDir, RolloutsFile)) {
		var line recordedRollout
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		n := 0
		for i, m := range line.Mask {
			if m == 1 && (i == 0 || line.Mask[i-1] == 0) {
				n++
			}
			if (line.Old[i] == nil) != (m == 0) {
				t.Errorf("token %d of mask %d has the log-probability %v", i, m, line.Old[i])
			}
		}
		turns[n], rewards[*line.Rewards["talk"]] = true, true
	}
	if !turns[2] || !turns[3] || !rewards[2] || !rewards[-1] {
		t.Errorf("turns %v, rewards %v", turns, rewards)
	}

	ranks := over(t, whole, 2)
	mustStart(t, ranks, oneWorker)
	sameRun(t, "2 ranks", whole.OutputDir, ranks.OutputDir)
	parts := whole
	parts.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := stopping(3)
	mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
	parts.Training.Resume = "auto"
	mustStart(t, parts, oneWorker)
	sameRun(t, "resumed", whole.OutputDir, parts.OutputDir)

	file := whole
	own := *whole.Objectives.GRPO
	own.Rewards, own.Environment.Command = nil, nil
	file.Objectives.GRPO, file.OutputDir = &own, filepath.Join(t.TempDir(), "file")
	file.Dataset.Path, file.Dataset.Format = filepath.Join(whole.OutputDir, RolloutsFile), dataset.FormatRollouts
	mustStart(t, file, oneWorker)
	if line := linesWith(t, file.OutputDir, "loss", "completions/max_length")[0]; line[0] > 12 {
		t.Errorf("recorded answers have %v trained tokens", line[0])
	}
}

// TestConversationsRefuse checks the messages about environments that don't go with the rest.
func TestConversationsRefuse(t *testing.T) {
	s := talkingSpec(t, 2)
	s.Objectives.GRPO.Environment.MaxTurnLength = 21
	problems := objective.Check("grpo", s.Objectives)
	s.Objectives.GRPO.Environment.Command = nil
	problems = append(problems, objective.Check("grpo", s.Objectives)...)
	for _, want := range []string{
		"grpo.environment.max_turn_length: is 21, and a whole conversation has at most max_completion_length 20 " +
			"tokens: lower it, or write 0",
		"grpo.rewards[1].type: environment is the reward of the program grpo.environment.command, which is missing: " +
			"name it, such as [python3, environment.py]",
	} {
		if !slices.ContainsFunc(problems, func(err error) bool { return err.Error() == want }) {
			t.Errorf("problems %v, want %s", problems, want)
		}
	}
	s = talkingSpec(t, 2)
	s.Objectives.GRPO.Environment.Command = []string{"sh", "-c", "while read -r line; do echo 7; done"}
	_, err := Start(t.Context(), s, oneWorker)
	if want := `environment: sh on turn 1, the answer `; err == nil || !strings.HasPrefix(err.Error(), want) ||
		!strings.Contains(err.Error(), `: it wrote "7", want {"messages": [...]} or {"done": true, "reward": `) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(s.OutputDir, RolloutsFile)); err == nil {
		t.Error("answers without rewards were recorded")
	}
}
