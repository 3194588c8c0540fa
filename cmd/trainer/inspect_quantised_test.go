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
	if code != 0 || !strings.Contains(out, "stored      2 weights in 4 bits (nf4, double_quant true)\nparameters  56800 in ") {
		t.Errorf("code %d, %s%s", code, out, errOut)
	}
}
