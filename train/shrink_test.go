package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/fit"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/replay"
)

// shrinking is a run in batches of four, and the bytes of a plan that is too small for it.
func shrinking(t *testing.T, steps int) (Spec, int64) {
	t.Helper()
	s := testSpec(t, steps)
	s.Training.BatchSize, s.Training.GradientCheckpointing, s.Dataset.ValSplit = 4, "none", 0.05
	one := s
	one.Training.BatchSize, one.Training.GradientAccumulationSteps, one.Training.GradientCheckpointing = 1, 4, "full"
	r, err := PlanRun(context.Background(), one, twoWorkers)
	if err != nil {
		t.Fatal(err)
	}
	return s, r.TotalBytes
}

// nearLosses compares losses step by step, to rounding.
func nearLosses(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d losses, want %d", what, len(got), len(want))
	}
	for i := range want {
		golden.Near(t, fmt.Sprintf("%s, step %d: relative loss", what, i+1), got[i]/want[i], 1, 1e-6)
	}
}

// logging is an environment that keeps what a run says.
func logging(said *[]string) Env {
	env := twoWorkers
	env.Log = func(line string) { *said = append(*said, line) }
	return env
}

// TestShrunkRunTrainsTheSame: a run that does not fit as configured takes pieces of its batches, learns the same to
// rounding, says so, and holds what its plan says. Without on_oom: shrink it is refused.
func TestShrunkRunTrainsTheSame(t *testing.T) {
	t.Parallel()
	s, small := shrinking(t, 4)
	whole := mustStart(t, s, twoWorkers)
	s.VRAM, s.OutputDir = fmt.Sprint(small), filepath.Join(t.TempDir(), "shrunk")
	if _, err := Start(context.Background(), s, twoWorkers); !errors.Is(err, session.ErrDoesNotFit) ||
		exists(s.OutputDir, MetricsFile) {
		t.Fatalf("without on_oom: %v", err)
	}
	s.Training.OnOOM = fit.OnOOMShrink
	plan, err := PlanRun(context.Background(), s, twoWorkers)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	shrunk := mustStart(t, s, logging(&said))
	if shrunk.HeldBytes > small || shrunk.HeldBytes != plan.TotalBytes {
		t.Errorf("holds %d bytes, planned %d, may hold %d", shrunk.HeldBytes, plan.TotalBytes, small)
	}
	nearLosses(t, "shrunk", shrunk.Losses, whole.Losses)
	golden.Near(t, "relative evaluation", *shrunk.EvalLoss / *whole.EvalLoss, 1, 1e-6)
	const want = "the run does not fit as configured: with gradient_checkpointing none"
	if text := strings.Join(said, "\n"); !strings.Contains(text, want) ||
		!strings.Contains(text, "training.on_oom: shrink takes batch_size 1 with gradient_accumulation_steps 4 "+
			"instead of 4 with 1, and gradient_checkpointing full: ") {
		t.Errorf("it said\n%s", text)
	}
	m, err := replay.ReadManifest(s.OutputDir)
	if err != nil || len(m.Plans) != 1 ||
		m.Plans[0] != (replay.PartPlan{FirstStep: 1, BatchSize: 1, Accumulation: 4, Pieces: 4,
			Layout: "gradient_checkpointing full", Bytes: shrunk.HeldBytes}) {
		t.Errorf("the manifest has the plans %+v: %v", m.Plans, err)
	}
	verdict, err := Verify(context.Background(), s, twoWorkers, m, 2)
	if err != nil || !verdict.Equal {
		t.Errorf("verified: %+v, %v", verdict, err)
	}
	s.VRAM = "" // with memory enough the replay still takes the run's pieces
	if verdict, err = Verify(context.Background(), s, twoWorkers, m, 2); err != nil || !verdict.Equal {
		t.Errorf("verified in more memory: %+v, %v", verdict, err)
	}
}

