package lineedit

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"
)

// screen is a terminal of a few columns: what it shows, with the second column of a wide character left empty, and its
// cursor.
type screen struct {
	width, row, col int
	full            bool // a character was set in the last column, and the next begins a row
	cells           [][]string
}

func newScreen(width, height int) *screen {
	s := &screen{width: width, cells: make([][]string, height)}
	s.erase()
	return s
}

// columns are what a terminal gives a code point, of those that the tests write.
func columns(r rune) int {
	switch {
	case unicode.Is(unicode.Mn, r):
		return 0
	case r >= 0x1100:
		return 2
	}
	return 1
}

func (s *screen) erase() {
	for i := s.row; i < len(s.cells); i++ {
		from := 0
		if i == s.row {
			from = s.col
		}
		for len(s.cells[i]) < s.width {
			s.cells[i] = append(s.cells[i], " ")
		}
		for j := from; j < s.width; j++ {
			s.cells[i][j] = " "
		}
	}
}

func (s *screen) down() {
	if s.row++; s.row == len(s.cells) { // it scrolls
		s.row--
		copy(s.cells, s.cells[1:])
		s.cells[s.row] = strings.Split(strings.Repeat(" ", s.width), "")
	}
}

func (s *screen) Write(p []byte) (int, error) {
	for text := []rune(string(p)); len(text) > 0; {
		r := text[0]
		text = text[1:]
		switch w := columns(r); {
		case r == '\r':
			s.col, s.full = 0, false
		case r == '\n':
			s.full = false
			s.down()
		case r == 0x1b:
			n := 1
			for text[n] < 0x40 {
				n++
			}
			count, _ := strconv.Atoi(string(text[1:n]))
			switch text[n] {
			case 'A':
				s.row, s.full = max(0, s.row-count), false
			case 'J':
				s.erase()
			}
			text = text[n+1:]
		case w == 0:
			at := s.col - 1
			if s.full {
				at = s.width - 1
			}
			if at > 0 && s.cells[s.row][at] == "" {
				at--
			}
			if at >= 0 {
				s.cells[s.row][at] += string(r)
			}
		default:
			if s.full || s.col+w > s.width {
				s.col, s.full = 0, false
				s.down()
			}
			s.cells[s.row][s.col] = string(r)
			if w == 2 {
				s.cells[s.row][s.col+1] = ""
			}
			if s.col += w; s.col == s.width {
				s.col, s.full = s.width-1, true
			}
		}
	}
	return len(p), nil
}

func (s *screen) text() string {
	var rows []string
	for _, row := range s.cells {
		rows = append(rows, strings.TrimRight(strings.Join(row, ""), " "))
	}
	return strings.TrimRight(strings.Join(rows, "\n"), "\n")
}

var pieces = []string{"a", "b ", "世", "界。", "👍", "e\u0301", "x\u0300\u0301", "\x1b[D", "\x1b[C", "\x1b[D", "\x7f",
	"\x1b[3~", "\x01", "\x05", "\x1b[A", "\x1b[B",
	"\x1b[1;5D", "\x1bf", "\x17", "\x0b", "\x1b[200~世\r\nab\x1b[201~", "\x15"}

// TestScreen: after every key the screen shows prompt and line as a terminal shows them that is written to once, and
// the cursor stands behind what is before it; whatever the width.
func TestScreen(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := newScreen(7+r.IntN(12), 60)
		e := &Editor{Out: s, Size: func() (int, int) {
			return s.width, 60
		}, history: []string{"早い", "second\n世"}, Bold: r.IntN(2) == 0}
		e.at = len(e.history)
		if err := e.draw("> "); err != nil {
			t.Fatal(err)
		}
		var keys string
		for range 40 {
			piece := pieces[r.IntN(len(pieces))]
			keys += piece
			e.pending = append(e.pending, piece...)
			for {
				k, text, n := e.next()
				if n == 0 {
					break
				}
				e.pending = e.pending[n:]
				e.press(k, text)
			}
			if err := e.draw("> "); err != nil {
				t.Fatal(err)
			}
			whole, before := newScreen(s.width, 60), newScreen(s.width, 60)
			whole.Write([]byte(strings.ReplaceAll("> "+e.before+e.after, "\n", "\r\n")))
			before.Write([]byte(strings.ReplaceAll("> "+e.before, "\n", "\r\n")))
			if before.full {
				before.Write([]byte("\r\n"))
			}
			if s.text() != whole.text() || s.row != before.row || s.col != before.col {
				t.Fatalf("seed %d, %d columns: behind %q, text %q|%q\n%s\ncursor %d,%d, want\n%s\n%d,%d", seed, s.width,
					keys, e.before, e.after,
					s.text(), s.row, s.col, whole.text(), before.row, before.col)
			}
		}
	}
}

