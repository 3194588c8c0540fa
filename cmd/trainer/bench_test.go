package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/bench"
)

// TestBenchConfig times a user's run: table, JSON, timeline, a comparison with itself made slower, and what is refused.
func TestBenchConfig(t *testing.T) {
	dir := t.TempDir()
	some := append([]string{"bench"}, small...)
	some = append(some, "--set", "dataset.max_length=160", "--warmup", "1", "--steps", "2", "--workers", "1")
	with := func(more ...string) []string { return append(append([]string(nil), some...), more...) }
	alone := func(more ...string) []string { return with(append([]string{"--steps-alone"}, more...)...) }
	code, out, errOut := inProcess(t, dir, with("--by-layer", "--trace", "step.json")...)
	if code != 0 {
		t.Fatal(code, errOut)
	}
	for _, want := range []string{"median ", "upload batch", "adapter and optimizer states to the host",
		"ceilings measured here: copy ", "model.layers.4, backward", "not covered "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	var trace struct{ TraceEvents []any }
	if data, err := os.ReadFile(filepath.Join(dir, "step.json")); err != nil || json.Unmarshal(data, &trace) != nil ||
		len(trace.TraceEvents) < 300 {
		t.Errorf("timeline: %v, %d events", err, len(trace.TraceEvents))
	}
	if _, err := os.Stat(filepath.Join(dir, "runs")); err == nil {
		t.Error("the run's output folder was made")
	}
	code, out, errOut = inProcess(t, dir, with("--json", "--by-type")...)
	var r bench.Report
	if err := json.Unmarshal([]byte(out), &r); code != 0 || err != nil || r.Config != "cpu_stories_quick" ||
		r.Work == "" || len(r.Times) != 2 {
		t.Fatalf("%d, %v, %+v, %s", code, err, r, errOut)
	}
	write := func(name string, change func(*bench.Report)) {
		x := r
		change(&x)
		data, err := json.Marshal(x)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("faster.json", func(x *bench.Report) { x.Median /= 1000; x.Times = []float64{x.Median} })
	write("slower.json", func(x *bench.Report) { x.Median *= 1000; x.Times = []float64{x.Median} })
	write("other.json", func(x *bench.Report) { x.Device = "NVIDIA H100" })
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{alone("--compare", "faster.json", "--fail-on-regression"), 1, "times as long as in faster.json"},
		{alone("--compare", "slower.json", "--fail-on-regression", "--json"), 0, `"verdict": "faster"`},
		{alone("--compare", "other.json"), 2, "device: cpu, was NVIDIA H100"},
		{alone("--compare", "other.json", "--compare-anyway"), 0, "different: device: cpu, was NVIDIA H100"},
		{alone("--compare", "nowhere.json"), 2, "nowhere.json"},
		{alone("--compare", "step.json"), 2, "no median_ms"},
		{[]string{"bench"}, 2, "name one"},
		{[]string{"bench", "--shape", "smollm2-135m", "x.yaml"}, 2, "not both"},
		{alone("--batch", "4"), 2, "--batch is of --shape"},
		{with("--steps", "0"), 2, "at least one step"},
		{with("--steps-alone", "--trace", "x"), 2, "leaves out the calls"},
		{alone("--fail-on-regression"), 2, "go with --compare"},
		{with("--trace", os.DevNull), 2, "--trace"},
		{[]string{"bench", "--config", "cpu_stories_quick", "--set", "base_model=./nowhere"}, 3, "nowhere"},
	} {
		code, out, errOut := inProcess(t, dir, c.args...)
		if code != c.code || !strings.Contains(out+errOut, c.want) {
			t.Errorf("%q: exit code %d, want %d and %q:\n%s%s", c.args, code, c.code, c.want, out, errOut)
		}
	}
}
