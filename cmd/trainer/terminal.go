package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/tierlora/tierlora/internal/safetext"
)

// plainText escapes control characters, except line breaks and tabs: a file name may contain escape sequences.
func plainText(s string) string { return safetext.Plain(s) }

// raw returns the writer below the one that escapes control characters. The program's own colours and plots go there;
// other text must pass through plainText first.
func raw(w io.Writer) io.Writer {
	if safe, ok := w.(*safetext.Writer); ok {
		return safe.Unwrap()
	}
	return w
}

// coloured returns raw(w) if colours may be written, else w.
func coloured(w io.Writer) io.Writer {
	if mayColour(w) {
		return raw(w)
	}
	return w
}

// behind returns the file or other writer to which a console's writer finally writes.
func behind(w io.Writer) io.Writer {
	for {
		switch of := w.(type) {
		case *safetext.Writer:
			w = of.Unwrap()
		case *sink:
			w = of.w
		case *outlet:
			w = of.w
		default:
			return w
		}
	}
}

// sayLine writes a line for a person. On a terminal it is wrapped at the terminal's width, and warnings are amber.
func sayLine(w io.Writer, line string) {
	line = plainText(line)
	if strings.Contains(line, "warning: ") && mayColour(w) {
		line = safetext.Mask(line)
		w = raw(w)
		fmt.Fprintln(w, amberWarnings(line, foldWidth(w)))
		return
	}
	fmt.Fprintln(w, wrapLines(line, foldWidth(w)))
}

// amberWarnings wraps lines at a width, 0 = not at all, and colours lines that begin with a warning.
func amberWarnings(text string, width int) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = wrapLines(line, width)
		if strings.HasPrefix(strings.TrimLeft(line, " "), "warning: ") {
			lines[i] = "\x1b[33m" + lines[i] + "\x1b[0m"
		}
	}
	return strings.Join(lines, "\n")
}

// labelWidth is the column at which doctor's text begins.
const labelWidth = 10

// folded prints lines with a label in front. On a terminal a long line is wrapped and continues below its text;
// elsewhere it stays one line.
type folded struct {
	to    io.Writer
	width int // 0 = lines are not wrapped
	b     bytes.Buffer
}

func newFolded(w io.Writer) *folded { return &folded{to: w, width: foldWidth(w)} }

// foldWidth returns the width at which lines to w are wrapped, or 0 if w is not a terminal.
func foldWidth(w io.Writer) int {
	if !isTerminal(w) {
		return 0
	}
	return max(columns(w), 40)
}

// line prints one line; without label and text it is empty.
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

// fold wraps a text that begins in column indent at its spaces, so that it ends before column width. Continuation lines
// are indented. A width of 0 wraps nothing.
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

// wrapLines wraps each line of a text between words so that it ends before column width; 0 wraps nothing. Continuation
// lines begin below the text after a label ("memory 22 MiB"), else two columns further in.
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

// labelHead matches a line's indentation and, if two or more blanks follow, its first word or two.
var labelHead = regexp.MustCompile(`^ *(?:\S+(?: \S+)? {2,})?`)

// isTerminal reports whether the writer is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := behind(w).(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// mayColour reports whether escape sequences may be written: w is a terminal and NO_COLOR is not set
// (https://no-color.org).
func mayColour(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// columns returns a terminal's width, or 80 if it does not report one.
func columns(w io.Writer) int {
	if f, ok := behind(w).(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 80
}
