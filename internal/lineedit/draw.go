package lineedit

import (
	"fmt"
	"io"
	"strings"

	"github.com/rivo/uniseg"
)

// tab is what a tab is drawn as.
const tab = "    "

// layout is where characters stand on the rows of a terminal.
type layout struct {
	width, col int
	rows       []int // where each row begins in the text
}

// put sets a text that begins at byte from of all.
func (l *layout) put(from int, text string) {
	for rest, state := text, -1; rest != ""; {
		var c string
		var w int
		c, rest, w, state = uniseg.FirstGraphemeClusterInString(rest, state)
		switch {
		case c == "\n":
			l.col, l.rows = 0, append(l.rows, from+len(c))
			from += len(c)
			continue
		case c == "\t":
			w = len(tab)
		}
		if l.col > 0 && l.col+w > l.width { // a character wider than the terminal has a row of its own
			l.col, l.rows = 0, append(l.rows, from)
		}
		l.col, from = l.col+w, from+len(c)
	}
}

// draw writes prompt and line anew over what was drawn before, and sets the cursor. The text before the cursor is
// written last, so that the cursor stands where the terminal has it, which may hold some characters wider than uniseg
// does. Of a line that is higher than the terminal the rows down to the cursor are shown.
func (e *Editor) draw(prompt string) error {
	width, height := 0, 0
	if e.Size != nil {
		width, height = e.Size()
	}
	if width <= 0 {
		width = 80
	}
	if height <= 0 {
		height = 24
	}
	all := prompt + e.before + e.after
	cursor := len(prompt) + len(e.before)
	row, full := rowsOf(all[:cursor], width)
	rows, _ := rowsOf(all, width)
	at := len(row) - 1
	if full { // the cursor stands at the beginning of the next row, which may have no text yet
		if at++; at == len(rows) {
			rows = append(rows, len(all))
		}
	}
	first := max(0, at-height+1)
	last := min(len(rows), first+height) - 1
	from, to := rows[first], len(all)
	if last+1 < len(rows) {
		to = rows[last+1]
		if all[to-1] == '\n' {
			to--
		}
	}
	var b strings.Builder
	b.WriteString(upwards(e.row) + "\x1b[J")
	b.WriteString(e.shown(all, from, to, len(prompt)))
	if cursor < len(all) {
		b.WriteString(upwards(last - first))
		b.WriteString(e.shown(all, min(from, cursor), cursor, len(prompt)))
	}
	if full && at > first {
		b.WriteString("\r\n")
	}
	e.row = at - first
	_, err := io.WriteString(e.Out, b.String())
	return err
}

// rowsOf are where the rows of a text begin; full means that it ends at the end of a row.
func rowsOf(text string, width int) (rows []int, full bool) {
	l := layout{width: width, rows: []int{0}}
	l.put(0, text)
	return l.rows, l.col >= width
}

// upwards moves the cursor to the beginning of a row that lies so many rows above.
func upwards(rows int) string {
	if rows == 0 {
		return "\r"
	}
	return fmt.Sprintf("\r\x1b[%dA", rows)
}

// shown is a part of what is drawn, as the terminal takes it.
func (e *Editor) shown(all string, from, to, prompt int) string {
	text := ""
	if from < prompt && e.Bold {
		cut := min(to, prompt)
		text, from = "\x1b[1m"+all[from:cut]+"\x1b[0m", cut
	}
	return text + strings.NewReplacer("\n", "\r\n", "\t", tab).Replace(all[from:to])
}
