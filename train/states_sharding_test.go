package train

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/session"
)

// TestShardedStatesAreWhole: ranks that hold a slice of the optimizer's states each train a model as one rank does,
// byte for byte, checkpoints too, and hold what the plan says.
func TestShardedStatesAreWhole(t *testing.T) {
	t.Parallel()
	for name, worlds := range map[string][]int{"adamw": {2, 4}, "adamw_8bit": {4}, "schedule_free_adamw": {2},
		"muon": {2}, "lion_8bit": {2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := fullSpec(t, 2)
			one.Training.Optimizer, one.Training.BatchSize = name, 1
			if name == "schedule_free_adamw" {
				one.Training.LRScheduler = "constant"
			}
			mustStart(t, one, oneWorker)
			for _, world := range worlds {
				s := over(t, one, world)
				s.Training.OptimizerSharding = "never"
				whole, err := PlanRun(context.Background(), s, oneWorker)
				if err != nil {
					t.Fatal(err)
				}
				s.Training.OptimizerSharding = "always"
				plan, err := PlanRun(context.Background(), s, oneWorker)
				if err != nil {
					t.Fatal(err)
				}
				got := mustStart(t, s, oneWorker)
				sameModel(t, fmt.Sprintf("%d ranks", world), one.OutputDir, s.OutputDir)
				if plan.TotalBytes != got.HeldBytes || plan.StateSharding == nil ||
					plan.TotalBytes >= whole.TotalBytes || whole.StateSharding != nil {
					t.Errorf("%d ranks hold %d bytes each, the plan says %d, %+v, and %d with whole states", world,
						got.HeldBytes, plan.TotalBytes, plan.StateSharding, whole.TotalBytes)
				}
			}
		})
	}
}

// TestResumeShardedStates: a checkpoint does not say on how many ranks the optimizer's states lay.
func TestResumeShardedStates(t *testing.T) {
	t.Parallel()
	whole := fullSpec(t, 3)
	whole.Training.SaveSteps, whole.Training.BatchSize, whole.Training.Optimizer = 1, 1, "adamw_8bit"
	mustStart(t, whole, oneWorker)
	dir := filepath.Join(t.TempDir(), "run")
	for i, world := range []int{2, 4, 1} {
		s := over(t, whole, world)
		s.OutputDir, s.Training.OptimizerSharding = dir, "always"
		env := oneWorker
		if world == 1 {
			s.Training.OptimizerSharding = "auto"
		}
		if i > 0 {
			s.Training.Resume = "auto"
		}
		if i < 2 {
			stop := stopping(i + 1)
			env.Observers, env.Interrupted = []Observer{stop}, stop.stop
		}
		mustStart(t, s, env)
	}
	sameModel(t, "resumed", whole.OutputDir, dir)
}

// TestStateShardingIsChosen where whole states fit in no layout, and only there; what forbids it is named where it is
// missed, and so is an optimizer that keeps its states whole.
func TestStateShardingIsChosen(t *testing.T) {
	t.Parallel()
	s := fullSpec(t, 2)
	s.Training.GradientCheckpointing, s.Training.BatchSize, s.Devices = "full", 1, "4"
	s.Dataset.ValSplit = 0
	plan := func(sharding, vram string) (PlanReport, error) {
		in := s
		in.Training.OptimizerSharding, in.VRAM = sharding, vram
		return PlanRun(context.Background(), in, oneWorker)
	}
	whole, err := plan("auto", "")
	cut, err2 := plan("always", "")
	if err := errors.Join(err, err2); err != nil || whole.StateSharding != nil {
		t.Fatalf("whole %+v: %v", whole, err)
	}
	if saved := cut.StateSharding.WholeBytes - cut.StateSharding.SliceBytes; whole.TotalBytes-cut.TotalBytes != saved ||
		cut.StateSharding.SliceBytes > cut.StateSharding.WholeBytes/3 {
		t.Errorf("%d bytes with slices, %d without, %+v", cut.TotalBytes, whole.TotalBytes, cut.StateSharding)
	}
	auto, err := plan("auto", fmt.Sprint(cut.TotalBytes))
	if err != nil || auto.TotalBytes != cut.TotalBytes {
		t.Errorf("auto takes %d bytes, want %d: %v", auto.TotalBytes, cut.TotalBytes, err)
	}
	if text := auto.String(); !strings.Contains(text, "optimizer_sharding: each of 4 devices holds ") {
		t.Error(text)
	}
	if _, err := plan("never", fmt.Sprint(cut.TotalBytes)); !errors.Is(err, session.ErrDoesNotFit) ||
		!strings.Contains(err.Error(), "training.optimizer_sharding: auto would fit, in as little as ") {
		t.Error(err)
	}
	s.Training.Optimizer = "adafactor"
	const want = "training.optimizer_sharding: always: adafactor keeps its states whole on each device"
	if _, err := plan("always", ""); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	s.Devices = "1"
	if _, err := plan("always", ""); err == nil || !strings.Contains(err.Error(),
		"optimizer_sharding: always needs several devices, and this run has one") {
		t.Error(err)
	}
}

// TestPinnedShortage: states that the host has no memory for are refused with both sizes.
func TestPinnedShortage(t *testing.T) {
	for _, free := range []int64{0, 3 << 30, 4 << 30} {
		if err := pinnedShortage(3<<30, free); err != nil {
			t.Errorf("%d bytes free: %v", free, err)
		}
	}
	const want = "take 3.0 GiB of page-locked host memory for each device, and the host has 2.0 GiB free for it: " +
		"1.0 GiB too much"
	if err := pinnedShortage(3<<30, 2<<30); !errors.Is(err, session.ErrDoesNotFit) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
