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
