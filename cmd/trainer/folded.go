package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// labelWidth is the first column of what doctor prints.
const labelWidth = 10

// folded prints lines with a label in front. On a terminal what is longer than it is wide goes on below the text;
// elsewhere a line stays one.
type folded struct {
	to    io.Writer
	width int // 0 = lines are not folded
	b     bytes.Buffer
}

func newFolded(w io.Writer) *folded { return &folded{to: w, width: foldWidth(w)} }

// foldWidth is where lines to w are folded; 0 = they are not, as it is no terminal.
func foldWidth(w io.Writer) int {
	if !isTerminal(w) {
		return 0
	}
	return max(columns(w), 40)
}

// line prints one; without label and text it is empty.
func (f *folded) line(label, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if label == "" && text == "" {
		f.b.WriteByte('\n')
		return
	}
	fmt.Fprintf(&f.b, "%-*s %s\n", labelWidth-1, label, fold(text, f.width, labelWidth))
}

func (f *folded) flush() error {
	_, err := f.to.Write(f.b.Bytes())
	return err
}

// fold breaks a text that begins in column indent at its spaces, so that it ends before column width; lines after the
// first are indented. A width of 0 breaks nothing.
func fold(text string, width, indent int) string {
	var b strings.Builder
	at := indent
	for i, word := range strings.Split(text, " ") {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case width > 0 && at+1+n > width:
			fmt.Fprintf(&b, "\n%*s", indent, "")
			at = indent
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}

// foldHelp fits the help of all commands into a terminal; elsewhere it stays as it is.
func foldHelp(root *cobra.Command, w io.Writer) {
	width := foldWidth(w)
	if width == 0 {
		return
	}
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "Flags.FlagUsages ", fmt.Sprintf("Flags.FlagUsagesWrapped %d ", width)))
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		cmd.Long = foldParagraphs(cmd.Long, width)
		help(cmd, args)
	})
}

// foldParagraphs joins and folds each paragraph that has a line longer than width, unless a line of it is indented.
func foldParagraphs(text string, width int) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		long := false
		for _, line := range strings.Split(p, "\n") {
			long = long || utf8.RuneCountInString(line) > width
		}
		if long && !strings.HasPrefix(p, " ") && !strings.Contains(p, "\n ") {
			paragraphs[i] = fold(strings.ReplaceAll(p, "\n", " "), width, 0)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}
