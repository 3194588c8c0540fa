//go:build gpu

package train

import (
	"bytes"
	"math"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/gputest"
)

// TestGPUOptimizersFollowCPU: Lion, moments in 8 bits, and tensors that learn at rates of their own, in fp32 beside the
// CPU, twice, and stopped and resumed.
func TestGPUOptimizersFollowCPU(t *testing.T) {
	gputest.Need(t)
	for name, edit := range map[string]func(s *Spec){
		"lion":    func(s *Spec) { s.Training.Optimizer, s.Training.LearningRate = "lion", 2e-4 },
		"8 bits":  func(s *Spec) { s.Training.Optimizer, s.LoRA.R = "adamw_8bit", 64 },
		"8 bits+": func(s *Spec) { s.Training.Optimizer, s.LoRA.R, s.LoRA.LoRAPlusLRRatio = "adamw_8bit", 64, 4 },
		"8 bits bf16": func(s *Spec) {
			s.Training.Optimizer, s.LoRA.R, s.Training.Precision = "adamw_8bit", 64,
				"bf16"
		},
		"8 bits fp16": func(s *Spec) {
			s.Training.Optimizer, s.LoRA.R, s.Training.Precision = "adamw_8bit", 64,
				"fp16"
		},
		"lion 8 bits": func(s *Spec) {
			s.Training.Optimizer, s.Training.LearningRate, s.LoRA.R = "lion_8bit", 2e-4,
				64
		},
		"sgd":       func(s *Spec) { s.Training.Optimizer, s.Training.LearningRate = "sgd", 0.5 },
		"adafactor": func(s *Spec) { s.Training.Optimizer = "adafactor" },
		"adafactor beta fp16": func(s *Spec) {
			s.Training.Optimizer, s.Training.AdafactorBeta1, s.Training.Precision = "adafactor", 0.9, "fp16"
		},
		"muon":       func(s *Spec) { s.Training.Optimizer = "muon" },
		"muon bf16":  func(s *Spec) { s.Training.Optimizer, s.Training.Precision = "muon", "bf16" },
		"muon lora+": func(s *Spec) { s.Training.Optimizer, s.LoRA.LoRAPlusLRRatio = "muon", 4 },
		"schedule-free": func(s *Spec) {
			s.Training.Optimizer, s.Training.LRScheduler, s.Dataset.ValSplit,
				s.Training.EvalSteps = "schedule_free_adamw", "constant", 0.02, 3
		},
		"schedule-free fp16": func(s *Spec) {
			s.Training.Optimizer, s.Training.LRScheduler, s.Training.Precision = "schedule_free_adamw", "constant",
				"fp16"
		},
		"lora+": func(s *Spec) { s.LoRA.LoRAPlusLRRatio = 8 },
		"lion+": func(s *Spec) {
			s.Training.Optimizer, s.Training.LearningRate,
				s.LoRA.LoRAPlusLRRatio = "lion", 1e-4, 4
		},
		"lora+ fp16": func(s *Spec) { s.LoRA.LoRAPlusLRRatio, s.Training.Precision = 8, "fp16" },
		"lora+ bf16": func(s *Spec) { s.LoRA.LoRAPlusLRRatio, s.Training.Precision = 8, "bf16" },
	} {
		t.Run(name, func(t *testing.T) {
			cpu := testSpec(t, 12)
			cpu.Device, cpu.Training.Precision = "cpu", "fp32"
			edit(&cpu)
			on := cpu
			on.Device, on.OutputDir = "cuda", filepath.Join(t.TempDir(), "gpu")
			cpu.Training.Precision = "fp32"
			want, got := mustStart(t, cpu, Env{}), mustStart(t, on, Env{})
			sum := 0.0
			for i := range want.Losses {
				sum += math.Abs(got.Losses[i]-want.Losses[i]) / float64(len(want.Losses))
			}
			limit := 0.02
			if on.Training.Precision == "fp32" {
				limit = 0.002
			}
			t.Logf("mean difference %.3g; losses %.4f to %.4f", sum, got.FirstLoss, got.LastLoss)
			if !(sum < limit) {
				t.Errorf("losses differ by %.3g in the mean, limit %v: GPU %v, CPU %v", sum, limit, got.Losses,
					want.Losses)
			}
			first := golden.ReadFile(t, on.OutputDir, adapter.WeightsFile)
			parts := on
			parts.OutputDir = filepath.Join(t.TempDir(), "parts")
			stop := stopping(5)
			mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
			parts.Training.Resume = "auto"
			mustStart(t, parts, Env{})
			if !bytes.Equal(first, golden.ReadFile(t, parts.OutputDir, adapter.WeightsFile)) {
				t.Error("the resumed run trains another adapter")
			}
		})
	}
}
