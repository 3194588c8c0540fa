//go:build gpu

package train

import (
	"context"
	"math"
	"path/filepath"
	"testing"

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
			limit := 0.02
			if on.Training.Precision == "fp32" {
				limit = 0.002
			}
			compareDevices(t, cpu, on, limit)
		})
	}
}

// TestGPUOptimizerOffload: with the optimizer's states in host memory a run that trains all weights has the bytes of
// one with them on the device, and resumes one's checkpoint in the other's layout.
func TestGPUOptimizerOffload(t *testing.T) {
	gputest.Need(t)
	for _, name := range []string{"adamw", "adamw_8bit", "lion_8bit", "muon", "adafactor", "schedule_free_adamw"} {
		t.Run(name, func(t *testing.T) {
			here := fullSpec(t, 4)
			here.Device, here.Training.Optimizer, here.Training.OptimizerOffload = "cuda", name, "never"
			if name == "schedule_free_adamw" {
				here.Training.LRScheduler = "constant"
			}
			mustStart(t, here, Env{})
			there := here
			there.OutputDir, there.Training.OptimizerOffload = filepath.Join(t.TempDir(), "host"), "always"
			planned, err := PlanRun(context.Background(), there, Env{})
			if err != nil {
				t.Fatal(err)
			}
			result := mustStart(t, there, Env{})
			if planned.OffloadedBytes == 0 || result.HeldBytes != planned.TotalBytes {
				t.Errorf("the run held %d bytes, the plan has %d, and %d on the host", result.HeldBytes,
					planned.TotalBytes, planned.OffloadedBytes)
			}
			sameModel(t, "states in host memory", here.OutputDir, there.OutputDir)

			parts := there
			parts.OutputDir = filepath.Join(t.TempDir(), "parts")
			stop := stopping(3)
			mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
			parts.Training.Resume, parts.Training.OptimizerOffload = "auto", "never"
			mustStart(t, parts, Env{})
			sameModel(t, "resumed on the device", here.OutputDir, parts.OutputDir)
		})
	}
}

// TestGPUStochasticRounding: a run with weights in bf16 alone has the losses of the CPU's, which draws the same
// roundings, holds its plan, and resumes to the byte.
func TestGPUStochasticRounding(t *testing.T) {
	gputest.Need(t)
	for _, name := range []string{"adamw", "adamw_8bit", "muon"} {
		t.Run(name, func(t *testing.T) {
			whole := stochasticSpec(t, 8)
			whole.Device, whole.Training.Optimizer = "cuda", name
			planned, err := PlanRun(context.Background(), whole, Env{})
			if err != nil {
				t.Fatal(err)
			}
			result := mustStart(t, whole, Env{})
			cpu := whole
			cpu.Device, cpu.OutputDir = "cpu", filepath.Join(t.TempDir(), "cpu")
			want := mustStart(t, cpu, Env{}).Losses
			for i, loss := range result.Losses {
				if !(math.Abs(loss-want[i]) < 0.02) {
					t.Errorf("losses %v, on the CPU %v", result.Losses, want)
					break
				}
			}
			if result.HeldBytes != planned.TotalBytes {
				t.Errorf("held %d bytes, planned %d", result.HeldBytes, planned.TotalBytes)
			}
			parts := whole
			parts.OutputDir = filepath.Join(t.TempDir(), "parts")
			stop := stopping(3)
			mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
			parts.Training.Resume = "auto"
			mustStart(t, parts, Env{})
			sameModel(t, "resumed", whole.OutputDir, parts.OutputDir)
		})
	}
}
