package main

import (
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// TestInspectQuantised: a folder that is quantised already shows how, and counts its weights' numbers, not their bytes.
func TestInspectQuantised(t *testing.T) {
	dir := golden.Path(t, "prequantised/nf4_dynamic")
	code, out, errOut := trainer(t, t.TempDir(), nil, "", "inspect", "model", dir)
	if code != 0 || !strings.Contains(out, "stored      2 weights in 4 bits (nf4, double_quant true); its "+
		"bnb_4bit_compute_dtype is float32, a run's training.precision here\nparameters  56800 in 12 tensors") {
		t.Errorf("code %d, %s%s", code, out, errOut)
	}
}
