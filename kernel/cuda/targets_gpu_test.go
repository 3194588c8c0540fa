//go:build gpu

package cuda

import "testing"

// TestReleasedFor: what Targets say a device runs is what it runs of the compiled kernels.
func TestReleasedFor(t *testing.T) {
	image, err := Image("adamw", "bf16")
	if err != nil {
		t.Fatal(err)
	}
	if codes, err := Codes(image); err != nil || len(codes) != len(Targets) {
		t.Skipf("this program's kernels are compiled for other targets: %v, %v", codes, err)
	}
	for _, sm := range []int{80, 86, 87, 89, 90, 100, 103, 120, 121} {
		want, err := CodeFor(sm)
		if got, ok := ReleasedFor(sm); !ok || err != nil || got != want {
			t.Errorf("compute capability %d: %v, want %v (%v)", sm, got, want, err)
		}
	}
}
