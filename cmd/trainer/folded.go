package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
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
