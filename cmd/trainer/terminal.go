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

// plainText writes control characters out, all but line breaks and tabs: names of files may hold what steers a
// terminal.
func plainText(s string) string { return safetext.Plain(s) }

// raw is the writer behind the one that writes control characters out: the program's own colours and pictures go there,
// and text from elsewhere in them through plainText.
func raw(w io.Writer) io.Writer {
	if safe, ok := w.(*safetext.Writer); ok {
		return safe.Unwrap()
	}
	return w
}

// coloured is raw(w) where colours may be written, else w.
func coloured(w io.Writer) io.Writer {
	if mayColour(w) {
		return raw(w)
	}
	return w
}

// behind is the file, or what else, that a console's writer writes to at last.
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

// sayLine writes a line for a person, on a terminal wrapped at its width and with warnings in amber.
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

// amberWarnings wraps lines at a width, 0 = none, and colours those that begin with a warning.
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

// wrapLines wraps each line of a text between words, so that it ends before column width; 0 wraps nothing. Lines after
// the first stand below the text behind a label ("memory 22 MiB"), else two columns further in.
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

// isTerminal reports whether a person watches the writer.
func isTerminal(w io.Writer) bool {
	f, ok := behind(w).(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// mayColour reports whether escape sequences may be written: to a terminal, and not against https://no-color.org.
func mayColour(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// columns is a terminal's width, 80 where it does not say.
func columns(w io.Writer) int {
	if f, ok := behind(w).(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 80
}
