package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNamesDoNotSteerTheTerminal: what names of files and folders hold is written, and is no command to the terminal.
func TestNamesDoNotSteerTheTerminal(t *testing.T) {
	dir := t.TempDir()
	name := "e\x1b[31mX\u009b1m.jsonl"
	if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat(`{"prompt":"a","completion":"b"}`+"\n", 9)),
		0o644); err != nil {
		t.Skip(err) // a file system without such names
	}
	text := `{base_model: "embedded:stories260K", dataset: {path: "e\x1b[31mX\u009b1m.jsonl"}, training: {max_steps: ` +
		`2}, output_dir: "r\x1b[2J\a"}`
	if err := os.WriteFile(filepath.Join(dir, "run.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"train", "run.yaml"}, {"train", "run.yaml"}, {"plan", "run.yaml"},
		{"validate", "run.yaml"}, {"report", "r\x1b[2J\a"}, {"verify", "r\x1b[2J\a"},
		{"import", "no\x1b[31m.yml"}, {"inspect", "data", "run.yaml"}, {"eval", "run.yaml"}} {
		_, out, errOut := trainer(t, dir, nil, "", args...)
		if i := strings.IndexAny(out+errOut, "\x1b\a\u009b"); i >= 0 {
			t.Errorf("%q: %q", args, (out + errOut)[max(0, i-60):min(len(out+errOut), i+40)])
		}
	}
}

// TestAmberWarnings: of a line or a report only the lines that warn are coloured.
func TestAmberWarnings(t *testing.T) {
	got := amberWarnings("data: x\n  warning: leak: 1 row\n  cache: a warning: none\nwarning: y", 0)
	want := "data: x\n\x1b[33m  warning: leak: 1 row\x1b[0m\n  cache: a warning: none\n\x1b[33mwarning: y\x1b[0m"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestFold: no line is longer than the terminal is wide, unless a word is; no word is lost.
func TestFold(t *testing.T) {
	const text = "one two three four five six seven eight nine"
	for width := range 60 {
		got := fold(text, width, 4)
		if strings.Join(strings.Fields(got), " ") != text {
			t.Fatalf("width %d: %q", width, got)
		}
		for i, line := range strings.Split(got, "\n") {
			switch {
			case width == 0 && i > 0:
				t.Errorf("width 0 folds: %q", got)
			case i == 0:
				line = "    " + line
				fallthrough
			default:
				if width > 0 && len(line) > max(width, 4+len("seven")) || !strings.HasPrefix(line, "    ") {
					t.Errorf("width %d: line %q", width, line)
				}
			}
		}
	}
}

// TestWrapLines: lines of a run fit the terminal, labels stand alone, and numbers in columns are not torn apart.
func TestWrapLines(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"memory   one two three four five", "memory   one two\n         three four\n         five"},
		{"warning: one two three four", "warning: one two\n  three four"},
		{"  dropped: one two three", "  dropped: one two\n    three"},
		{"newest checkpoint  runs/a", "newest checkpoint  runs/a"},
		{"short", "short"},
	} {
		if got := wrapLines(c.text, 20); got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	}
	if text := "a text that is long and wide"; wrapLines(text, 0) != text {
		t.Error("a width of 0 wraps")
	}
}
