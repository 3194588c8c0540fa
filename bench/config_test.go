package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

func stories(t *testing.T) (train.Spec, train.Env) {
	s := train.DefaultSpec()
	s.BaseModel, s.Device, s.OutputDir = "embedded:stories260K", "cpu", filepath.Join(t.TempDir(), "run")
	s.Dataset.Path, s.Dataset.Format, s.Dataset.MaxLength = "embedded:gsm8k_300.jsonl", "completion", 160
	s.Dataset.Fields, s.Dataset.CacheDir = map[string]string{"prompt": "question", "completion": "answer"}, ""
	s.Training.BatchSize, s.Training.GradientAccumulationSteps, s.Training.MaxSteps = 2, 2, 50
	return s, train.Env{Env: session.Env{Model: configs.Model, Data: configs.Data, Workers: 1}}
}

// TestRunConfig times a run with accumulation: all calls are there, what they cost, their parts, and a timeline; the
// run's folder is left alone.
func TestRunConfig(t *testing.T) {
	s, env := stories(t)
	var trace Trace
	m := Measure{Warmup: 1, Steps: 3, Trace: func(x Trace) error { trace = x; return nil }}
	r, err := RunConfig(context.Background(), s, m, env, "a configuration")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.OutputDir); err == nil {
		t.Error("the run's folder was made")
	}
	if len(r.Times) != 3 || !slices.IsSorted(r.Times) || r.Median != r.Times[1] || r.Pipelined <= 0 || r.Tokens < 4 || r.Loss < 1 {
		t.Errorf("times %v, median %v, pipelined %v, tokens %d, loss %v", r.Times, r.Median, r.Pipelined, r.Tokens, r.Loss)
	}
	calls := r.Kernels["window"] + 2*(r.Kernels["begin"]+r.Kernels["micro"]+r.Kernels["sum"]) + r.Kernels["norm"] + r.Kernels["update"]
	for what, lines := range map[string][]ProfileLine{"by type": r.Profile, "by operation": r.Ops, "by layer": r.Layers} {
		n, sum := 0, 0.0
		for _, l := range lines {
			n, sum = n+l.Calls, sum+l.Ms
			if l.Uncosted > 0 || l.Bytes <= 0 || l.Least <= 0 || l.Fastest > l.Ms || l.Ms > l.Slowest {
				t.Errorf("%s: %+v", what, l)
			}
		}
		if n != calls || sum <= 0 {
			t.Errorf("%s: %d of %d calls, %v ms", what, n, calls, sum)
		}
	}
	for _, name := range []string{"model.layers.2, forward", "model.layers.2, backward", "update", "begin"} {
		if !slices.ContainsFunc(r.Layers, func(l ProfileLine) bool { return l.Kernel == name }) {
			t.Errorf("no layer %q in %+v", name, r.Layers)
		}
	}
	var names []string
	for _, p := range r.Transfers {
		names = append(names, p.Name)
		if p.Bytes != 0 || p.Fastest > p.Median || p.Median > p.Slowest {
			t.Errorf("part %+v: nothing crosses to a CPU", p)
		}
	}
	if len(names) != 7 || r.Waited <= 0 || r.Ceilings.Copy <= 0 || r.Ceilings.GEMM <= 0 {
		t.Errorf("parts %q, waited %v, ceilings %+v", names, r.Waited, r.Ceilings)
	}
	checkTrace(t, trace, calls)
}

// checkTrace holds a timeline to the Trace Event Format: fields, and slices of a track that lie inside one another or
// apart.
func checkTrace(t *testing.T, trace Trace, calls int) {
	t.Helper()
	data, err := trace.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Events []map[string]any `json:"traceEvents"`
		Unit   string           `json:"displayTimeUnit"`
	}
	if err := json.Unmarshal(data, &file); err != nil || file.Unit != "ms" {
		t.Fatalf("%v, unit %q", err, file.Unit)
	}
	type open struct{ from, to float64 }
	inside := map[float64][]open{}
	named, slices, operations := map[float64]bool{}, 0, 0
	last := map[float64]float64{}
	for i, e := range file.Events {
		for _, key := range []string{"ph", "name", "ts", "pid", "tid"} {
			if _, ok := e[key]; !ok {
				t.Fatalf("event %d has no %s: %v", i, key, e)
			}
		}
		track := e["tid"].(float64)
		if e["ph"] == "M" {
			if e["name"] == "thread_name" {
				named[track] = true
			}
			continue
		}
		from, long := e["ts"].(float64), e["dur"]
		if e["ph"] != "X" || long == nil || long.(float64) < 0 || from < last[track] || !named[track] {
			t.Fatalf("event %d: %v, the one before at %v", i, e, last[track])
		}
		slices++
		to := from + long.(float64)
		const rounding = 1e-6 // of a microsecond: what sums of float64 lose
		stack := inside[track]
		for len(stack) > 0 && stack[len(stack)-1].to <= from+rounding && !(long.(float64) == 0 && stack[len(stack)-1].to >= from-rounding) {
			stack = stack[:len(stack)-1]
		}
		if len(stack) > 0 && to > stack[len(stack)-1].to+rounding && from < stack[len(stack)-1].to-rounding {
			t.Errorf("event %d, %v to %v, crosses the end of the slice around it, %v", i, from, to, stack[len(stack)-1].to)
		}
		inside[track], last[track] = append(stack, open{from, to}), from
		if args, ok := e["args"].(map[string]any); ok && args["out"] != nil {
			operations++
		}
	}
	if operations != calls || slices <= calls {
		t.Errorf("%d operations of %d calls, %d slices", operations, calls, slices)
	}
}

