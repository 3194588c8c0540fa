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

func newFolded(w io.Writer) *folded {
	f := &folded{to: w}
	if isTerminal(w) {
		inner := w
		if s, ok := w.(*sink); ok {
			inner = s.w
		}
		f.width = max(columns(inner), 40)
	}
	return f
}

// line prints one; without label and text it is empty.
func (f *folded) line(label, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if label == "" && text == "" {
		f.b.WriteByte('\n')
		return
	}
	at := labelWidth
	fmt.Fprintf(&f.b, "%-*s ", labelWidth-1, label)
	for i, word := range strings.Split(text, " ") {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case f.width > 0 && at+1+n > f.width:
			fmt.Fprintf(&f.b, "\n%*s", labelWidth, "")
			at = labelWidth
		default:
			f.b.WriteByte(' ')
			at++
		}
		f.b.WriteString(word)
		at += n
	}
	f.b.WriteByte('\n')
}

func (f *folded) flush() error {
	_, err := f.to.Write(f.b.Bytes())
	return err
}