// TestLines: what keys write, read in any pieces.
func TestLines(t *testing.T) {
	for keys, want := range map[string]string{
		"你好世界\x1b[D\x1b[D\x7fX\r":                   "你X世界", // one character before the cursor, not a column
		"ae\u0301\x7fb\r":                           "ab",
		"👍🏽👨‍👩‍👧\x7f!\r":                            "👍🏽!",
		"한국\x1b[D\x1b[3~\r":                         "한",
		"one two 三四\x17\x17x\r":                     "one x",
		"one two\x1b[1;5D\x1b[1;5DX\x1b[1;5CY\r":    "XoneY two",
		"abc\x01\x0bx\r":                            "x",
		"abc\x03d\r":                                "d",
		"\x1b[200~a\r\nb\rc\x1b[201~\x7fd\r":        "a\nb\nd",
		"\x1b[200~x\x1b[200~\x01\x1b[2\x1b[201~y\r": "x[200~[2y",
		"a\x02b\x06c\x04\r":                         "bac",
		"a\x1b[99;99Xb\x1bOHc\r":                    "cab",
		"\xff\xfeok\r":                              "ok",
	} {
		for name, in := range map[string]io.Reader{"at once": strings.NewReader(keys),
			"byte by byte": iotest.OneByteReader(strings.NewReader(keys))} {
			e := &Editor{In: in, Out: io.Discard}
			if got, err := e.ReadLine("> "); got != want || err != nil {
				t.Errorf("%q, %s: %q, %v, want %q", keys, name, got, err, want)
			}
		}
	}
}

// TestHistory: earlier lines, and the one that is being written.
func TestHistory(t *testing.T) {
	e := &Editor{In: strings.NewReader(
		"早い\rtwo\rtwo\r\x1b[A\x1b[A!\rnew\x1b[A\x1b[A\x1b[A\x1b[A\x1b[B\x1b[B\x1b[B\x1b[B.\r\x04"), Out: io.Discard}
	for _, want := range []string{"早い", "two", "two", "早い!", "new."} {
		if got, err := e.ReadLine("> "); got != want || err != nil {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	if _, err := e.ReadLine("> "); !errors.Is(err, io.EOF) {
		t.Errorf("Ctrl-D: %v", err)
	}
	if _, err := e.ReadLine("> "); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
}

// TestHighLines: of a line that is higher than the terminal the rows down to the cursor are shown, and nothing above
// them is written over.
func TestHighLines(t *testing.T) {
	s := newScreen(10, 5)
	e := &Editor{In: nil, Out: s, Size: func() (int, int) { return 10, 5 }, before: strings.Repeat("世界", 30)}
	for _, press := range []key{none, home, end, left, backspace, home} {
		e.press(press, "")
		if err := e.draw("> "); err != nil {
			t.Fatal(err)
		}
		if rows := strings.Count(s.text(), "\n") + 1; rows != 5 {
			t.Errorf("%d rows are shown", rows)
		}
	}
	if !strings.HasPrefix(s.text(), "> 世界世界\n") || s.row != 0 || s.col != 2 {
		t.Errorf("%d,%d\n%s", s.row, s.col, s.text())
	}
	var out bytes.Buffer
	e.Out = &out
	if err := e.draw("> "); err != nil || out.Len() > 300 {
		t.Errorf("%d bytes, %v", out.Len(), err)
	}
}
