package train

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train/objective"
)

// rolloutFile writes groups of four answers of different lengths; even ids are rewarded.
func rolloutFile(t testing.TB, groups int) string {
	t.Helper()
	var text strings.Builder
	for g := range groups {
		for i := range 4 {
			ids, old := []string{}, []string{}
			for k := range 2 + (g+3*i)%5 {
				ids = append(ids, fmt.Sprint(300+(7*g+5*i+3*k)%100))
				old = append(old, fmt.Sprint(-5-0.1*float64(k)))
			}
			if i%2 == 0 {
				ids, old = append(ids, "2"), append(old, "-4")
			}
			const line = `{"prompt_ids": [1, %d, 261], "completion_ids": [%s], "old_logprobs": [%s], ` +
				`"rewards": {"even": %d, "short": null}, "group": %d}` + "\n"
			fmt.Fprintf(&text, line, 400+g, strings.Join(ids, ", "), strings.Join(old, ", "), (g+i)%2, g)
		}
	}
	path := filepath.Join(t.TempDir(), "rollouts.jsonl")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// rolloutSpec is a run of steps on rollouts, accumulated.
func rolloutSpec(t testing.TB, steps int) Spec {
	t.Helper()
	s := testSpec(t, steps)
	s.Dataset.Path, s.Dataset.Format, s.Dataset.Fields = rolloutFile(t, 12), "rollouts", nil
	c := &s.Training
	c.BatchSize, c.GradientAccumulationSteps, c.LoggingSteps, c.EvalSteps = 1, 4, 2, 0
	c.Objective, c.LearningRate = "grpo", 5e-3
	s.Objectives.GRPO = objective.Defaults().GRPO
	return s
}

// TestRolloutsRun checks a run on recorded answers: named numbers in metrics.jsonl, and the same numbers to the last
// bit over ranks and after an interrupt between two lines. The deviation over the whole step depends on all ranks.
func TestRolloutsRun(t *testing.T) {
	t.Parallel()
	names := []string{"loss", "entropy", "clip_ratio/low_mean", "reward", "reward_std", "rewards/even/mean",
		"completions/mean_length", "frac_reward_zero_std"}
	for _, scale := range []string{"group", "batch"} {
		whole := rolloutSpec(t, 6)
		whole.Objectives.GRPO.ScaleRewards = scale
		mustStart(t, whole, oneWorker)
		steps := linesWith(t, whole.OutputDir, "loss", names...)
		if len(steps) != 3 {
			t.Fatalf("%d lines of steps, want 3", len(steps))
		}
		for _, line := range steps {
			if line[3] != 0.5 || math.Abs(line[5]-0.5) > 0 || line[1] <= 0 {
				t.Errorf("the reward is %v, of even %v, the entropy %v", line[3], line[5], line[1])
			}
		}
		sameOverRanksAndResume(t, whole, 3)
	}
}

// TestRolloutsRefuse checks the messages about data and settings that don't go with sampled answers.
func TestRolloutsRefuse(t *testing.T) {
	s := rolloutSpec(t, 2)
	s.Dataset.Path, s.Dataset.Format = pairFile(t, 4), "preference"
	_, err := Start(t.Context(), s, oneWorker)
	if err == nil || !strings.Contains(err.Error(),
		"pairs.jsonl:1: the prompt has 13 tokens, and with an answer of up "+
			"to 256 they are more than dataset.max_length 128: raise it, or lower max_completion_length") {
		t.Errorf("pairs: %v", err)
	}
	s = rolloutSpec(t, 2)
	s.Training.Objective, s.Objectives.GRPO = "cross_entropy", nil
	_, err = Start(t.Context(), s, oneWorker)
	if err == nil || !strings.Contains(err.Error(), "set training.objective: grpo or rloo") {
		t.Errorf("cross-entropy: %v", err)
	}
	s = rolloutSpec(t, 2)
	s.Dataset.ValSplit, s.Training.RecordWindows, s.Training.ContextParallelSize = 0.1, true, 2
	var texts []string
	for _, err := range CheckRollouts(s) {
		texts = append(texts, err.Error())
	}
	want := []string{
		"dataset.val_split, val_path, val_sources: training.objective: grpo has no loss of validation rows: " +
			"remove them",
		"training.record_windows: windows of training.objective: grpo have rewards, which windows.jsonl has no " +
			"place for: remove it",
		"training.context_parallel_size: must be 1 with training.objective: grpo, whose loss needs all tokens of " +
			"an answer",
	}
	if !slices.Equal(texts, want) {
		t.Errorf("problems %q", texts)
	}
}