// TestShrunkRunResumes: in the same memory to the same bytes, in more or less of it to rounding; the manifest has a
// plan for each part.
func TestShrunkRunResumes(t *testing.T) {
	t.Parallel()
	whole, small := shrinking(t, 4)
	whole.Training.OnOOM, whole.Training.GradientAccumulationSteps = fit.OnOOMShrink, 2
	r := mustStart(t, whole, twoWorkers)
	shrunk := whole
	shrunk.VRAM, shrunk.OutputDir = fmt.Sprint(small), filepath.Join(t.TempDir(), "shrunk")
	mustStart(t, shrunk, twoWorkers)
	for _, c := range []struct {
		name        string
		first, then string
		parts       int
	}{
		{"the same memory", shrunk.VRAM, shrunk.VRAM, 1},
		{"more memory", shrunk.VRAM, "", 2},
		{"less memory", "", shrunk.VRAM, 2},
	} {
		parts := whole
		parts.VRAM, parts.OutputDir = c.first, filepath.Join(t.TempDir(), "parts")
		env := twoWorkers
		stop := stopping(2)
		env.Observers, env.Interrupted = []Observer{stop}, stop.stop
		if r := mustStart(t, parts, env); !r.Stopped {
			t.Fatal("it was not stopped")
		}
		parts.VRAM, parts.Training.Resume = c.then, "auto"
		got := mustStart(t, parts, twoWorkers)
		nearLosses(t, c.name, got.Losses, r.Losses)
		m, err := replay.ReadManifest(parts.OutputDir)
		if err != nil || len(m.Plans) != c.parts || c.parts == 2 &&
			(m.Plans[1].FirstStep != 3 || m.Plans[0].Pieces+m.Plans[1].Pieces != 4) {
			t.Errorf("%s: plans %+v, %v", c.name, m.Plans, err)
		}
		if c.parts == 1 && !bytes.Equal(golden.ReadFile(t, shrunk.OutputDir, adapter.WeightsFile),
			golden.ReadFile(t, parts.OutputDir, adapter.WeightsFile)) {
			t.Errorf("%s: the resumed run trains another adapter", c.name)
		}
	}
}

// errNoMemory is what a device says that has not enough.
type errNoMemory struct{}

func (errNoMemory) Error() string {
	return "arena activations of 5 bytes: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)"
}
func (errNoMemory) Is(target error) bool {
	return target == graph.ErrOutOfMemory || target == graph.ErrDevice
}

// TestDeviceRefusesThePlan: a device that refuses the memory that was free when the run was planned. The error has the
// bytes planned, free and held by others, and what would fit; with shrink the run takes a smaller plan.
func TestDeviceRefusesThePlan(t *testing.T) {
	t.Parallel()
	s, small := shrinking(t, 2)
	whole := mustStart(t, s, twoWorkers)
	machine := func(refusals int, after func() (int64, int64)) *faulty {
		m := newFaulty()
		m.free = func() (int64, int64) { return 1 << 30, 2 << 30 }
		m.refuse = func(n int) error {
			m.free = after
			if n <= refusals {
				return errNoMemory{}
			}
			return nil
		}
		return m
	}
	taken := func() (int64, int64) { return small + 1, 2 << 30 } // by another process, after the plan
	full := func() (int64, int64) { return 0, 2 << 30 }
	pieces := func() (int64, int64) { return 1 << 30, 2 << 30 } // enough, in pieces
	s.OutputDir = filepath.Join(t.TempDir(), "run")
	for _, c := range []struct {
		name  string
		after func() (int64, int64)
		want  []string
	}{
		{"taken", taken, []string{"cpu refused the memory of the plan (arena activations", ": planned ",
			", free now " + session.FormatBytes(small+1) +
				" of 2.0 GiB, other processes and the driver hold 2.0 GiB; into ",
			"would fit, in ", "training.batch_size: 1 with training.gradient_checkpointing: auto would fit, in ",
			"training.on_oom: shrink does so by itself"}},
		{"full", full, []string{"free now 0 B of 2.0 GiB", "other programs hold its memory: wait for them"}},
		{"in pieces", pieces, []string{"free now 1.0 GiB of 2.0 GiB", " would fit, in "}},
	} {
		_, err := startFaulty(t, machine(100, c.after), s, twoWorkers)
		for _, want := range c.want {
			if !errors.Is(err, session.ErrDoesNotFit) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: it does not say %q: %v", c.name, want, err)
			}
		}
	}
	s.Training.OnOOM = fit.OnOOMShrink
	for _, c := range []struct {
		name     string
		refusals int
		after    func() (int64, int64)
	}{{"taken", 1, taken}, {"in pieces, three times", 3, pieces}} {
		s.OutputDir = filepath.Join(t.TempDir(), "run")
		var said []string
		r, err := startFaulty(t, machine(c.refusals, c.after), s, logging(&said))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		nearLosses(t, c.name, r.Losses, whole.Losses)
		if r.HeldBytes >= whole.HeldBytes || strings.Count(strings.Join(said, "\n"),
			"training.on_oom: shrink takes batch_size ") != c.refusals {
			t.Errorf("%s: holds %d of %d bytes, said\n%s", c.name, r.HeldBytes, whole.HeldBytes,
				strings.Join(said, "\n"))
		}
	}
	s.OutputDir = filepath.Join(t.TempDir(), "run")
	if _, err := startFaulty(t, machine(100, pieces), s, twoWorkers); !errors.Is(err, session.ErrDoesNotFit) ||
		exists(s.OutputDir, MetricsFile) {
		t.Errorf("a device that refuses all: %v", err)
	}
}

