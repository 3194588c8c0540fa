// Package lineedit reads a line from a terminal that is in raw mode, with editing, history and pasted text. A character
// is what a reader sees as one: a letter with its marks, an ideograph of two columns, an emoji of several code points.
package lineedit

import (
	"bytes"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// Bounds of what is kept.
const (
	maxHistory = 100     // lines
	maxLine    = 4 << 20 // bytes; what comes beyond them is left out
)

// Editor reads lines. The zero value with In, Out and Size can be used.
type Editor struct {
	In   io.Reader
	Out  io.Writer
	Size func() (width, height int) // of the terminal, in columns and rows; 0 = unknown
	Bold bool                       // the prompt is

	pending       []byte // read and not taken yet
	pasting       bool
	before, after string // the cursor
	history       []string
	at            int    // in history; its length = the line that is written
	draft         string // that line, while others are looked at
	row           int    // of the cursor, below the first row that was drawn
}

// ReadLine lets a line be written behind a prompt, and gives it without its end. Lines of pasted text are one. io.EOF
// is Ctrl-D in an empty line, or the end of In.
func (e *Editor) ReadLine(prompt string) (string, error) {
	e.before, e.after, e.row, e.at = "", "", 0, len(e.history)
	if err := e.draw(prompt); err != nil {
		return "", err
	}
	buffer := make([]byte, 4096)
	for {
		for {
			k, text, n := e.next()
			if n == 0 {
				break
			}
			e.pending = e.pending[n:]
			if k == enter {
				return e.enter(prompt)
			}
			if k == ctrlD && e.before+e.after == "" {
				return "", io.EOF
			}
			e.press(k, text)
		}
		if err := e.draw(prompt); err != nil {
			return "", err
		}
		n, err := e.In.Read(buffer)
		e.pending = append(e.pending, buffer[:n]...)
		if n == 0 && err != nil {
			return "", err
		}
	}
}

// enter ends a line.
func (e *Editor) enter(prompt string) (string, error) {
	e.before, e.after = e.before+e.after, ""
	if err := e.draw(prompt); err != nil {
		return "", err
	}
	if _, err := io.WriteString(e.Out, "\r\n"); err != nil {
		return "", err
	}
	line := e.before
	if n := len(e.history); strings.TrimSpace(line) != "" && (n == 0 || e.history[n-1] != line) {
		e.history = append(e.history, line)
		if n == maxHistory {
			e.history = e.history[1:]
		}
	}
	return line, nil
}

// press does what a key means.
func (e *Editor) press(k key, text string) {
	switch k {
	case typed:
		if len(e.before)+len(e.after)+len(text) <= maxLine {
			e.before += text
		}
	case left, right:
		e.move(k == right, one)
	case wordLeft, wordRight:
		e.move(k == wordRight, word)
	case home:
		e.before, e.after = "", e.before+e.after
	case end:
		e.before, e.after = e.before+e.after, ""
	case backspace:
		e.before = e.before[:len(e.before)-one(e.before, false)]
	case deleteKey, ctrlD:
		e.after = e.after[one(e.after, true):]
	case wordBack:
		e.before = e.before[:len(e.before)-word(e.before, false)]
	case cutBefore:
		e.before = ""
	case cutAfter:
		e.after = ""
	case cutAll:
		e.before, e.after = "", ""
	case up, down:
		e.recall(k)
	case clear:
		_, _ = io.WriteString(e.Out, "\x1b[H\x1b[2J") // draw finds an error of Out
		e.row = 0
	}
}

// move moves the cursor by as much as there is in its way.
func (e *Editor) move(forward bool, length func(text string, forward bool) int) {
	if forward {
		n := length(e.after, true)
		e.before, e.after = e.before+e.after[:n], e.after[n:]
		return
	}
	n := len(e.before) - length(e.before, false)
	e.before, e.after = e.before[:n], e.before[n:]+e.after
}

// one is the length of the first character of a text, or of the last.
func one(text string, forward bool) int {
	if forward {
		first, _, _, _ := uniseg.FirstGraphemeClusterInString(text, -1)
		return len(first)
	}
	if strings.HasSuffix(text, "\n") {
		return 1
	}
	text = text[strings.LastIndexByte(text, '\n')+1:]
	last := ""
	for rest, state := text, -1; rest != ""; {
		last, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
	}
	return len(last)
}

// word is the length of the first word of a text, or of the last, and of what stands before, or behind, it.
func word(text string, forward bool) int {
	letter := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r) }
	if forward {
		rest := strings.TrimLeftFunc(text, func(r rune) bool { return !letter(r) })
		return len(text) - len(strings.TrimLeftFunc(rest, letter))
	}
	rest := strings.TrimRightFunc(text, func(r rune) bool { return !letter(r) })
	return len(text) - len(strings.TrimRightFunc(rest, letter))
}

// recall shows an earlier or a later line.
func (e *Editor) recall(k key) {
	to := e.at + 1
	if k == up {
		to = e.at - 1
	}
	if to < 0 || to > len(e.history) {
		return
	}
	if e.at == len(e.history) {
		e.draft = e.before + e.after
	}
	e.at, e.before, e.after = to, e.draft, ""
	if to < len(e.history) {
		e.before = e.history[to]
	}
}

// printable is pasted or typed text without what would move the cursor or be taken for a key.
func printable(text []byte) string {
	text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r != utf8.RuneError && !unicode.IsControl(r) {
			return r
		}
		return -1
	}, string(text))
}
