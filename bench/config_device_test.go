//go:build gpu

package bench

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/quant"
)

// TestGPURunConfig: a run on the device, with captured graphs and queued call by call in NVTX ranges: the same loss to
// the bit, every call costed, none far above the ceilings, and a timeline.
func TestGPURunConfig(t *testing.T) {
	gputest.Need(t)
	var losses []float64
	for _, asked := range []string{"", "1", "calls"} {
		t.Setenv(graph.RangesVariable, asked)
		s, env := stories(t)
		s.Device, env.Workers = "cuda", 0
		var trace Trace
		r, err := RunConfig(context.Background(), s, Measure{Warmup: 2, Steps: 4, Trace: func(x Trace) error { trace = x; return nil }}, env, "")
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, r.Loss)
		checkDevice(t, r)
		n := 0
		for _, l := range r.Ops {
			n += l.Calls
		}
		checkTrace(t, trace, n)
		if (r.Queued == 0) != (asked == "calls") {
			t.Errorf("%s=%s: %d nodes in the step's graphs", graph.RangesVariable, asked, r.Queued)
		}
	}
	if losses[0] != losses[1] || losses[0] != losses[2] {
		t.Errorf("losses without ranges, with ranges, call by call: %v", losses)
	}
}

// TestGPUOffloadTrace: copies to and from host memory have a track of their own, and their ceiling is that of such
// copies.
func TestGPUOffloadTrace(t *testing.T) {
	gputest.Need(t)
	t.Setenv(graph.RangesVariable, "")
	q := quant.Default()
	var trace Trace
	o := Options{Measure: Measure{Warmup: 2, Steps: 5, Trace: func(x Trace) error { trace = x; return nil }}, Shape: "smollm2-135m", Batch: 4, Length: 1024,
		Quantization: &q, Device: "cuda", Precision: "auto", Checkpointing: "offload"}
	o.LoRA.R, o.LoRA.Alpha, o.LoRA.TargetModules = 8, 16, []string{"q_proj", "v_proj"}
	_, env := stories(t)
	r, err := Run(context.Background(), o, env.Env)
	if err != nil {
		t.Fatal(err)
	}
	checkDevice(t, r)
	n := 0
	for _, l := range r.Ops {
		n += l.Calls
		t.Logf("%-24s %4d calls %8.3f ms %5.0f %%", l.Kernel, l.Calls, l.Ms, l.Percent)
	}
	checkTrace(t, trace, n)
	if !slices.ContainsFunc(trace.Events, func(e TraceEvent) bool { return e.Name == "thread_name" && e.Args["name"] == graph.StreamCopy }) {
		t.Error("no track of copies")
	}
	for _, name := range []string{"offload", "prefetch"} {
		if !slices.ContainsFunc(r.Ops, func(l ProfileLine) bool { return l.Kernel == name && l.Percent > 0 }) {
			t.Errorf("no %s in %+v", name, r.Ops)
		}
	}
}

// checkDevice holds a report to what any device that this runs on does.
func checkDevice(t *testing.T, r Report) {
	t.Helper()
	c := r.Ceilings
	if c.Copy < 100e9 || c.GEMM < 10e12 || c.Upload < 1e9 || c.Download < 1e9 {
		t.Errorf("ceilings %+v", c)
	}
	for _, l := range r.Ops {
		wait := l.Kernel == "offloaded" || l.Kernel == "prefetched"
		if l.Uncosted > 0 || l.Bytes == 0 && !wait || l.Ms > 1 && l.Percent > 130 {
			t.Errorf("%+v", l)
		}
	}
	uploaded := false
	for _, p := range r.Transfers {
		uploaded = uploaded || strings.HasPrefix(p.Name, "upload") && p.Bytes > 0
	}
	if !uploaded || r.Waited <= 0 || r.Covered <= 0 || r.By.Driver == "" {
		t.Errorf("parts %+v, waited %v, calls %v, made by %+v", r.Transfers, r.Waited, r.Covered, r.By)
	}
}
