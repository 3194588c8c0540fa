//go:build gpu

package train

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/train/objective"
)

// TestGPURolloutsFollowCPU trains on recorded answers in fp32 on both devices: losses, entropies and numbers of the
// rewards agree, whatever terms the loss has.
func TestGPURolloutsFollowCPU(t *testing.T) {
	gputest.Need(t)
	for name, edit := range map[string]func(s *Spec){
		"dapo": func(*Spec) {},
		"divergence": func(s *Spec) {
			s.Objectives.GRPO.LossType, s.Objectives.GRPO.Beta = "grpo", 0.04
		},
		"sequence, entropies": func(s *Spec) {
			g := s.Objectives.GRPO
			g.LossType, g.ImportanceSamplingLevel, g.EntropyCoef, g.TopEntropyQuantile = "bnpo", "sequence", 0.01, 0.4
		},
		"cispo, temperature": func(s *Spec) {
			g := s.Objectives.GRPO
			g.LossType, g.EpsilonHigh, g.Temperature, g.ScaleRewards = "cispo", 5, 0.8, "batch"
		},
		"rloo": func(s *Spec) {
			s.Training.Objective, s.Objectives.GRPO = "rloo", nil
			s.Objectives.RLOO = objective.Defaults().RLOO
		},
	} {
		t.Run(name, func(t *testing.T) {
			cpu := rolloutSpec(t, 12)
			cpu.Device, cpu.Training.Precision = "cpu", "fp32"
			edit(&cpu)
			on := cpu
			on.Device, on.OutputDir = "cuda", filepath.Join(t.TempDir(), "gpu")
			mustStart(t, cpu, Env{})
			mustStart(t, on, Env{})
			names := []string{"loss", "entropy", "grad_norm", "reward", "completions/mean_length"}
			want, got := linesWith(t, cpu.OutputDir, "loss", names...), linesWith(t, on.OutputDir, "loss", names...)
			if len(got) != len(want) || len(got) == 0 {
				t.Fatalf("%d lines, want %d", len(got), len(want))
			}
			for i := range want {
				for j, w := range want[i] {
					if d := math.Abs(got[i][j] - w); !(d <= 2e-3*max(1, math.Abs(w))) {
						t.Errorf("line %d: %s is %v, on the CPU %v", i+1, names[j], got[i][j], w)
					}
				}
			}
			t.Logf("last line %v, on the CPU %v", got[len(got)-1], want[len(want)-1])
		})
	}
}

// TestGPUSamplingLearns samples answers on a device while it trains: the reward rises, sampler and trainer agree, and
// the run repeats to the last byte, also after an interrupt between two steps on the same answers.
func TestGPUSamplingLearns(t *testing.T) {
	gputest.Need(t)
	for _, precision := range []string{"fp32", "bf16"} {
		t.Run(precision, func(t *testing.T) {
			s := samplingSpec(t, 60)
			s.Device, s.Training.Precision, s.Training.LoggingSteps = "cuda", precision, 10
			mustStart(t, s, Env{})
			limit := map[string]float64{"fp32": 1e-4, "bf16": 0.05}[precision]
			lines := linesWith(t, s.OutputDir, "loss", "reward", "sampling/sampling_logp_difference/mean")
			if first, last := lines[0][0], lines[len(lines)-1][0]; !(last > 1.5*first) {
				t.Errorf("the reward went from %v to %v", first, last)
			}
			for _, line := range lines {
				if !(line[1] < limit) {
					t.Errorf("the sampler's log-probabilities differ from the trainer's by %v", line[1])
				}
			}
			t.Log(lines)
			whole := samplingSpec(t, 6)
			whole.Device, whole.Training.Precision = "cuda", precision
			whole.Objectives.GRPO.NumIterations, whole.Objectives.GRPO.Beta = 2, 0.02
			mustStart(t, whole, Env{})
			again, parts := whole, whole
			again.OutputDir = filepath.Join(t.TempDir(), "again")
			mustStart(t, again, Env{})
			sameRun(t, "again", whole.OutputDir, again.OutputDir)
			parts.OutputDir = filepath.Join(t.TempDir(), "parts")
			stop := stopping(3)
			mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
			parts.Training.Resume = "auto"
			mustStart(t, parts, Env{})
			sameRun(t, "resumed", whole.OutputDir, parts.OutputDir)
		})
	}
}

// TestGPUGroupsContinueOnePrompt trains on sampled answers whose prompt is computed once and with each answer: the
// numbers of the first step agree, and the run repeats to the last byte.
func TestGPUGroupsContinueOnePrompt(t *testing.T) {
	gputest.Need(t)
	for precision, bound := range map[string]float64{"fp32": 1e-4, "bf16": 0.05} {
		s := samplingSpec(t, 4)
		longerPrompts(t, s)
		s.Device, s.Training.Precision, s.Objectives.GRPO.Beta = "cuda", precision, 0.02
		s.Training.LoggingSteps, s.Training.SharePrompts = 1, "yes"
		mustStart(t, s, Env{})
		again, apart := s, s
		again.OutputDir, apart.OutputDir = filepath.Join(t.TempDir(), "again"), filepath.Join(t.TempDir(), "apart")
		apart.Training.SharePrompts = "no"
		mustStart(t, again, Env{})
		sameRun(t, precision+" again", s.OutputDir, again.OutputDir)
		mustStart(t, apart, Env{})
		names := []string{"loss", "reward", "entropy", "grad_norm"}
		got, want := linesWith(t, s.OutputDir, "loss", names...), linesWith(t, apart.OutputDir, "loss", names...)
		for i, w := range want[0] {
			if d := math.Abs(got[0][i] - w); !(d <= bound*max(1, math.Abs(w))) {
				t.Errorf("%s: %s is %v, with repeated prompts %v", precision, names[i], got[0][i], w)
			}
		}
		t.Log(precision, got[0], want[0])
	}
}

// TestGPUConversations samples conversations with an environment on a device: sampler and trainer agree on the model's
// tokens, and the run repeats to the last byte.
func TestGPUConversations(t *testing.T) {
	gputest.Need(t)
	for precision, bound := range map[string]float64{"fp32": 1e-4, "bf16": 0.05} {
		s := talkingSpec(t, 4)
		s.Device, s.Training.Precision = "cuda", precision
		mustStart(t, s, Env{})
		again := s
		again.OutputDir = filepath.Join(t.TempDir(), "again")
		mustStart(t, again, Env{})
		sameRun(t, precision+" again", s.OutputDir, again.OutputDir)
		for i, line := range linesWith(t, s.OutputDir, "loss", "sampling/sampling_logp_difference/mean") {
			if i%2 == 0 && !(line[0] < bound) { // the first of two steps on the same answers
				t.Errorf("%s: the sampler's log-probabilities differ from the trainer's by %v", precision, line[0])
			}
			t.Log(precision, line)
		}
	}
}
