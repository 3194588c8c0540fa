package gpu

import (
	"strings"
	"testing"
)

func TestFindChip(t *testing.T) {
	for s, sm := range map[string]int{"h100": 90, "H200": 90, " RTX 4090": 89, "NVIDIA GeForce RTX 5090": 120,
		"9.0": 90, "sm_90": 90, "86": 86, "12.0": 120, "100": 100, "sm_8.9": 89} {
		if c, err := FindChip(s); err != nil || c.SM != sm {
			t.Errorf("%q is %+v, %v; want compute capability %d", s, c, err, sm)
		}
	}
	for s, want := range map[string]string{"h10": "name one of h100, h200", "": "is not known", "9.x": "is not known",
		"9.0.1": "is not known", "-90": "is not known", "0": "is not known",
		"7.5": "the kernels need 8.0", "8.11": "is not known", "90 ": ""} {
		_, err := FindChip(s)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", s, err, want)
		}
	}
	for _, c := range Chips {
		if err := CheckDriver(KernelsVersion, c.SM); err != nil || c.Memory < 8000<<20 {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
