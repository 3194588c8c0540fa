package train

import (
	"errors"
	"strings"
	"testing"
)

// TestStrictNamesSlowKernels: heads that compute capability 9.0 has no wgmma kernel for, on devices that have and have
// not faster kernels for other heads. No device is needed.
func TestStrictNamesSlowKernels(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ chip, heads, want string }{
		{"h100", "256", "attention over heads of 256 runs on mma.sync"},
		{"h100", "512", "attention over heads of 512 runs on mma.sync"},
		{"h100", "16", "attention over heads of 16 runs on mma.sync"},
		{"h100", "64", ""},
		{"a100", "256", ""},
		{"4090", "256", ""},
		{"4090", "512", ""},
	} {
		s := quickSpec(t)
		s.BaseModel = withoutWeights(t, `"head_dim": 8`, `"head_dim": `+c.heads)
		r, err := PlanFor(t.Context(), s, Env{}, chipOf(t, c.chip))
		if err != nil {
			t.Fatal(err)
		}
		if (c.want == "") != (len(r.Slow) == 0) || c.want != "" &&
			!strings.Contains(r.String(), "\n  slow path: "+c.want) {
			t.Errorf("%s, heads of %s: %v", c.chip, c.heads, r.Slow)
		}
		s.Training.Strict = true
		if _, err := PlanFor(t.Context(), s, Env{}, chipOf(t, c.chip)); errors.Is(err, ErrSlowPath) != (c.want != "") {
			t.Errorf("%s, heads of %s, strict: %v", c.chip, c.heads, err)
		}
	}
}
