package infer

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

func dataFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func groupOptions(model string) EvalOptions {
	o := EvalOptions{Options: session.Options{Model: model, Device: "cpu"}, Data: dataset.Default(), BatchSize: 2}
	o.Data.MaxLength, o.Data.CacheDir = 128, ""
	return o
}

// TestLossByGroup: a group's loss is that of a data set with its rows alone, by source and by field.
func TestLossByGroup(t *testing.T) {
	a := `{"text":"Once upon a time there was a cat.","meta":{"kind":"cat"}}` + "\n" +
		`{"text":"The cat sat on a mat and slept.","meta":{"kind":"cat"}}` + "\n"
	b := `{"text":"A dog ran in the park.","meta":{"kind":"dog"}}` + "\n"
	first, second := dataFile(t, "a.jsonl", a), dataFile(t, "b.jsonl", b)
	alone := func(path string) EvalReport {
		o := groupOptions(golden.StoriesDir(t))
		o.Data.Path = path
		r, err := Evaluate(context.Background(), o, session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	cat, dog := alone(first), alone(second)
	if cat.Groups != nil || cat.StdErr == 0 || dog.StdErr != 0 {
		t.Errorf("one source: groups %v, standard errors %v and %v", cat.Groups, cat.StdErr, dog.StdErr)
	}
	for _, by := range []string{"", "meta.kind"} {
		o := groupOptions(golden.StoriesDir(t))
		o.By = by
		o.Data.Sources = []dataset.Source{{Path: first, Weight: 1}, {Path: second, Weight: 2}}
		r, err := Evaluate(context.Background(), o, session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Groups) != 2 {
			t.Fatalf("by %q: %+v", by, r.Groups)
		}
		x, y := r.Groups[0], r.Groups[1]
		if by != "" && (x.Name != "cat" || y.Name != "dog") || by == "" && (x.Name != first || y.Name != second ||
			r.By != BySource) {
			t.Errorf("by %q: groups %q and %q", by, x.Name, y.Name)
		}
		if x.Rows != 2 || y.Rows != 2 || x.TrainedTokens != cat.TrainedTokens ||
			y.TrainedTokens != 2*dog.TrainedTokens {
			t.Errorf("by %q: %+v", by, r.Groups)
		}
		golden.Near(t, "loss of the first group", x.Loss, cat.Loss, 1e-6)
		golden.Near(t, "loss of the second group", y.Loss, dog.Loss, 1e-6)
		golden.Near(t, "sum of the groups", x.NLL+y.NLL, r.NLL, 1e-9)
		golden.Near(t, "standard error", x.StdErr, cat.StdErr, 1e-6)
	}
}

func TestLossByGroupRefuses(t *testing.T) {
	path := dataFile(t, "a.jsonl", `{"text":"A cat.","kind":"cat"}`+"\n"+`{"text":"A dog ran in the park."}`+"\n")
	o := groupOptions(golden.StoriesDir(t))
	o.Data.Path, o.By = path, "kind"
	_, err := Evaluate(context.Background(), o, session.Env{})
	if want := `evaluate by field "kind": ` + path + `:2: the row has no field "kind", it has text`; err == nil ||
		err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestStandardError: the ratio estimator's error by its definition.
func TestStandardError(t *testing.T) {
	rows := []RowLoss{{NLL: 3, Trained: 2}, {NLL: 10, Trained: 5}, {NLL: 1, Trained: 3}}
	var sum tally
	for _, r := range rows {
		sum.add(r)
	}
	mean, residual := 14.0/10, 0.0
	for _, r := range rows {
		d := r.NLL - mean*float64(r.Trained)
		residual += d * d
	}
	golden.Near(t, "standard error", sum.stdErr(), math.Sqrt(3.0/2*residual)/10, 1e-12)
}

// TestSmolLM2LossByGroupAsTransformers: the whole command's way, from a file to a table, gives transformers' sums.
func TestSmolLM2LossByGroupAsTransformers(t *testing.T) {
	dir := golden.SmolLM2(t)
	want := smolLM2Evaluation(t)
	var lines strings.Builder
	nll, trained := map[string]float64{}, map[string]int64{}
	sum, tokens := 0.0, 0
	o := groupOptions(dir)
	for i, r := range want.Rows[:10] {
		sum, tokens = sum+r.NLL, tokens+r.Trained
		labels := append([]int32(nil), r.IDs...)
		for k := range r.Prompt {
			labels[k] = dataset.Ignore
		}
		kind := []string{"even", "odd"}[i%2]
		line, err := json.Marshal(map[string]any{"input_ids": r.IDs, "labels": labels, "kind": kind})
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
		nll[kind], trained[kind] = nll[kind]+r.NLL, trained[kind]+int64(r.Trained)
		o.Data.MaxLength = max(o.Data.MaxLength, len(r.IDs))
	}
	o.Data.Path, o.By, o.BatchSize = dataFile(t, "rows.jsonl", lines.String()), "kind", 1
	r, err := Evaluate(context.Background(), o, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	mean := sum / float64(tokens)
	golden.Near(t, "mean NLL", r.Loss, mean, 1e-3)
	for _, g := range r.Groups {
		if g.TrainedTokens != trained[g.Name] {
			t.Errorf("%s: %d trained tokens, transformers %d", g.Name, g.TrainedTokens, trained[g.Name])
		}
		golden.Near(t, g.Name, g.Loss, nll[g.Name]/float64(trained[g.Name]), 1e-3)
		t.Logf("%s: %d tokens, loss %.6f, transformers %.6f", g.Name, g.TrainedTokens, g.Loss,
			nll[g.Name]/float64(trained[g.Name]))
	}
	t.Logf("all: loss %.6f, transformers %.6f, standard error %.4f", r.Loss, mean, r.StdErr)
}
