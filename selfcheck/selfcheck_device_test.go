//go:build gpu

package selfcheck

import (
	"context"
	"testing"

	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/session"
)

// TestGPUSelfCheck is trainer selfcheck.
func TestGPUSelfCheck(t *testing.T) {
	gputest.Need(t)
	r, err := Run(context.Background(), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	worst := map[string]float64{}
	for _, c := range r.Checks {
		if c.Status == StatusFail {
			t.Errorf("%s %s %s: %s", c.Precision, c.Kernel, c.Case, c.Reason)
		}
		if c.Status == StatusSkip {
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