// TestShrunkBalanceIsSaid: the balance of experts is of a micro-batch, so that of smaller ones is another, which the
// run says.
func TestShrunkBalanceIsSaid(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"mixtral_balanced": true, "qwen3_moe": false} {
		s := familySpec(t, golden.FamilyModel{Folder: "experts", Name: name})
		s.Training.MaxSteps, s.Training.GradientCheckpointing, s.Training.OnOOM = 1, "none", fit.OnOOMShrink
		plan, err := PlanRun(context.Background(), s, oneWorker)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		env := oneWorker
		env.Log = func(line string) { text += line }
		for part := int64(95); part > 30 && !strings.Contains(text, "takes batch_size 2 ") &&
			!strings.Contains(text, "takes batch_size 1 "); part -= 5 {
			s.VRAM, s.OutputDir, text = strconv.FormatInt(plan.TotalBytes*part/100, 10), t.TempDir(), ""
			if _, err := Start(context.Background(), s, env); errors.Is(err, session.ErrDoesNotFit) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if !strings.Contains(text, "shrink takes batch_size") ||
			strings.Contains(text, "the balance of experts") != want {
			t.Errorf("%s: the run says %s", name, text)
		}
	}
}

// TestShrinkRefusesBatchTerms checks that on_oom: shrink is refused where smaller micro-batches have another loss, and
// that the advice of a run that does not fit then does not offer it.
func TestShrinkRefusesBatchTerms(t *testing.T) {
	for name, c := range map[string]struct {
		objective string
		change    func(*objective.Config)
		want      string
	}{
		"pairs": {"contrastive", func(*objective.Config) {},
			"contrastive the negatives of an anchor are texts of each"},
		"kto":           {"kto", func(*objective.Config) {}, "kto the estimate of the divergence is one of each"},
		"kto, no value": {"kto", func(c *objective.Config) { c.KTO = &objective.KTOConfig{LossType: "apo_zero_unpaired"} }, ""},
		"answers":       {"grpo", func(*objective.Config) {}, ""},
		"bnpo": {"grpo", func(c *objective.Config) { c.GRPO = &objective.GRPOConfig{LossType: "bnpo"} },
			"grpo with loss_type: bnpo the mean number of tokens of an answer is one of each"},
		"entropies": {"grpo", func(c *objective.Config) { c.GRPO = &objective.GRPOConfig{TopEntropyQuantile: 0.2} },
			"grpo top_entropy_quantile takes the tokens with the highest entropies of each"},
		"leave one out": {"rloo", func(*objective.Config) {}, ""},
		"dpo":           {"dpo", func(*objective.Config) {}, ""},
		"sft":           {"sft", func(*objective.Config) {}, ""},
	} {
		s := Spec{Training: Default()}
		s.Training.Objective, s.Training.BatchSize, s.Training.OnOOM = c.objective, 4, fit.OnOOMShrink
		c.change(&s.Objectives)
		problems := fmt.Sprint(s.ValidateBatches())
		if (c.want == "") != (problems == "[]") || !strings.Contains(problems, c.want) {
			t.Errorf("%s: %s, want %q", name, problems, c.want)
		}
		s.Training.OnOOM = fit.OnOOMStop
		if problems := s.ValidateBatches(); problems != nil {
			t.Errorf("%s with stop: %v", name, problems)
		}
	}
}
