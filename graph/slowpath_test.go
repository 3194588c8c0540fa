package graph

import (
	"errors"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// TestSlowPathsOfMachines: each is named with what it costs and what would help.
func TestSlowPathsOfMachines(t *testing.T) {
	missing := errors.New("open libcublasLt.so.12: not found")
	for name, c := range map[string]struct {
		got   []SlowPath
		wants []string // nil = none
	}{
		"a processor with AVX2": {slowInstructions("amd64", "avx2"), nil},
		"one of another kind":   {slowInstructions("arm64", "generic"), nil},
		"one without": {slowInstructions("amd64", "generic"),
			[]string{"in plain Go", "AVX2", "more than ten times", "unset TRAINER_CPU"}},
		"an H100 without cuBLASLt": {[]SlowPath{slowLibrary(90, kernel.PrecisionBF16, missing)},
			[]string{"not found", "70 to 113 %", "H200", "TRAINER_CUBLASLT"}},
		"an A100 without cuBLASLt": {[]SlowPath{slowLibrary(80, kernel.PrecisionBF16, missing)},
			[]string{"30 to 54 %", "nvidia-cublas-cu12"}},
		"TF32 without cuBLASLt": {[]SlowPath{slowLibrary(90, kernel.PrecisionTF32, nil)},
			[]string{"tf32 computes as fp32", "22.1", "0020"}},
		"fp32 without cuBLASLt": {[]SlowPath{slowLibrary(90, kernel.PrecisionFP32, missing)},
			[]string{kernel.NotMeasured}},
		"kernels that are only PTX": {[]SlowPath{slowCode(103, "compute_100")},
			[]string{"compute_100", "capability 10.3", kernel.NotMeasured, "scripts/kernels.py"}},
		"a machine with none of its": {SlowPaths(struct{ Machine }{}), nil},
	} {
		if (c.wants == nil) != (len(c.got) == 0) {
			t.Errorf("%s: %v", name, c.got)
			continue
		}
		for _, want := range c.wants {
			if text := c.got[0].String(); !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in %s", name, want, text)
			}
		}
	}
}