// TestRunConfigWithoutWeights: a folder that holds config.json alone is timed on random weights, and the report says
// so.
func TestRunConfigWithoutWeights(t *testing.T) {
	s, env := stories(t)
	model, err := configs.Model("stories260K")
	if err != nil {
		t.Fatal(err)
	}
	s.BaseModel = t.TempDir()
	for _, name := range []string{"config.json", "tokenizer.json"} {
		data, err := fs.ReadFile(model, name)
		if err == nil {
			err = os.WriteFile(filepath.Join(s.BaseModel, name), data, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := RunConfig(context.Background(), s, Measure{Steps: 1, StepsAlone: true}, env, "")
	if err != nil || math.IsNaN(r.Loss) || r.Ceilings != nil || !strings.Contains(strings.Join(r.Notes, "\n"), "weights are random") {
		t.Errorf("%v, loss %v, notes %q", err, r.Loss, r.Notes)
	}
}

func TestReadReport(t *testing.T) {
	r := Report{Device: "cpu", Median: 2, Times: []float64{2}}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Read(bytes.NewReader(data)); err != nil || got.Median != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "[]", "{}", `{"median_ms": "x"}`, `{"device": "cpu"}`} {
		if _, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

func TestCompare(t *testing.T) {
	old := Report{Device: "H100", Work: "a", Tokens: 8, Median: 100, Times: []float64{98, 99, 100, 101, 102}, Ops: []ProfileLine{
		{Kernel: "nf4", Ms: 50, Fastest: 49, Slowest: 51}, {Kernel: "rope", Ms: 20, Fastest: 19, Slowest: 21},
		{Kernel: "zero", Ms: 0.1, Fastest: 0.1, Slowest: 0.1}, {Kernel: "gone", Ms: 3, Fastest: 3, Slowest: 3}}}
	now := old
	now.Median, now.Times = 104, []float64{102, 103, 104, 105, 106}
	now.Ops = []ProfileLine{{Kernel: "nf4", Ms: 55, Fastest: 54, Slowest: 56}, {Kernel: "rope", Ms: 20.5, Fastest: 19, Slowest: 30},
		{Kernel: "zero", Ms: 0.9, Fastest: 0.9, Slowest: 0.9}, {Kernel: "new", Ms: 3, Fastest: 3, Slowest: 3}}
	now.By.Driver = "580"
	c := Compare(old, now)
	want := map[string]string{"step": VerdictSlower, "nf4": VerdictSlower, "rope": VerdictSame, "zero": VerdictSmall, "new": VerdictNew, "gone": VerdictGone}
	for _, l := range c.Lines {
		if want[l.What] != l.Verdict {
			t.Errorf("%+v, want %s", l, want[l.What])
		}
	}
	if len(c.Lines) != len(want) || len(c.Differ) != 0 || len(c.Made) != 1 || !c.Slower() {
		t.Errorf("%+v", c)
	}
	if back := Compare(now, old); back.Lines[0].Verdict != VerdictFaster || back.Slower() {
		t.Errorf("back: %+v", back)
	}
	if same := Compare(old, old); same.Slower() || same.Lines[0].Verdict != VerdictSame {
		t.Errorf("with itself: %+v", same)
	}
	now.Device, now.Work = "H200", "b"
	if c = Compare(old, now); len(c.Differ) != 2 || !strings.Contains(c.Differ[1], "H200, was H100") {
		t.Errorf("differ %q", c.Differ)
	}
}

// TestRunConfigShared: ranks that share rows are timed together; their tokens are counted once, and the exchanges are
// calls.
func TestRunConfigShared(t *testing.T) {
	s, env := stories(t)
	s.Devices = "4"
	apart, err := RunConfig(context.Background(), s, Measure{Warmup: 0, Steps: 2, StepsAlone: true}, env, "a configuration")
	if err != nil {
		t.Fatal(err)
	}
	s.Training.ContextParallelSize, s.Training.GradientAccumulationSteps = 2, 4 // the same rows a step
	r, err := RunConfig(context.Background(), s, Measure{Warmup: 0, Steps: 2}, env, "a configuration")
	if err != nil {
		t.Fatal(err)
	}
	if r.Ranks != 4 || r.Tokens != apart.Tokens || math.Abs(r.Loss-apart.Loss) > 1e-5*apart.Loss {
		t.Errorf("%d ranks, %d tokens a step, loss %v; want 4, %d, %v", r.Ranks, r.Tokens, r.Loss, apart.Tokens, apart.Loss)
	}
	if !slices.ContainsFunc(r.Ops, func(l ProfileLine) bool { return l.Kernel == "alltoall" && l.Calls == 4*4*5 }) {
		t.Errorf("no exchanges in %+v", r.Ops)
	}
}
