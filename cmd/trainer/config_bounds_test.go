package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

// TestManyUnknownKeys: a file of many thousand unknown keys is refused at once, with the first of them and how many there
// are, and so are keys that are given twice and values of a wrong kind.
func TestManyUnknownKeys(t *testing.T) {
	many := func(n int, line string) string {
		var b strings.Builder
		b.WriteString("base_model: embedded:stories260K\noutput_dir: r\ndataset: {path: embedded:gsm8k_300.jsonl, format: completion}\n")
		for i := range n {
			b.WriteString(strings.ReplaceAll(line, "N", fmt.Sprint(i)))
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"unknown": {many(80000, "k_N: 1\n"), 80000},
		"twice":   {many(80000, "seed: 1\n"), 79999},
		"few":     {many(3, "k_N: 1\n"), 3},
	} {
		began := time.Now()
		_, err := loadText("many.yaml", c.text)
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		text := err.Error()
		if took := time.Since(began); took > 20*time.Second { // it took 35 s; 0.3 s on a free machine
			t.Errorf("%s: %v", name, took)
		}
		if lines := strings.Count(text, "\n"); lines > mostProblems+2 || !strings.Contains(text, fmt.Sprintf("\n%d problems in ", c.want)) ||
			strings.Contains(text, "more problems are left out here") != (c.want > mostProblems) {
			t.Errorf("%s: %d lines, end %q", name, lines, text[max(0, len(text)-300):])
		}
	}
}

// loadText reads a configuration from a text.
func loadText(name, text string) (loaded, error) {
	c, problems := mergeConfig(name, []byte(text), nil, nil)
	if len(problems) == 0 {
		return c, nil
	}
	sortProblems(problems)
	return c, &invalid{name, problems, otherProgram(name, []byte(text))}
}

// TestFormRefusesFiles: the page's form says of tracking.metrics_file what a run would say, before it is started.
func TestFormRefusesFiles(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(dir, "precious.prom")
	if err := atomicfile.Write(precious, []byte("precious")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		precious:                        "is not a file of metrics that this program wrote",
		filepath.Join(dir, "x.sh"):      "must end in .prom",
		filepath.Join(dir, "new.prom"):  "",
		filepath.Join(dir, "precious/"): "must end in .prom",
	} {
		checked := checkedText(fmt.Appendf(nil, "base_model: embedded:stories260K\noutput_dir: r\ndataset: {path: embedded:gsm8k_300.jsonl, format: completion}\ntraining: {max_steps: 1, report_to: prometheus}\ntracking: {metrics_file: %q}\n", path))
		said := fmt.Sprint(checked.Problems)
		if want == "" && len(checked.Problems) > 0 || !strings.Contains(said, want) {
			t.Errorf("%s: %s, want %q", path, said, want)
		}
	}
}
