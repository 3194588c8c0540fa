//go:build gpu

package train

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// TestGPUPlanIsTheChips: a plan without the device is the device's, to the byte, in every layout.
func TestGPUPlanIsTheChips(t *testing.T) {
	gputest.Need(t)
	p, err := gpu.DeviceProperties(0)
	if err != nil {
		t.Fatal(err)
	}
	chip := chipOf(t, fmt.Sprintf("%d.%d", p.Major, p.Minor))
	specs := []Spec{quickSpec(t)}
	for _, mode := range []string{"none", "selective", "full", "offload"} {
		for _, dequantised := range []string{"never", "always"} {
			s := testSpec(t, 4)
			s.Device, s.Dataset.ValSplit, s.Dataset.Packing = "cuda", 0.05, mode == "selective"
			s.Training.GradientCheckpointing, s.Training.DequantisedWeights = mode, dequantised
			specs = append(specs, s)
		}
	}
	for _, s := range specs {
		want, err := PlanRun(context.Background(), s, Env{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := PlanFor(context.Background(), s, Env{}, chip)
		if err != nil {
			t.Fatal(err)
		}
		if got.TotalBytes != want.TotalBytes || !slices.Equal(got.Categories, want.Categories) ||
			got.Checkpointing != want.Checkpointing {
			t.Errorf("%s %s: without the device %v, with it %v", s.Training.GradientCheckpointing,
				s.Training.DequantisedWeights, got, want)
		}
		if r := mustStart(t, s, Env{}); r.HeldBytes != got.TotalBytes {
			t.Errorf("%s %s: the run holds %d bytes, the plan without the device says %d",
				s.Training.GradientCheckpointing, s.Training.DequantisedWeights, r.HeldBytes, got.TotalBytes)
		}
	}
}

func TestGPUFewerLayersAreRecomputed(t *testing.T) {
	gputest.Need(t)
	s := testSpec(t, 4)
	s.Device = "cuda"
	fewerLayersAreRecomputed(t, s)
	// Values are large enough to be copied to host memory.
	s.Dataset.MaxLength, s.Training.BatchSize, s.OutputDir = 512, 4, filepath.Join(t.TempDir(), "run")
	fewerLayersAreRecomputed(t, s)
}

// TestGPUPartlyDequantisedChangesNothing: the same adapter byte for byte, in the memory that the plan says.
func TestGPUPartlyDequantisedChangesNothing(t *testing.T) {
	gputest.Need(t)
	s := quickSpec(t)
	s.LoRA.TargetModules, s.Dataset.ValSplit = adapter.Targets{adapter.AllLinear}, 0.05
	s.Training.DequantisedWeights = "never"
	mustStart(t, s, Env{})
	want := golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)
	partlyDequantised(t, s, func(vram int64, r PlanReport) {
		in := s
		in.Training.DequantisedWeights, in.VRAM, in.OutputDir = "auto", fmt.Sprint(vram),
			filepath.Join(t.TempDir(), "run")
		if run := mustStart(t, in, Env{}); run.HeldBytes != r.TotalBytes {
			t.Errorf("in %d bytes the run holds %d, the plan says %d", vram, run.HeldBytes, r.TotalBytes)
		}
		if !bytes.Equal(want, golden.ReadFile(t, in.OutputDir, adapter.WeightsFile)) {
			t.Errorf("in %d bytes it trains another adapter: %v", vram, r)
		}
	})
}
