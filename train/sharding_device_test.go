//go:build gpu

package train

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/quant"
)

// TestGPUSlicesAreTheWholeBase: GPUs that hold a slice of the base model each train and evaluate, byte for byte, as
// GPUs that hold all of it, in every layout, and hold what the plan says.
func TestGPUSlicesAreTheWholeBase(t *testing.T) {
	needGPUs(t, 2)
	there, _ := graph.GPUs()
	plain := quant.Default()
	plain.DoubleQuant = false
	for name, edit := range map[string]func(s *Spec){
		"qlora":   func(s *Spec) { s.LoRA.Dropout = 0.05 },
		"plain":   func(s *Spec) { s.Quantization, s.Training.GradientCheckpointing = &plain, "full" },
		"lora":    func(s *Spec) { s.Adapter, s.Quantization = "lora", nil },
		"offload": func(s *Spec) { s.Training.GradientCheckpointing = "offload" },
		"fp32":    func(s *Spec) { s.Training.Precision, s.Training.GradientCheckpointing = "fp32", "selective" },
		"evaluated": func(s *Spec) {
			s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.EvalOnStart = 0.3, 2, true
			s.Training.SamplePrompts, s.Training.SampleMaxTokens = []string{"Once upon a time"}, 8
		},
	} {
		t.Run(name, func(t *testing.T) {
			one := testSpec(t, 8)
			one.Device, one.Training.DequantisedWeights = "cuda", "never"
			one.Training.GradientAccumulationSteps, one.Training.BatchSize = 4, 1
			one.Dataset.Path = fewRows(t, one.Dataset.Path, 9)
			edit(&one)
			want := mustStart(t, one, Env{})
			for _, world := range []int{2, 4} {
				if world > there {
					continue
				}
				s := over(t, one, world)
				s.Training.BaseSharding = "always"
				got := mustStart(t, s, Env{})
				if want.EvalLoss != nil && *got.EvalLoss != *want.EvalLoss {
					t.Errorf("%d GPUs: evaluation %v, want %v", world, *got.EvalLoss, *want.EvalLoss)
				}
				sameRun(t, fmt.Sprintf("%d slices", world), one.OutputDir, s.OutputDir)
				plan, err := PlanRun(context.Background(), s, Env{})
				if err != nil || plan.TotalBytes != got.HeldBytes || plan.Sharding == nil {
					t.Errorf("%d GPUs hold %d bytes each, the plan says %d: %v", world,
						got.HeldBytes, plan.TotalBytes, err)
				}
			}
		})
	}
}

// TestGPUShardedStates: GPUs that hold a slice of the optimizer's states each train a model, byte for byte, as one that
// holds all of them, and hold what the plan says; a checkpoint resumes on one.
func TestGPUShardedStates(t *testing.T) {
	needGPUs(t, 2)
	there, _ := graph.GPUs()
	for _, name := range []string{"adamw", "adamw_8bit", "lion_8bit", "schedule_free_adamw", "muon", "stochastic"} {
		t.Run(name, func(t *testing.T) {
			one := fullSpec(t, 4)
			one.Device, one.Training.BatchSize = "cuda", 1
			switch name {
			case "stochastic":
				one.Full.StochasticRounding = true
			case "schedule_free_adamw":
				one.Training.Optimizer, one.Training.LRScheduler = name, "constant"
			default:
				one.Training.Optimizer = name
			}
			mustStart(t, one, Env{})
			for _, world := range []int{2, 4} {
				if world > there {
					continue
				}
				s := over(t, one, world)
				s.Training.OptimizerSharding = "always"
				plan, err := PlanRun(context.Background(), s, Env{})
				if err != nil {
					t.Fatal(err)
				}
				got := mustStart(t, s, Env{})
				sameModel(t, fmt.Sprintf("%d slices", world), one.OutputDir, s.OutputDir)
				if plan.TotalBytes != got.HeldBytes || plan.StateSharding == nil {
					t.Errorf("%d GPUs hold %d bytes each, the plan says %d", world, got.HeldBytes, plan.TotalBytes)
				}
			}
			parts := over(t, one, 2)
			parts.Training.OptimizerSharding = "always"
			stop := stopping(3)
			mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
			last := over(t, one, 1)
			last.OutputDir, last.Training.Resume = parts.OutputDir, "auto"
			mustStart(t, last, Env{})
			sameModel(t, "two GPUs, then one", one.OutputDir, parts.OutputDir)
		})
	}
}

// TestGPUSlicesSmolLM2: the same of a real model, whose weights are packed on the device.
func TestGPUSlicesSmolLM2(t *testing.T) {
	needGPUs(t, 2)
	one := smolLM2Spec(t, 10)
	one.Training.GradientAccumulationSteps, one.Training.DequantisedWeights = 2, "never"
	mustStart(t, one, Env{})
	for _, sharding := range []string{"never", "always"} {
		two := over(t, one, 2)
		two.Training.BaseSharding = sharding
		began := time.Now()
		r := mustStart(t, two, Env{})
		sameRun(t, "two GPUs, base_sharding "+sharding, one.OutputDir, two.OutputDir)
		t.Logf("base_sharding %s: 10 steps in %v, %.2f ms a step in the median, %d bytes held", sharding,
			time.Since(began).Round(time.Millisecond), r.StepMs.Median, r.HeldBytes)
	}
}
