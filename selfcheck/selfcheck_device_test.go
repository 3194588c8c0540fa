//go:build gpu

package train

import (
	"context"
	"testing"
)

// TestGPUSelfCheck is trainer selfcheck.
func TestGPUSelfCheck(t *testing.T) {
	needGPU(t)
	r, err := SelfCheck(context.Background(), Env{})
	if err != nil {
		t.Fatal(err)
	}
	worst := map[string]float64{}
	for _, c := range r.Checks {
		if c.Status == CheckFailed {
			t.Errorf("%s %s %s: %s", c.Precision, c.Kernel, c.Case, c.Reason)
		}
		if c.Status == CheckSkipped {
			t.Logf("%s %s %s: skipped: %s", c.Precision, c.Kernel, c.Case, c.Reason)
		}
		if c.Limit > 0 {
			name := c.Precision + " " + c.Kernel
			worst[name] = max(worst[name], c.Error/c.Limit)
		}
	}
	for k, share := range worst {
		t.Logf("%s: largest error %.2f of its limit", k, share)
	}
	t.Logf("%s: %d passed, %d failed, %d skipped in %v", r.Device, r.Passed, r.Failed, r.Skipped, r.Duration)
}
