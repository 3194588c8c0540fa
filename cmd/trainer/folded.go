package main

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
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

// wrapLines wraps each line of a text between words, so that it ends before column width; 0 wraps nothing. Lines after the
// first stand below the text behind a label ("memory   22 MiB"), else two columns further in.
func wrapLines(text string, width int) string {
	if width == 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if utf8.RuneCountInString(line) < width {
			continue
		}
		head := labelHead.FindString(line)
		indent := utf8.RuneCountInString(head)
		if strings.TrimSpace(head) == "" {
			indent += 2
		}
		lines[i] = head + fold(line[len(head):], width, indent)
	}
	return strings.Join(lines, "\n")
}

// labelHead is a line's indentation and, where two blanks or more follow it, its first word or two.
var labelHead = regexp.MustCompile(`^ *(?:\S+(?: \S+)? {2,})?`)
