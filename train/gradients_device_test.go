//go:build gpu

package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/train/gradcheck"
)

// TestGPUTensorNorms: with the norms of each tensor the same adapter is trained to the byte, in the memory that the
// plan says, and their squares sum up to the whole norm's, with loss scaling too.
func TestGPUTensorNorms(t *testing.T) {
	gputest.Need(t)
	for _, precision := range []string{"bf16", "fp16"} {
		without := testSpec(t, 6)
		without.Device, without.Training.Precision = "cuda", precision
		mustStart(t, without, Env{})
		s := without
		s.Training.GradNormSteps, s.OutputDir = 2, filepath.Join(t.TempDir(), "run")
		plan, err := PlanRun(t.Context(), s, Env{})
		if err != nil {
			t.Fatal(err)
		}
		see := &normSums{t: t}
		if r := mustStart(t, s, Env{Observers: []Observer{see}}); r.HeldBytes != plan.TotalBytes || see.lines != 3 {
			t.Errorf("%s: %d bytes are held, the plan says %d; %d lines of norms, want 3", precision, r.HeldBytes,
				plan.TotalBytes, see.lines)
		}
		if !bytes.Equal(golden.ReadFile(t, without.OutputDir, adapter.WeightsFile),
			golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)) {
			t.Errorf("%s: another adapter is trained with the norms", precision)
		}
	}
}

type normSums struct {
	Silent
	t     *testing.T
	lines int
}

func (n *normSums) Step(s StepInfo) error {
	if s.TensorNorms == nil || !finite(s.GradNorm) {
		return nil
	}
	sum := 0.0
	for _, x := range s.TensorNorms {
		sum += x.Norm * x.Norm
	}
	n.lines++
	golden.Near(n.t, "root of the sum of squares", math.Sqrt(sum), s.GradNorm, 1e-5*s.GradNorm)
	return nil
}

// TestGPUZeroGradientIsAnError: as on a CPU, after step 3.
func TestGPUZeroGradientIsAnError(t *testing.T) {
	gputest.Need(t)
	s := testSpec(t, 6)
	s.Device, s.LoRA.TargetModules = "cuda", adapter.Targets{"q_proj", "v_proj"}
	s.BaseModel = editedModel(t, "layers.2.self_attn.o_proj.weight", func(data []byte) { clear(data) })
	if r, err := Start(context.Background(), s, Env{}); !errors.Is(err, ErrZeroGradient) || r.Steps != 3 {
		t.Errorf("after step %d: %v", r.Steps, err)
	}
}

// TestGPUGradCheck: the gradients of every precision are within the limits of the rule, and those of all families in
// bf16. Where rounding may give a token to another expert there is no limit; TestGPUFamilyGradients holds these to one,
// on rows that leave no doubt.
func TestGPUGradCheck(t *testing.T) {
	gputest.Need(t)
	for _, precision := range gpuPrecisions {
		s := testSpec(t, 1)
		s.Device, s.Training.Precision = "cuda", precision.String()
		r, err := GradCheck(t.Context(), s, Env{}, gradcheck.Options{Tokens: 128})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v: all %.3g, plain %.3g, limit %.3g; %s", precision, r.All.Error, r.All.Plain, r.All.Limit, worstOf(r))
		if !r.OK {
			t.Errorf("%v: %d tensors beyond their limits, all %+v", precision, r.Failed, r.All)
		}
	}
	for _, m := range golden.FamilyModels(t) {
		s := familySpec(t, m)
		s.Device = "cuda"
		r, err := GradCheck(t.Context(), s, Env{}, gradcheck.Options{Tokens: 48})
		if err != nil {
			t.Fatalf("%s: %v", m.Name, err)
		}
		t.Logf("%s: all %.3g, plain %.3g, limit %.3g, %d beyond; %s", m.Name, r.All.Error, r.All.Plain,
			r.All.Limit, r.Failed, worstOf(r))
		if !r.Experts && !r.OK {
			t.Errorf("%s: %d tensors beyond their limits, all %+v", m.Name, r.Failed, r.All)
		}
	}
}

// worstOf is the tensor whose error is the largest part of its limit.
func worstOf(r gradcheck.Report) string {
	worst := r.Tensors[0]
	for _, t := range r.Tensors {
		if t.Error*worst.Limit > worst.Error*t.Limit {
			worst = t
		}
	}
	return fmt.Sprintf("worst %s: %.3g, plain %.3g, limit %.3g", worst.Name, worst.Error, worst.Plain, worst.Limit)
}
