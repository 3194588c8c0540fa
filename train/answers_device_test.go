//go:build gpu

package train

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/train/objective"
)

// TestGPUNumbersOfAnswers checks what objectives over chosen and rejected answers report of tokens: entropies, mean
// logits, accuracies and odds, in steps and evaluations, on a GPU in float32 beside the CPU.
func TestGPUNumbersOfAnswers(t *testing.T) {
	gputest.Need(t)
	both := []string{"logits/chosen", "logits/rejected"}
	for name, names := range map[string][]string{
		"dpo":  append([]string{"entropy", "mean_token_accuracy"}, both...),
		"kto":  append([]string{"entropy"}, both...),
		"orpo": append([]string{"log_odds_chosen", "log_odds_ratio", "nll_loss"}, both...),
		"cpo":  both,
	} {
		t.Run(name, func(t *testing.T) {
			values := func(device string) (all []float64) {
				s := dpoSpec(t, 6)
				if name == "kto" {
					s = ktoSpec(t, 6)
				}
				if s.Training.Objective = name; name != "dpo" && name != "kto" {
					s.Objectives = objective.Config{}
				}
				s.Device, s.Training.Precision, s.Training.LoggingSteps = device, "fp32", 2
				s.OutputDir = filepath.Join(t.TempDir(), "run")
				mustStart(t, s, oneWorker)
				for _, prefix := range []string{"", "eval_"} {
					keys := strings.Split(prefix+strings.Join(names, " "+prefix), " ")
					for _, row := range linesWith(t, s.OutputDir, prefix+"loss", keys...) {
						all = append(all, row...)
					}
				}
				return all
			}
			want, got, worst := values("cpu"), values("cuda"), 0.
			if len(got) != len(want) || len(want) < 5*len(names) {
				t.Fatalf("%d numbers on the GPU, %d on the CPU", len(got), len(want))
			}
			for i := range want {
				worst = math.Max(worst, math.Abs(got[i]-want[i])/math.Max(math.Abs(want[i]), 1))
			}
			t.Logf("numbers at most %.2g from the CPU's, relatively above 1", worst)
			if !(worst <= 1e-3) {
				t.Errorf("on the GPU %v, on the CPU %v", got, want)
			}
		})
	}
}
