package source

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/tierlora/tierlora/internal/words"
)

// maxColumns bounds a header.
const maxColumns = 1024

// maxShown is the most bytes of a foreign text that an error repeats.
const maxShown = 40

// csvRows reads CSV or TSV (RFC 4180): a header, then rows whose cells become strings under the header's names. A
// quoted cell may contain the delimiter, line ends and doubled quotes; elsewhere a quote is an ordinary character.
// Blank lines are skipped.
type csvRows struct {
	in     *bufio.Reader
	comma  byte
	limit  int
	line   int // line of the next byte, from 1
	header []string
	keys   [][]byte // keys of the header as JSON
	cells  []int    // end of each cell of the current row in text
	text   []byte
	data   []byte
}

func newCSV(in *bufio.Reader, comma byte, o Options) *csvRows {
	return &csvRows{in: in, comma: comma, limit: o.Limit, line: 1}
}

func (c *csvRows) at() int { return c.line }

func (c *csvRows) next() (Row, error) {
	if c.header == nil {
		if err := c.readHeader(); err != nil {
			return Row{}, err
		}
	}
	line, err := c.record()
	if err != nil {
		return Row{}, err
	}
	if len(c.cells) != len(c.header) {
		return Row{}, &RowError{line,
			fmt.Errorf("the row has %s, the header has %d", words.Counted(len(c.cells), "cell"), len(c.header))}
	}
	c.data = append(c.data[:0], '{')
	from := 0
	for i, to := range c.cells {
		cell := c.text[from:to]
		from = to
		if err := plainText(cell); err != nil {
			return Row{}, &RowError{line, fmt.Errorf("column %q %w", words.Clip(c.header[i], maxShown), err)}
		}
		if i > 0 {
			c.data = append(c.data, ',')
		}
		c.data = append(append(c.data, c.keys[i]...), ':')
		c.data = appendString(c.data, cell)
	}
	c.data = append(c.data, '}')
	if len(c.data) > c.limit {
		return Row{}, tooLong(line, c.limit)
	}
	return Row{Line: line, Data: c.data}, nil
}

// readHeader reads the names of the columns. A column without a name gets the name that pandas gives it.
func (c *csvRows) readHeader() error {
	line, err := c.record()
	var row *RowError
	if errors.As(err, &row) {
		return &FileError{line, "the header: " + row.Error()}
	}
	if err != nil {
		return err
	}
	if len(c.cells) > maxColumns {
		return &FileError{line, fmt.Sprintf("the header has more than %d columns", maxColumns)}
	}
	named, from := false, 0
	var header []string
	for i, to := range c.cells {
		cell := c.text[from:to]
		from = to
		if err := plainText(cell); err != nil {
			return &FileError{line, fmt.Sprintf("the name of column %d %v", i+1, err)}
		}
		name := string(cell)
		if i := strings.IndexByte(name, '\r'); i >= 0 && !strings.HasPrefix(name[i:], "\r\n") {
			return &FileError{line, "the lines end with a carriage return alone, as on old Macs: save the file with " +
				"line feeds"}
		}
		if name == "" {
			name = fmt.Sprintf("Unnamed: %d", i)
		} else {
			named = true
		}
		for j, other := range header {
			if other == name {
				return &FileError{line, fmt.Sprintf("the header names columns %d and %d both %q", j+1, i+1,
					words.Clip(name, maxShown))}
			}
		}
		header = append(header, name)
		c.keys = append(c.keys, appendString(nil, []byte(name)))
	}
	if !named {
		return &FileError{line, "the header is empty: the first line must name the columns"}
	}
	if len(header) == 1 {
		for _, other := range []struct{ mark, name string }{{";", "a semicolon"}, {"\t", "a tab"}, {",", "a comma"}} {
			if strings.Contains(header[0], other.mark) {
				return &FileError{line, fmt.Sprintf("the columns seem to be parted by %s: want commas in .csv and "+
					"tabs in .tsv", other.name)}
			}
		}
	}
	c.header = header
	return nil
}

// record reads the cells of the next line that is not blank, including further lines of quoted cells.
func (c *csvRows) record() (line int, err error) {
	for {
		line = c.line
		blank, err := c.fields()
		if err != nil || !blank {
			return line, err
		}
	}
}

// fields reads one record into text and cells.
func (c *csvRows) fields() (blank bool, err error) {
	c.text, c.cells = c.text[:0], c.cells[:0]
	line, size, kept := c.line, 0, 0
	quoted, closed, begun, any := false, false, false, false
	add := func(b byte) {
		if kept++; kept <= c.limit {
			c.text = append(c.text, b)
		}
	}
	end := func() {
		if len(c.cells) <= maxColumns {
			c.cells = append(c.cells, len(c.text))
		}
		closed, begun = false, false
	}
	for {
		b, err := c.in.ReadByte()
		if errors.Is(err, io.EOF) {
			switch {
			case quoted:
				return false, &FileError{line, "a quote (\") is opened in this row and never closed"}
			case size == 0:
				return false, io.EOF
			}
			b = '\n'
		} else if err != nil {
			return false, err
		}
		if size++; tooLongToPass(size, c.limit) {
			return false, endless(line, c.limit)
		}
		switch {
		case quoted && b == '"':
			if next, _ := c.in.Peek(1); len(next) == 1 && next[0] == '"' {
				c.in.Discard(1)
				add('"')
			} else {
				quoted, closed = false, true
			}
		case quoted:
			if b == '\n' {
				c.line++
			}
			add(b)
		case b == '"' && !begun && !closed:
			quoted, begun, any = true, true, true
		case b == c.comma:
			end()
			any = true
		case b == '\r':
			if next, _ := c.in.Peek(1); len(next) == 1 && next[0] == '\n' {
				continue // the line ends with both characters
			}
			add(b)
			begun, any = true, true
		case b == '\n':
			c.line++
			if !any {
				return true, nil
			}
			end()
			if kept > c.limit {
				return false, tooLong(line, c.limit)
			}
			return false, nil
		default:
			add(b) // after a closing quote too: "a"b is ab, as pandas reads it
			begun, any = true, true
		}
	}
}

// plainText rejects bytes that no text file contains.
func plainText(s []byte) error {
	for i := 0; i < len(s); {
		if s[i] == 0 {
			return errors.New("holds a NUL byte: the file is binary, or UTF-16 without its mark")
		}
		if s[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRune(s[i:])
		if r == utf8.RuneError && n == 1 {
			return fmt.Errorf("is not UTF-8 (byte 0x%02x): save the file as UTF-8", s[i])
		}
		i += n
	}
	return nil
}

const hexDigits = "0123456789abcdef"

// appendString appends valid UTF-8 as a JSON string.
func appendString(out, s []byte) []byte {
	out = append(out, '"')
	plain := 0 // start of the bytes that are not appended yet
	for i, b := range s {
		if b >= 0x20 && b != '"' && b != '\\' {
			continue
		}
		out = append(out, s[plain:i]...)
		plain = i + 1
		switch b {
		case '"', '\\':
			out = append(out, '\\', b)
		case '\n':
			out = append(out, '\\', 'n')
		case '\r':
			out = append(out, '\\', 'r')
		case '\t':
			out = append(out, '\\', 't')
		default:
			out = append(out, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
		}
	}
	return append(append(out, s[plain:]...), '"')
}
