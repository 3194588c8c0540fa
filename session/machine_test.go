package session

import (
	"errors"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

func TestPrecisionFor(t *testing.T) {
	for _, c := range []struct {
		device, name string
		want         kernel.Precision
		wrong        string
	}{
		{"cpu", "auto", 0, ""}, {"cpu", "", 0, ""}, {"cpu", "fp32", kernel.PrecisionFP32, ""}, {"cuda", "auto", 0, ""},
		{"cpu", "bf16", 0, "training.precision: bf16 needs a GPU (no such device): the CPU computes in fp32; use auto or fp32 there"},
		{"cpu", "fp16", 0, "fp16"}, {"cpu", "tf32", 0, "tf32"}, {"cuda", "fp16", kernel.PrecisionFP16, ""}, {"cuda", "bf16", kernel.PrecisionBF16, ""},
		{"cuda", "tf32", kernel.PrecisionTF32, ""}, {"cuda", "fp32", kernel.PrecisionFP32, ""},
		{"cpu", "half", 0, `"half" is not one of auto, bf16, fp16, tf32, fp32`},
	} {
		p, err := precisionFor(c.device, c.name)
		switch {
		case c.wrong == "" && (err != nil || p != c.want):
			t.Errorf("%s on %s: %v, %v; want %v", c.name, c.device, p, err, c.want)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%s on %s: %v, want an error with %q", c.name, c.device, err, c.wrong)
		}
	}
	if n, _ := graph.GPUs(); n == 0 {
		if _, err := precisionFor("auto", "bf16"); !errors.Is(err, ErrNoDevice) {
			t.Errorf("bf16 without a GPU: %v", err)
		}
	}
}

// TestWorkers: a session takes no number of CPU threads whose scratch memory would outgrow the machine.
func TestWorkers(t *testing.T) {
	for _, n := range []int{-1, MaxWorkers + 1, 1000000} {
		if on, err := OpenMachine("cpu", "auto", Env{Workers: n}); err == nil || on != nil || !strings.Contains(err.Error(), "must lie in 0 to 1024") {
			t.Errorf("%d threads: %v", n, err)
		}
	}
	on, err := OpenMachine("cpu", "auto", Env{Workers: 3})
	if err != nil || on.Workers() != 3 {
		t.Fatalf("3 threads: %v", err)
	}
	if err := on.Close(); err != nil {
		t.Error(err)
	}
}
