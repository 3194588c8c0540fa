package main

import (
	"strings"
	"testing"
)

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
