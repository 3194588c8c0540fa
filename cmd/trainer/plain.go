package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/tierlora/tierlora/internal/safetext"
)

// plainText writes control characters out, all but line breaks and tabs: names of files may hold what steers a terminal.
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
