package train

import (
	"context"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train/step"
)

// TestPlanNamesMissingKernels: a head size that no GPU kernel has is refused when the run is planned, with those that
// are served.
func TestPlanNamesMissingKernels(t *testing.T) {
	for _, c := range []struct{ heads, want string }{
		{"12", "attention: head size 12 is not supported on the GPU; multiples of 8 up to 512 are"},
		{"520", "attention: head size 520 is not supported on the GPU; multiples of 8 up to 512 are"},
		{"256", ""},
		{"512", ""},
	} {
		s := quickSpec(t)
		s.BaseModel = withoutWeights(t, `"head_dim": 8`, `"head_dim": `+c.heads)
		_, err := PlanFor(context.Background(), s, Env{}, chipOf(t, "4090"))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("head size %s: %v", c.heads, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("head size %s:\n got %v\nwant %s", c.heads, err, c.want)
		}
	}
}

// TestGradNormsArePlannedForAGPU: the norms of each tensor take the state that they lie in, and nothing else.
func TestGradNormsArePlannedForAGPU(t *testing.T) {
	s := quickSpec(t)
	without, err := PlanFor(context.Background(), s, Env{}, chipOf(t, "h100"))
	if err != nil {
		t.Fatal(err)
	}
	s.Training.GradNormSteps = 1
	with, err := PlanFor(context.Background(), s, Env{}, chipOf(t, "h100"))
	if err != nil {
		t.Fatal(err)
	}
	group := int64(0)
	for _, c := range with.Categories {
		if c.Name == step.GroupNorms {
			group = c.Bytes
		}
	}
	if group == 0 || with.TotalBytes != without.TotalBytes+group {
		t.Errorf("%d bytes with the norms, %d without, of which the norms take %d", with.TotalBytes,
			without.TotalBytes, group)
	}
}
