package train

import (
	"strings"
	"testing"
)

// TestStrictNamesIdleFP8 checks that frozen_gemm: fp8 says when it changes no GEMM: the model's linear layers are
// narrower than 1,024. No device is needed.
func TestStrictNamesIdleFP8(t *testing.T) {
	for gemm, want := range map[string]bool{"fp8": true, "bf16": false} {
		s := quickSpec(t)
		s.Training.FrozenGEMM = gemm
		r, err := PlanFor(t.Context(), s, Env{}, chipOf(t, "h100"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(r.String(), "\n  slow path: no frozen GEMM of a step multiplies 8-bit floats") != want {
			t.Errorf("%s: %v", gemm, r.Slow)
		}
	}
}
