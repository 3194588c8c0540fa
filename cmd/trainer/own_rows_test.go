package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/infer"
)

// TestOwnRows: merge and export compare over the rows that the adapter's run held out, with the loss that eval measures
// on them, and say so where the data is gone or has changed.
func TestOwnRows(t *testing.T) {
	t.Parallel()
	dir := chatPlace(t)
	var rows strings.Builder
	for i := range 12 {
		fmt.Fprintf(&rows, `{"messages":[{"role":"user","content":"number %d"},{"role":"assistant","content":"The `+
			`cat number %d sat."}]}`+"\n", i, i*i)
	}
	put(t, dir, map[string]string{"talks.jsonl": rows.String()})
	run := func(args ...string) string {
		t.Helper()
		code, out, errOut := trainer(t, dir, nil, "", args...)
		if code != 0 {
			t.Fatalf("%v: %s", args, errOut)
		}
		return out
	}
	run("train", "run.yaml", "--set", "dataset.val_split=0.5", "--set", "training.max_steps=6")
	var want infer.EvalReport
	if err := json.Unmarshal([]byte(run("eval", "out/config.yaml", "--adapter", "out", "--json")), &want); err != nil {
		t.Fatal(err)
	}
	drift := func(args ...string) (*export.Drift, []string) {
		t.Helper()
		var r struct {
			Drift *export.Drift
			Notes []string
		}
		if err := json.Unmarshal([]byte(run(append(args, "--json")...)), &r); err != nil {
			t.Fatal(err)
		}
		return r.Drift, r.Notes
	}
	merge := func(more ...string) (*export.Drift, []string) {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(dir, "merged")); err != nil {
			t.Fatal(err)
		}
		return drift(append([]string{"merge", "--adapter", "out", "--out", "merged", "--dtype", "fp32"}, more...)...)
	}
	file := func(dtype string, more ...string) (*export.Drift, []string) {
		t.Helper()
		return drift(append([]string{"export", "--format", "gguf", "--adapter", "out", "--out", "m.gguf", "--overwrite",
			"--dtype", dtype}, more...)...)
	}
	merged, _ := merge()
	whole, _ := file("f32")
	rounded, _ := file("q8_0")
	for name, d := range map[string]*export.Drift{"merge": merged, "export f32": whole, "export q8_0": rounded} {
		exact := name != "export q8_0"
		if d == nil || d.Own == nil || d.Own.Rows != want.Rows || int64(d.Own.Tokens) != want.TrainedTokens ||
			math.Abs(d.Own.Loss-want.Loss) > 1e-5 {
			t.Fatalf("%s: %+v, eval says %+v", name, d.Own, want)
		}
		if o := d.Own; o.BaseLoss < o.Loss || exact != (math.Abs(o.MergedLoss-o.Loss) < 1e-5) || exact &&
			o.Agree != 1 || o.Data != "talks.jsonl, validation rows" {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if d, _ := merge("--own-rows", "2"); d.Own.Rows != 2 {
		t.Errorf("--own-rows 2 compares %d", d.Own.Rows)
	}
	for name, more := range map[string][]string{"--own-rows 0": {"--own-rows", "0"},
		"--check-text none": {"--check-text", "none"}} {
		if d, notes := merge(more...); d != nil && d.Own != nil || notes != nil ||
			(d == nil) != strings.HasSuffix(name, "none") {
			t.Errorf("%s: %+v, %q", name, d, notes)
		}
	}
	says := func(notes []string, want string) {
		t.Helper()
		if !slices.ContainsFunc(notes, func(n string) bool {
			return strings.HasPrefix(n, "the run's own rows are not compared: ") && strings.Contains(n, want)
		}) {
			t.Errorf("notes %q, want %s", notes, want)
		}
	}
	put(t, dir, map[string]string{"talks.jsonl": strings.Replace(rows.String(), "cat number 16", "dog number 16", 1) +
		rows.String()[:90]})
	_, notes := merge()
	says(notes, "talks.jsonl")
	put(t, dir, map[string]string{"talks.jsonl": strings.ReplaceAll(rows.String(), "cat", "dog")})
	_, notes = file("f16")
	says(notes, "the data has changed since the run")
	if err := os.Remove(filepath.Join(dir, "talks.jsonl")); err != nil {
		t.Fatal(err)
	}
	d, notes := merge()
	says(notes, "is not there any more")
	if d == nil || d.Own != nil || d.Tokens == 0 {
		t.Errorf("%+v", d)
	}
	if err := os.Remove(filepath.Join(dir, "out", "config.yaml")); err != nil {
		t.Fatal(err)
	}
	_, notes = merge()
	says(notes, "has no config.yaml that names the data it was trained on")
}
