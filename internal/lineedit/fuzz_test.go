package lineedit

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzKeys: whatever is typed on a terminal of whatever size, reading ends, a line is UTF-8 without control characters,
// and no escape sequence that was typed reaches the terminal.
func FuzzKeys(f *testing.F) {
	for _, s := range []string{"abc\r", "\x1b[A\x1b[B\x1b[C\x1b[D\r", "\x1b[200~a\x1b[31mb\x1b[201~\r",
		"\x1b]0;title\x07\r", "\xff\xfe\r",
		"a\u0301\x7f\r", "\U0001F468\u200d\U0001F469\x7f\r", "\x1b[999999999999999999999;9A\r", "\x1bOA\r",
		"\x1b[200~no end", "\u009b31m\r",
		"\u202e\r", "世界\x01", "12345678\x1b[200~\n\x1b[201~\x1b[D"} {
		f.Add([]byte(s), uint8(10), uint8(3))
		f.Add([]byte(s), uint8(1), uint8(1))
	}
	f.Fuzz(func(t *testing.T, keys []byte, width, height uint8) {
		if len(keys) > 2000 {
			return
		}
		var out bytes.Buffer
		e := &Editor{In: bytes.NewReader(keys), Out: &out, Size: func() (int, int) { return int(width), int(height) }}
		for range 50 {
			line, err := e.ReadLine("> ")
			if err != nil {
				break
			}
			control := func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 }
			if !utf8.ValidString(line) || strings.IndexFunc(line, control) >= 0 {
				t.Fatalf("line %q of %q", line, keys)
			}
		}
		for _, sequence := range []string{"\x1b]", "\x1b[31m", "\u009b"} {
			if strings.Contains(out.String(), sequence) {
				t.Fatalf("%q reaches the terminal: %q", sequence, out.String())
			}
		}
	})
}

// TestSmallTerminals presses keys on terminals of one to three rows and columns: nothing panics, and the cursor stays
// on the rows that the terminal has.
func TestSmallTerminals(t *testing.T) {
	lines := []string{"", "a", "ab", "abcdefgh", "世界", "a世", "a\n", "\n\n", "ab\ncd", "\t", "x\ty",
		"e\u0301e\u0301", "👨‍👩‍👧👨‍👩‍👧"}
	for width := 1; width <= 3; width++ {
		for height := 1; height <= 3; height++ {
			for _, prompt := range []string{"", ">", "> ", "世"} {
				for _, line := range lines {
					e := &Editor{Out: io.Discard, Size: func() (int, int) { return width, height }, before: line}
					for _, k := range []key{none, left, left, backspace, home, right, deleteKey, end, home, cutAfter} {
						e.press(k, "")
						if err := e.draw(prompt); err != nil {
							t.Fatal(err)
						}
						if e.row < 0 || e.row >= height {
							t.Errorf("%d columns, %d rows, %q, %q: the cursor is on row %d", width, height,
								prompt, line, e.row)
						}
					}
				}
			}
		}
	}
}

// TestOneRow: a terminal of one row shows the part of the line around the cursor.
func TestOneRow(t *testing.T) {
	s := newScreen(10, 1)
	e := &Editor{Out: s, Size: func() (int, int) { return 10, 1 }}
	for _, c := range []struct{ typed, want string }{
		{"1234567", "> 1234567"}, {"8", ""}, {"9", "9"}, {"\x01", "> 12345678"}, {"\x05", "9"}, {"\x7f", ""},
		{"\x7f", "> 1234567"},
	} {
		e.pending = append(e.pending, c.typed...)
		k, text, n := e.next()
		e.pending = e.pending[n:]
		e.press(k, text)
		if err := e.draw("> "); err != nil {
			t.Fatal(err)
		}
		if s.text() != c.want {
			t.Errorf("behind %q it shows %q, want %q", c.typed, s.text(), c.want)
		}
	}
}
