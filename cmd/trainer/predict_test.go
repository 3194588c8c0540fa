//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// predicted is a line of predict.
type predicted struct {
	Row       int
	Columns   map[string]json.RawMessage
	Label     string
	Scores    map[string]float64
	Embedding []float64
	Skipped   string
}

// predictedBy runs predict and decodes its lines.
func predictedBy(t *testing.T, dir string, args ...string) (lines []predicted, raw string) {
	t.Helper()
	code, raw, errOut := trainer(t, dir, nil, "", append([]string{"predict"}, args...)...)
	if code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, errOut)
	}
	for line := range strings.Lines(raw) {
		var one predicted
		if err := json.Unmarshal([]byte(line), &one); err != nil || one.Row != len(lines) {
			t.Fatalf("%s: %v", line, err)
		}
		lines = append(lines, one)
	}
	return lines, raw
}

// TestPredict: the probabilities of a file's rows have the loss of `trainer eval`, a merged folder gives the same
// labels, and a file that was cut off anywhere is continued to the same bytes.
func TestPredict(t *testing.T) {
	dir, texts, labels := headPlace(t)
	code, out, errOut := trainer(t, dir, nil, "", "eval", "class.yaml", "--adapter", "class", "--json")
	var report struct {
		Loss float64 `json:"eval_loss"`
	}
	if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil {
		t.Fatal(code, err, errOut)
	}
	lines, whole := predictedBy(t, dir, "--adapter", "class", "--data", "rows.jsonl", "--keep", "label,none")
	loss := 0.
	for i, line := range lines {
		loss -= math.Log(line.Scores[labels[i]]) / float64(len(texts))
		if string(line.Columns["label"]) != fmt.Sprintf("%q", labels[i]) || string(line.Columns["none"]) != "null" {
			t.Errorf("line %d has the columns %s", i, line.Columns)
		}
	}
	if len(lines) != len(texts) || !(math.Abs(loss-report.Loss) <= 1e-5) {
		t.Errorf("%d predictions have a loss of %v, eval has %v", len(lines), loss, report.Loss)
	}
	for _, size := range []int{0, 1, len(whole) / 3, len(whole) - 1, len(whole)} {
		path := filepath.Join(dir, "part.jsonl")
		if err := os.WriteFile(path, []byte(whole[:size]), 0o644); err != nil {
			t.Fatal(err)
		}
		args := []string{"predict", "--adapter", "class", "--data", "rows.jsonl", "--keep", "label,none", "--out",
			"part.jsonl", "--json"}
		if size == 1 { // no line that predict writes begins like this
			if code, _, errOut := trainer(t, dir, nil, "", args...); code != 2 ||
				!strings.Contains(errOut, "is there and is not a file of predictions that this program wrote") {
				t.Errorf("a file of one byte: %d %s", code, errOut)
			}
			continue
		}
		code, counts, errOut := trainer(t, dir, nil, "", args...)
		got, err := os.ReadFile(path)
		found := strings.Count(whole[:size], "\n")
		if code != 0 || err != nil || string(got) != whole {
			t.Errorf("cut off at byte %d: %d %s\n%s", size, code, errOut, got)
		}
		if want := fmt.Sprintf("\"found\": %d", found); found > 0 && !strings.Contains(counts, want) {
			t.Errorf("cut off at byte %d: %s, want %s", size, counts, want)
		}
	}
	if code, _, errOut := trainer(t, dir, nil, "", "predict", "--adapter", "class", "--data", "rows.jsonl", "--out",
		"part.jsonl"); code != 2 || !strings.Contains(errOut, "line 1 has other numbers or columns: name another "+
		"file") {
		t.Errorf("a file with other columns: %d %s", code, errOut)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "part.jsonl")); err != nil || string(got) != whole {
		t.Errorf("a refused file changed: %v", err)
	}
	if code, _, errOut := trainer(t, dir, nil, "", "merge", "--adapter", "class", "--out", "merged"); code != 0 {
		t.Fatal(errOut)
	}
	merged, _ := predictedBy(t, dir, "--model", "merged", "--text", texts[0], "--text", "")
	if merged[0].Label != lines[0].Label || !(math.Abs(merged[0].Scores["sad"]-lines[0].Scores["sad"]) <= 1e-4) ||
		merged[1].Skipped == "" {
		t.Errorf("the merged folder: %+v, want %+v", merged, lines[0])
	}
}

// TestPredictVectors: vectors have the length 1, of an embedding adapter and of a model that was not trained for them,
// and a text has the same bits whatever rows are computed with it.
func TestPredictVectors(t *testing.T) {
	dir, _, _ := headPlace(t)
	rows, err := os.ReadFile(filepath.Join(dir, "rows.jsonl"))
	if err == nil { // more rows than are computed together
		err = os.WriteFile(filepath.Join(dir, "many.jsonl"), bytes.Repeat(rows, 14), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	many, _ := predictedBy(t, dir, "--model", "embedded:stories260K", "--pooling", "last", "--data", "many.jsonl")
	for i, line := range many {
		if !slices.Equal(line.Embedding, many[i%40].Embedding) || i > 0 && i < 40 &&
			slices.Equal(line.Embedding, many[0].Embedding) {
			t.Fatalf("row %d of %d: %v, want %v", i, len(many), line.Embedding, many[i%40].Embedding)
		}
	}
	if len(many) != 560 {
		t.Errorf("%d lines of 560 rows", len(many))
	}
	for _, args := range [][]string{{"--adapter", "vector", "--data", "pairs.jsonl", "--fields", "text=positive"},
		{"--model", "embedded:stories260K", "--pooling", "mean", "--data", "rows.jsonl", "--max-length", "4"}} {
		lines, _ := predictedBy(t, dir, args...)
		for i, line := range lines {
			sum := 0.
			for _, x := range line.Embedding {
				sum += x * x
			}
			if len(line.Embedding) != 64 || !(math.Abs(sum-1) <= 1e-5) {
				t.Errorf("%v: vector %d has %d numbers and the squared length %v", args, i, len(line.Embedding), sum)
			}
		}
		if len(lines) != 40 {
			t.Errorf("%v: %d lines", args, len(lines))
		}
	}
}

// TestPredictRefusesCausalModels: a model that writes text is a wrong use of the command.
func TestPredictRefusesCausalModels(t *testing.T) {
	const want = "writes text: name an adapter whose task gives scores or vectors, or the pooling, mean or last"
	code, _, errOut := trainer(t, t.TempDir(), nil, "", "predict", "--model", "embedded:stories260K", "--text", "Once")
	if code != 2 || !strings.Contains(errOut, want) {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}
