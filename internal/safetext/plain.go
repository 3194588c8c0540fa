// Package safetext makes text from elsewhere (models, files, servers, trackers) fit for a terminal, a log and a report:
// Plain writes control characters out, Mask hides secrets, and Line does both and keeps the result to one short line.
package safetext

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// steers reports whether a character changes what a terminal shows beyond the character itself: control characters but
// line breaks and tabs, line separators of Unicode, and the characters that turn the direction of text.
func steers(r rune) bool {
	switch {
	case r < ' ':
		return r != '\n' && r != '\t'
	case r < 0x7f:
		return false
	case r < 0xa0:
		return true
	}
	return r == 0x2028 || r == 0x2029 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// Plain returns s with every character that steers a terminal written as an escape: \x1b for one of ASCII and for a
// byte that is no UTF-8, \u202e for the others, which is also how JSON writes them. Line breaks and tabs stay.
func Plain(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, steers) {
		return s
	}
	return string(appendPlain(make([]byte, 0, len(s)+16), s))
}

func appendPlain(b []byte, s string) []byte {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b = fmt.Appendf(b, `\x%02x`, s[i])
		case !steers(r):
			b = append(b, s[i:i+n]...)
		case r < 0x80:
			b = fmt.Appendf(b, `\x%02x`, r)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		i += n
	}
	return b
}

// Line returns Plain(Mask(s)) on one line of at most most characters, for a message that quotes text from elsewhere.
func Line(s string, most int) string {
	s = Plain(Mask(strings.Join(strings.Fields(s), " ")))
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most]) + "..."
	}
	return s
}

// Writer passes text on as Plain writes it. A character may come in two calls of Write: its first bytes are kept until
// then. It is safe for concurrent use.
type Writer struct {
	to   io.Writer
	edit func(string) string // what else is done to a text; nil = nothing

	mu   sync.Mutex
	kept []byte // the beginning of a character
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{to: w} }

// NewMaskingWriter returns a Writer that also masks secrets, as far as each lies in one call of Write: for messages.
func NewMaskingWriter(w io.Writer) *Writer { return &Writer{to: w, edit: Mask} }

// Unwrap is the writer behind: what the program itself draws goes there.
func (w *Writer) Unwrap() io.Writer { return w.to }

// Write passes p on. The number of bytes is that of p, or 0 with the error of the writer behind.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := string(w.kept) + string(p)
	w.kept = nil
	if end := unfinished(text); end < len(text) {
		w.kept = []byte(text[end:])
		text = text[:end]
	}
	if w.edit != nil {
		text = w.edit(text)
	}
	if text = Plain(text); text == "" {
		return len(p), nil
	}
	if _, err := io.WriteString(w.to, text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes the beginning of a character that did not come to its end.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.kept) == 0 {
		return nil
	}
	text := Plain(string(w.kept))
	w.kept = nil
	_, err := io.WriteString(w.to, text)
	return err
}

// unfinished is where the last character of a text begins if bytes of it are still missing, else the text's length.
func unfinished(text string) int {
	for i := len(text) - 1; i >= 0 && i >= len(text)-utf8.UTFMax; i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRuneInString(text[i:]) {
				return i
			}
			break
		}
	}
	return len(text)
}
