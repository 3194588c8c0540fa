package main

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestHelpNamesEveryCommandOnce: help lists every command, under one task.
func TestHelpNamesEveryCommandOnce(t *testing.T) {
	root := newRoot(&console{})
	var named []string
	for _, task := range commandTasks {
		named = append(named, task.commands...)
	}
	for _, cmd := range root.Commands() {
		n := 0
		for _, name := range named {
			if name == cmd.Name() {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s stands in %d tasks, want 1", cmd.Name(), n)
		}
	}
	for _, name := range named {
		if !slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == name }) {
			t.Errorf("%s is named and no command", name)
		}
	}
	text := usageText(root, 80)
	at := 0
	for _, task := range commandTasks {
		i := strings.Index(text, "\n"+task.title+":\n")
		if i < at {
			t.Errorf("%q is missing or out of order in\n%s", task.title, text)
		}
		at = i
	}
}

// TestHelpIsWrapped: no line of help is wider than it may be, unless one word is, and no word is lost.
func TestHelpIsWrapped(t *testing.T) {
	for _, width := range []int{60, 80, 120} {
		eachCommand(newRoot(&console{}), func(cmd *cobra.Command) {
			text := wrapProse(cmd.Long, width) + "\n" + usageText(cmd, width)
			for line := range strings.Lines(text) {
				line = strings.TrimRight(line, "\n")
				words := strings.Fields(strings.TrimSuffix(line, " \\"))
				if utf8.RuneCountInString(line) > width && len(words) > 1 && !alone(cmd, line, width) {
					t.Errorf("%s at %d: %q", cmd.CommandPath(), width, line)
				}
			}
			if got, want := strings.Fields(wrapProse(cmd.Long, width)), strings.Fields(cmd.Long); !slices.Equal(got,
				want) {
				t.Errorf("%s at %d: words of the description are lost", cmd.CommandPath(), width)
			}
		})
	}
}

// alone reports whether a line is too wide because of one word that stands alone behind its indentation, or is a flag's
// name and type.
func alone(cmd *cobra.Command, line string, width int) bool {
	trimmed := strings.TrimSpace(line)
	found := false
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		kind, _ := pflag.UnquoteUsage(f)
		found = found || strings.HasSuffix(trimmed, strings.TrimSpace("--"+f.Name+" "+kind))
	})
	return found || len(withValues(shellWords(strings.TrimSuffix(trimmed, " \\")))) == 1
}

func TestWrapProse(t *testing.T) {
	if got, want := wrapProse("Formats:\n  gguf  for other programs",
		14), "Formats:\n  gguf  for\n        other\n        programs"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := wrapProse("short\nlines\n\na longer line\nthan ten",
		10), "short\nlines\n\na longer\nline than\nten"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWrapCommand(t *testing.T) {
	const line = `  trainer chat --system "Answer in one sentence." --adapter runs/chat`
	want := "  trainer chat \\\n      --system \"Answer in one sentence.\" \\\n      --adapter runs/chat"
	if got := wrapCommand(line, 42); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := wrapCommand(line, 80); got != line {
		t.Errorf("a line that fits is changed: %q", got)
	}
}
