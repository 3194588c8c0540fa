package report

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// brailleDots has the bits of a Braille pattern (U+2800 and on), of two columns and four rows.
var brailleDots = [4][2]rune{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}

// brailleColours has the palette's colours in a terminal. They are among its own sixteen, so that they suit its
// background.
var brailleColours = [colours]string{"36", "33", "32", "35", "93", "90"}

// Braille draws the plot with Braille patterns for a terminal of the given columns and rows: the values of y on the
// left, those of x in the last row. If a column holds more than one point, everything between the lowest and the
// highest is drawn. A value that is not finite is a ! at the top. With colour, lines have escape sequences and end in a
// reset.
func (p Plot) Braille(columns, rows int, colour bool) []string {
	xa, ya := p.axes()
	yt := ya.ticks(max(1, min(5, (rows-1)/2)), false)
	label := 0
	for _, t := range yt {
		label = max(label, len([]rune(t.label)))
	}
	w, h := columns-label-1, rows-1
	if w < 4 || h < 1 {
		return make([]string, max(0, rows))
	}
	c := canvas{w: w, h: h, cells: make([]cell, w*h)}
	some, free := false, 0
	for _, s := range p.Series {
		n := s.Colour
		if n < 1 {
			free++
			n = free
		}
		some = c.draw(s, xa, ya, (n-1)%colours, colour) || some
	}
	out := make([]string, 0, rows)
	at := map[int]string{}
	for _, t := range yt {
		if row := int((1 - t.at) * float64(h)); some && row >= 0 && row < h {
			at[row] = t.label
		}
	}
	for row := range h {
		out = append(out, strings.Repeat(" ", label-len([]rune(at[row])))+at[row]+" "+c.row(row, colour))
	}
	if !some {
		out[h/2] = strings.Repeat(" ", label+1) + "no values yet"[:min(w, 13)]
	}
	return append(out, strings.Repeat(" ", label+1)+p.below(xa, w, some))
}

// below returns the row with the values of x.
func (p Plot) below(xa axis, w int, some bool) string {
	row := []rune(strings.Repeat(" ", w))
	name := []rune(plain(p.XLabel))
	free := 0
	if some {
		for _, t := range xa.ticks(max(1, min(4, w/16)), p.wholeX()) {
			text := []rune(t.label)
			from := min(int(t.at*float64(w-1))-len(text)/2, w-len(text))
			if from = max(from, 0); from < free || from+len(text) > w {
				continue
			}
			copy(row[from:], text)
			free = from + len(text) + 1
		}
	}
	if len(name)+1 < w-free {
		copy(row[w-len(name):], name)
	}
	return strings.TrimRight(string(row), " ")
}

type cell struct {
	dots   rune
	colour string
	bad    bool
}

type canvas struct {
	w, h  int
	cells []cell
}

// set draws a point; x and y count from the top left.
func (c *canvas) set(x, y int, colour string) {
	if x < 0 || y < 0 || x >= 2*c.w || y >= 4*c.h {
		return
	}
	at := &c.cells[y/4*c.w+x/2]
	at.dots |= brailleDots[y%4][x%2]
	at.colour = colour
}

// draw draws a series and reports whether it has a point.
func (c *canvas) draw(s Series, xa, ya axis, n int, coloured bool) bool {
	if s.Style == Faint && !coloured {
		return false // the series would look the same as the line in front of it
	}
	colour := brailleColours[n]
	if s.Style == Faint {
		colour = "90"
	}
	x, y := s.points()
	at := envelope(y, 2*c.w)
	lastX, lastY, on, some := 0, 0, false, false
	for _, i := range at {
		if !finite(x[i]) {
			continue
		}
		px := int(math.Round(xa.place(x[i]) * float64(2*c.w-1)))
		if !ya.drawable(y[i]) {
			on = false
			if k := px / 2; k >= 0 && k < c.w {
				c.cells[k].bad = true
			}
			continue
		}
		py := int(math.Round((1 - ya.place(y[i])) * float64(4*c.h-1)))
		if on && s.Style != Points {
			c.line(lastX, lastY, px, py, colour)
		} else {
			c.set(px, py, colour)
			if s.Style == Points { // points are drawn large enough to be seen
				c.set(px^1, py, colour)
				c.set(px, py^1, colour)
				c.set(px^1, py^1, colour)
			}
		}
		lastX, lastY, on, some = px, py, true, true
	}
	return some
}

// line draws a line from one point to another.
func (c *canvas) line(x0, y0, x1, y1 int, colour string) {
	dx, dy := x1-x0, y1-y0
	n := max(abs(dx), abs(dy), 1)
	for i := range n + 1 {
		c.set(x0+int(math.Round(float64(dx*i)/float64(n))), y0+int(math.Round(float64(dy*i)/float64(n))), colour)
	}
}

func abs(n int) int { return max(n, -n) }

func (c *canvas) row(row int, coloured bool) string {
	var b strings.Builder
	now := ""
	for i := range c.w {
		at := c.cells[row*c.w+i]
		want, r := at.colour, ' '
		if at.dots != 0 {
			r = 0x2800 + at.dots
		}
		if at.bad && row == 0 {
			r, want = '!', "31"
		}
		if coloured && r != ' ' && want != now {
			fmt.Fprintf(&b, "\x1b[%sm", want)
			now = want
		}
		b.WriteRune(r)
	}
	text := strings.TrimRight(b.String(), " ")
	if now != "" {
		text += "\x1b[0m"
	}
	return text
}

// fills has the characters of a bar's parts without colour.
var fills = []string{"█", "▓", "▒", "░", "▞", "▚"}

// keyOf joins the entries of a bar's key. If they are wider than columns, it leaves out the smallest parts and counts
// them.
func keyOf(entries []string, parts []Part, columns int) string {
	kept := make([]bool, len(entries))
	for i := range kept {
		kept[i] = true
	}
	for out := 0; ; out++ {
		var words []string
		for i, e := range entries {
			if kept[i] {
				words = append(words, e)
			}
		}
		if out > 0 {
			words = append(words, fmt.Sprintf("and %d smaller", out))
		}
		key := strings.Join(words, "  ")
		if utf8.RuneCountInString(key) <= columns || out >= len(entries)-1 {
			return key
		}
		least := -1
		for i := range parts {
			if kept[i] && (least < 0 || parts[i].Bytes < parts[least].Bytes) {
				least = i
			}
		}
		kept[least] = false
	}
}

// Terminal draws the bar in one row of the given columns, and below it the names of its parts. A bar that fills less
// than a third of its limit shows its parts against their sum.
func (b Bar) Terminal(columns int, colour bool) (row, names string) {
	total := b.total()
	whole := max(total, b.Limit)
	if b.Limit/3 > total {
		whole = total
	}
	var line strings.Builder
	var entries []string
	drawn, sum := 0, int64(0)
	for i, p := range b.Parts {
		sum += max(0, p.Bytes)
		n := 0
		if whole > 0 {
			n = int(math.Round(float64(columns)*float64(sum)/float64(whole))) - drawn
		}
		drawn += n
		fill := fills[i%len(fills)]
		if colour {
			fmt.Fprintf(&line, "\x1b[%sm%s\x1b[0m", brailleColours[i%colours], strings.Repeat(fill, n))
		} else {
			line.WriteString(strings.Repeat(fill, n))
		}
		entries = append(entries, fmt.Sprintf("%s %s %s", fill, plain(p.Name), bytesText(p.Bytes)))
	}
	if free := columns - drawn; free > 0 && whole > total {
		line.WriteString(strings.Repeat("·", free))
	}
	return line.String(), keyOf(entries, b.Parts, columns)
}
