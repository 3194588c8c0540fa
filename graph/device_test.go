package graph_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// TestOpen: what each name opens, and what an error says of names and precisions that nothing here serves.
func TestOpen(t *testing.T) {
	n, reason := graph.GPUs()
	if (n == 0) == (reason == "") {
		t.Errorf("%d GPUs, reason %q", n, reason)
	}
	auto := "cpu"
	if n > 0 {
		auto = "cuda"
	}
	for name, want := range map[string]string{"cpu": "cpu", "cuda": "cuda", "": auto, "auto": auto} {
		if kind, err := graph.DeviceKind(name); kind != want || err != nil {
			t.Errorf("device %q is %q, %v; want %q", name, kind, err, want)
		}
	}
	on, err := graph.Open("cpu", graph.Options{Workers: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer on.Close() //nolint:errcheck // a CPU holds nothing
	if c := on.Capabilities(); on.Workers() != 3 || c != (graph.Capabilities{LogitRows: 256, Halves: true}) {
		t.Errorf("the CPU has %d workers and %+v", on.Workers(), c)
	}
	if _, err := graph.Open("tpu", graph.Options{}); !errors.Is(err, graph.ErrNoDevice) ||
		err.Error() != `device "tpu": no such device: use cpu, cuda or auto` {
		t.Errorf("a device that nobody knows: %v", err)
	}
	if _, err := graph.Open("cpu", graph.Options{Precision: kernel.PrecisionBF16}); !errors.Is(err,
		graph.ErrNoDevice) || !strings.Contains(err.Error(), "bf16") {
		t.Errorf("a precision that the CPU lacks: %v", err)
	}
	if _, err := graph.Open("cuda", graph.Options{GPU: n}); !errors.Is(err, graph.ErrNoDevice) {
		t.Errorf("GPU %d of %d: %v", n, n, err)
	}
	if h := graph.FindHardware(); len(h.GPUs) != n || h.NoGPU != reason {
		t.Errorf("%d GPUs (%s) in %+v", n, reason, h)
	}
}
