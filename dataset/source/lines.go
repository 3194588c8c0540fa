// Package source opens data files and gives their rows, each as the bytes of one JSON object, whatever the file holds.
package source

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxRowBytes bounds the memory that one row can take.
const MaxRowBytes = 16 << 20

// Reader streams the rows of a JSONL file or of a JSON list, detected from the first byte.
type Reader struct {
	in    *bufio.Reader
	row   []byte // buffer of the row at hand
	limit int
	line  int // of the next byte, from 1
	list  bool
	begun bool
	done  bool
}

// Row is one row's JSON, not yet parsed. Data is valid until the next call.
type Row struct {
	Line int // where it starts in the file, from 1
	Data []byte
}

// RowError is about one row: reading continues behind it.
type RowError struct {
	Line int
	Err  error
}

func (e *RowError) Error() string { return e.Err.Error() }
func (e *RowError) Unwrap() error { return e.Err }

// FileError ends the reading at a line.
type FileError struct {
	Line int // 0 = about the whole file
	Text string
}

func (e *FileError) Error() string { return e.Text }

// magics are beginnings of files that are often given by mistake.
var magics = []struct{ bytes, text string }{
	{"\x1f\x8b", "the file is gzip-compressed: unpack it first"},
	{"PK\x03\x04", "the file is a zip archive: unpack it first"},
	{"\x28\xb5\x2f\xfd", "the file is zstd-compressed: unpack it first"},
	{"PAR1", "the file is Parquet: convert it to JSONL first"},
	{"ARROW1", "the file is Arrow: convert it to JSONL first"},
	{"\xff\xfe", "the file is UTF-16: save it as UTF-8"},
	{"\xfe\xff", "the file is UTF-16: save it as UTF-8"},
}

// NewReader reads rows of at most limit bytes.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{in: bufio.NewReaderSize(r, 64<<10), limit: limit, line: 1}
}

// begin skips a byte order mark and blanks and finds out which of the two forms the file has.
func (r *Reader) begin() error {
	r.begun = true
	head, err := r.in.Peek(8)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for _, m := range magics {
		if bytes.HasPrefix(head, []byte(m.bytes)) {
			return &FileError{0, m.text}
		}
	}
	if bytes.HasPrefix(head, []byte("\xef\xbb\xbf")) {
		r.in.Discard(3)
	}
	c, err := r.nextToken()
	if err != nil {
		return err
	}
	if r.list = c == '['; !r.list {
		if c != '{' {
			return &FileError{r.line, fmt.Sprintf("the file begins with %q: want JSONL (an object a line) or a JSON list of objects", rune(c))}
		}
		return r.in.UnreadByte()
	}
	c, err = r.nextToken()
	switch {
	case errors.Is(err, io.EOF):
		return r.cutOff()
	case err != nil:
		return err
	case c == ']':
		return r.end()
	}
	return r.in.UnreadByte()
}

// Next returns io.EOF behind the last row, a *RowError for a row that can be passed over, else a fatal error.
func (r *Reader) Next() (Row, error) {
	if r.done {
		return Row{}, io.EOF
	}
	if !r.begun {
		if err := r.begin(); err != nil {
			r.done = true
			return Row{}, err
		}
	}
	var row Row
	var err error
	if r.list {
		row, err = r.element()
	} else {
		row, err = r.oneLine()
	}
	var skip *RowError
	if err != nil && !errors.As(err, &skip) {
		r.done = true
	}
	return row, err
}

// oneLine reads the next line that is not blank.
func (r *Reader) oneLine() (Row, error) {
	for {
		row := Row{Line: r.line}
		r.row = r.row[:0]
		size := 0
		for {
			part, err := r.in.ReadSlice('\n')
			size += len(part)
			if size <= r.limit+2 { // + line end
				r.row = append(r.row, part...)
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if err != nil && !errors.Is(err, io.EOF) {
				return Row{}, err
			}
			if errors.Is(err, io.EOF) && size == 0 {
				return Row{}, io.EOF
			}
			break
		}
		r.line++
		row.Data = bytes.TrimSpace(r.row)
		if size > r.limit+2 || len(row.Data) > r.limit {
			return Row{}, r.tooLong(row.Line)
		}
		if len(row.Data) > 0 {
			return row, nil
		}
	}
}

func (r *Reader) tooLong(line int) error {
	return &RowError{line, fmt.Errorf("the row is longer than %s", byteSize(r.limit))}
}

func byteSize(n int) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}

// element reads the next element of the list and the comma or bracket behind it.
func (r *Reader) element() (Row, error) {
	c, err := r.nextToken()
	if errors.Is(err, io.EOF) {
		return Row{}, r.cutOff()
	}
	if err != nil {
		return Row{}, err
	}
	if c == ']' || c == ',' {
		return Row{}, &FileError{r.line, fmt.Sprintf("a row was expected, found %q", c)}
	}
	row := Row{Line: r.line}
	r.in.UnreadByte()
	r.row = r.row[:0]
	size, depth, inString, escaped := 0, 0, false, false
scan:
	for {
		c, err := r.in.ReadByte()
		if errors.Is(err, io.EOF) {
			return Row{}, r.cutOff()
		}
		if err != nil {
			return Row{}, err
		}
		switch {
		case escaped:
			escaped = false
		case inString && c == '\\':
			escaped = true
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
		case depth == 0 && (c == ',' || c == ']'):
			r.in.UnreadByte()
			break scan
		case c == '}' || c == ']':
			depth--
		}
		if c == '\n' {
			r.line++
		}
		if size++; size <= r.limit {
			r.row = append(r.row, c)
		}
	}
	if c, _ := r.in.ReadByte(); c == ']' {
		if err := r.end(); !errors.Is(err, io.EOF) {
			return Row{}, err
		}
	}
	if size > r.limit {
		return Row{}, r.tooLong(row.Line)
	}
	row.Data = bytes.TrimSpace(r.row)
	return row, nil
}

// end checks that nothing but blanks follows the list; io.EOF if so.
func (r *Reader) end() error {
	r.done = true
	c, err := r.nextToken()
	if err != nil {
		return err
	}
	return &FileError{r.line, fmt.Sprintf("found %q behind the end of the list", c)}
}

func (r *Reader) cutOff() error {
	return &FileError{r.line, "the file ends inside its list: it is cut off"}
}

// nextToken is the next byte that is not blank.
func (r *Reader) nextToken() (byte, error) {
	for {
		c, err := r.in.ReadByte()
		if err != nil {
			return 0, err
		}
		if c == '\n' {
			r.line++
		}
		if !isSpace(c) {
			return c, nil
		}
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// Line is the line of the byte that is read next, from 1.
func (r *Reader) Line() int { return r.line }
