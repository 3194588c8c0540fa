package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestManyUnknownKeys: a file of many thousand unknown keys is refused at once, with the first of them and how many
// there are, and so are keys that are given twice and values of a wrong kind.
func TestManyUnknownKeys(t *testing.T) {
	many := func(n int, line string) string {
		var b strings.Builder
		b.WriteString("base_model: embedded:stories260K\noutput_dir: r\ndataset: {path: embedded:gsm8k_300.jsonl, " +
			"format: completion}\n")
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
		if lines := strings.Count(text, "\n"); lines > mostProblems+2 ||
			!strings.Contains(text, fmt.Sprintf("\n%d problems in ", c.want)) ||
			strings.Contains(text, "more problems are left out here") != (c.want > mostProblems) {
			t.Errorf("%s: %d lines, end %q", name, lines, text[max(0, len(text)-300):])
		}
	}
}

// loadText reads a configuration from a text.
func loadText(name, text string) (Loaded, error) {
	c, problems := Merge(name, []byte(text), nil, nil)
	if len(problems) == 0 {
		return c, nil
	}
	return c, &Invalid{name, problems, OtherProgram(name, []byte(text))}
}
