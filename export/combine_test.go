package export

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// TestCombined: several adapters change a model's weights by what PEFT's add_weighted_adapter gives for them.
func TestCombined(t *testing.T) {
	dir := func(name string) string { return golden.Path(t, "combined/"+name) }
	want := golden.Open(t, golden.Path(t, "combined/combined.safetensors"))
	base, err := weights.OpenDir(golden.StoriesDir(t))
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	for how, parts := range map[string][]WeightedAdapter{
		"linear": {{dir("one"), 0.7}, {dir("two"), 0.4}},
		"cat":    {{dir("one"), 0.7}, {dir("two"), -0.4}, {dir("three"), 1.5}},
	} {
		out := filepath.Join(t.TempDir(), "merged")
		report, err := Merge(context.Background(), MergeOptions{Model: golden.StoriesDir(t), Adapters: parts,
			Combination: how, Out: out, AllowLoss: true}, session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if report.Layers != 2 || len(report.Adapters) != len(parts) {
			t.Errorf("%s: %+v", how, report)
		}
		if report.Drift == nil || report.Drift.MeanKL > 1e-9 {
			t.Errorf("%s: the merged model is not what the adapters give beside the base: %+v", how, report.Drift)
		}
		merged, err := weights.OpenDir(out)
		if err != nil {
			t.Fatal(err)
		}
		compared := 0
		for _, name := range want.Names() {
			path, ok := strings.CutPrefix(name, how+".")
			if !ok {
				continue
			}
			compared++
			before, _ := base.Tensor(path + ".weight")
			after, _ := merged.Tensor(path + ".weight")
			x, y := make([]float64, before.Len()), make([]float64, before.Len())
			if weights.Float64s(before, x) != nil || weights.Float64s(after, y) != nil {
				t.Fatal("the weights can't be read")
			}
			most, largest := 0.0, 0.0
			for i, d := range want.Floats(name) {
				most, largest = math.Max(most, math.Abs(y[i]-x[i]-d)), math.Max(largest, math.Abs(d))
			}
			if !(most <= 3e-7*math.Max(1, largest)) || largest < 1e-3 {
				t.Errorf("%s: %s differs by %.3g from PEFT's update, whose largest is %.3g", how, path, most, largest)
			}
		}
		if compared != 2 {
			t.Errorf("%s: %d layers compared", how, compared)
		}
		merged.Close()
	}
}

// TestCombineRefuses: what has no meaning is an error that says what to do.
func TestCombineRefuses(t *testing.T) {
	dir := func(name string) string { return golden.Path(t, "combined/"+name) }
	for _, c := range []struct {
		how   string
		parts []WeightedAdapter
		want  string
	}{
		{"linear", []WeightedAdapter{{dir("one"), 1}, {dir("two"), -0.5}},
			"linear gives the root of it to A and to B alike, where the sign is lost; use cat"},
		{"linear", []WeightedAdapter{{dir("one"), 1}, {dir("three"), 1}}, "linear takes one rank; use cat"},
		{"cat", []WeightedAdapter{{dir("one"), 1}, {dir("two"), math.NaN()}},
			"is NaN; it must be a number other than 0"},
		{"cat", []WeightedAdapter{{dir("one"), 0}}, "is 0; it must be a number other than 0"},
		{"cat", []WeightedAdapter{{dir("one"), 1}, {golden.Path(t, "llama_like/qwen3.lora"), 1}},
			"is of another model"},
		{"ties", []WeightedAdapter{{dir("one"), 1}, {dir("two"), 1}}, `"ties" is not one of cat, linear`},
		{"cat", []WeightedAdapter{{golden.Path(t, "experts/gpt_oss_full.lora"), 1},
			{golden.Path(t, "experts/gpt_oss_full.lora"), 1}}, "for which PEFT has no combination"},
	} {
		_, err := Merge(context.Background(), MergeOptions{Model: golden.StoriesDir(t), Adapters: c.parts,
			Combination: c.how, Out: filepath.Join(t.TempDir(), "x")}, session.Env{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v: %v", c.how, c.parts, err)
		}
	}
}
