package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/replay"
)

// TestSlicesAreTheWholeBase: ranks that hold a slice of the base model each train, evaluate and sample as one rank that
// holds all of it, byte for byte, with steps in which some have no micro-batch; each holds what its plan says, and less
// base model.
func TestSlicesAreTheWholeBase(t *testing.T) {
	plain, nested := quant.Default(), quant.Default()
	plain.DoubleQuant, nested.DoubleQuant = false, true
	for name, c := range map[string]struct {
		window int
		worlds []int
		edit   func(s *Spec)
	}{
		"lora":   {4, []int{2, 4}, func(s *Spec) { s.Adapter, s.Quantization = "lora", nil }},
		"nested": {6, []int{2, 3}, func(s *Spec) { s.Quantization, s.LoRA.Dropout = &nested, 0.1 }},
		"plain":  {4, []int{4}, func(s *Spec) { s.Quantization, s.Training.GradientCheckpointing = &plain, "full" }},
		"selective": {3, []int{3}, func(s *Spec) {
			s.Training.GradientCheckpointing,
				s.Dataset.Packing = "selective", true
		}},
		"evaluated": {4, []int{2, 4}, func(s *Spec) {
			s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.EvalOnStart = 0.3, 2, true
			s.Training.SamplePrompts, s.Training.SampleMaxTokens = []string{"Once upon a time", "The cat"}, 8
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := testSpec(t, 4)
			one.Training.GradientAccumulationSteps, one.Training.BatchSize = c.window, 1
			// the third step of an epoch has one micro-batch.
			one.Dataset.Path = fewRows(t, one.Dataset.Path, 2*c.window+1)
			c.edit(&one)
			seen := &samplesSeen{}
			env := oneWorker
			env.Observers = []Observer{seen}
			want := mustStart(t, one, env)
			for _, world := range c.worlds {
				s := over(t, one, world)
				s.Training.BaseSharding = "always"
				again := &samplesSeen{}
				env.Observers = []Observer{again}
				got := mustStart(t, s, env)
				sameRun(t, fmt.Sprintf("%d slices", world), one.OutputDir, s.OutputDir)
				if want.EvalLoss != nil && *got.EvalLoss != *want.EvalLoss || !slices.Equal(again.all, seen.all) {
					t.Errorf("%d slices: %+v and samples %q, want %+v and %q", world, got, again.all, want, seen.all)
				}
				plan, err := PlanRun(context.Background(), s, oneWorker)
				if err != nil || plan.TotalBytes != got.HeldBytes || plan.Sharding == nil ||
					plan.Sharding.Devices != world {
					t.Errorf("%d ranks hold %d bytes each, the plan says %d, %+v: %v", world, got.HeldBytes,
						plan.TotalBytes, plan.Sharding, err)
				}
				s.Training.BaseSharding = "never"
				whole, err := PlanRun(context.Background(), s, oneWorker)
				if err != nil || whole.Sharding != nil || frozen(plan) > frozen(whole)/int64(world)+1<<16 {
					t.Errorf("%d ranks hold %d bytes of %d frozen ones: %v", world, frozen(plan), frozen(whole), err)
				}
			}
		})
	}
}

// samplesSeen keeps what a run answers.
type samplesSeen struct {
	Silent
	all []string
}

func (o *samplesSeen) Sample(s SampleInfo) { o.all = append(o.all, fmt.Sprint(s.Step, s.Answer)) }

func frozen(r PlanReport) int64 {
	for _, c := range r.Categories {
		if c.Name == "frozen weights" {
			return c.Bytes
		}
	}
	return 0
}

// TestShardingIsChosen where the whole base model fits no device, and only there; what forbids it is named where it is
// missed.
func TestShardingIsChosen(t *testing.T) {
	s := testSpec(t, 2)
	s.Training.GradientCheckpointing, s.Adapter, s.Quantization, s.LoRA.TargetModules = "full", "lora",
		nil, []string{"q_proj"}
	s.Training.BatchSize, s.Devices = 1, "4"
	plan := func(sharding string) (PlanReport, error) {
		in := s
		in.Training.BaseSharding = sharding
		return PlanRun(context.Background(), in, oneWorker)
	}
	whole, err := plan("auto")
	slices, err2 := plan("always")
	if err := errors.Join(err, err2); err != nil || whole.Sharding != nil || slices.Sharding == nil ||
		slices.TotalBytes >= whole.TotalBytes {
		t.Fatalf("whole %+v, in slices %+v: %v", whole, slices, err)
	}
	s.VRAM = fmt.Sprint((whole.TotalBytes + slices.TotalBytes) / 2)
	auto, err := plan("auto")
	if err != nil || auto.TotalBytes != slices.TotalBytes || auto.Sharding == nil || len(auto.Tried) != 1 ||
		auto.Tried[0].Bytes != whole.TotalBytes {
		t.Errorf("%+v, want the plan in slices: %v", auto, err)
	}
	if text := auto.String(); !strings.Contains(text, "base_sharding: each of 4 devices holds ") ||
		!strings.Contains(text, "(NVLink)") {
		t.Error(text)
	}
	if _, err := plan("never"); !errors.Is(err, session.ErrDoesNotFit) ||
		!strings.Contains(err.Error(), "training.base_sharding: auto would fit, in as little as ") {
		t.Error(err)
	}
	s.VRAM = fmt.Sprint(slices.TotalBytes / 2)
	if _, err := plan("auto"); !errors.Is(err, session.ErrDoesNotFit) ||
		!strings.Contains(err.Error(), "base_sharding over 4 devices the plan needs") {
		t.Error(err)
	}
	s.VRAM, s.Devices = "", "1"
	if _, err := plan("always"); err == nil || !strings.Contains(err.Error(),
		"base_sharding: always needs several devices, and this run has one") {
		t.Error(err)
	}
}

// TestSlicesEndTogether: where a rank fails while others wait for its slice, all end with its error.
func TestSlicesEndTogether(t *testing.T) {
	s := testSpec(t, 6)
	s.Devices, s.Training.BaseSharding = "3", "always"
	env := oneWorker
	env.Observers = []Observer{failing{at: 2}}
	if r, err := Start(context.Background(), s, env); err == nil ||
		err.Error() != "no space for the plot" || r.Steps != 2 {
		t.Errorf("after step %d: %v", r.Steps, err)
	}
}

// TestResumeInSlices: a checkpoint does not say how the base model was held.
func TestResumeInSlices(t *testing.T) {
	whole := testSpec(t, 4)
	whole.Training.GradientAccumulationSteps, whole.Training.BatchSize = 2, 1
	mustStart(t, whole, oneWorker)
	s := over(t, whole, 2)
	s.Training.BaseSharding = "always"
	env, stop := oneWorker, stopping(2)
	env.Observers, env.Interrupted = []Observer{stop}, stop.stop
	if r := mustStart(t, s, env); !r.Stopped {
		t.Fatal("it was not stopped")
	}
	dir, alone := s.OutputDir, over(t, whole, 1)
	alone.OutputDir, alone.Training.Resume = dir, "auto"
	mustStart(t, alone, oneWorker)
	sameRun(t, "resumed", whole.OutputDir, dir)
	m, err := replay.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	if verdict, err := Verify(context.Background(), alone, oneWorker, m, 2); err != nil || !verdict.Equal {
		t.Errorf("%+v: %v", verdict, err)
	}
}
