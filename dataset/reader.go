package dataset

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// maxRowBytes bounds the memory that one row can take.
const maxRowBytes = 16 << 20

// rowReader streams the rows of a JSONL file or of a JSON list, detected from the first byte.
type rowReader struct {
	in    *bufio.Reader
	row   []byte // buffer of the row at hand
	limit int
	line  int // of the next byte, from 1
	list  bool
	begun bool
	done  bool
}

// rawRow is one row's JSON, not yet parsed. data is valid until the next call.
type rawRow struct {
	line int
	data []byte
}

// rowError is about one row: reading continues behind it.
type rowError struct {
	line int
	err  error
}

func (e *rowError) Error() string { return e.err.Error() }
func (e *rowError) Unwrap() error { return e.err }

// fileError ends the reading at a line.
type fileError struct {
	line int
	text string
}

func (e *fileError) Error() string { return e.text }

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

func newRowReader(r io.Reader, limit int) *rowReader {
	return &rowReader{in: bufio.NewReaderSize(r, 64<<10), limit: limit, line: 1}
}

// begin skips a byte order mark and blanks and finds out which of the two forms the file has.
func (r *rowReader) begin() error {
	r.begun = true
	head, err := r.in.Peek(8)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for _, m := range magics {
		if bytes.HasPrefix(head, []byte(m.bytes)) {
			return &fileError{0, m.text}
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
			return &fileError{r.line, fmt.Sprintf("the file begins with %q: want JSONL (an object a line) or a JSON list of objects", rune(c))}
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

// next returns io.EOF behind the last row, a *rowError for a row that can be passed over, else a fatal error.
func (r *rowReader) next() (rawRow, error) {
	if r.done {
		return rawRow{}, io.EOF
	}
	if !r.begun {
		if err := r.begin(); err != nil {
			r.done = true
			return rawRow{}, err
		}
	}
	var row rawRow
	var err error
	if r.list {
		row, err = r.element()
	} else {
		row, err = r.oneLine()
	}
	var skip *rowError
	if err != nil && !errors.As(err, &skip) {
		r.done = true
	}
	return row, err
}

// oneLine reads the next line that is not blank.
func (r *rowReader) oneLine() (rawRow, error) {
	for {
		row := rawRow{line: r.line}
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
				return rawRow{}, err
			}
			if errors.Is(err, io.EOF) && size == 0 {
				return rawRow{}, io.EOF
			}
			break
		}
		r.line++
		row.data = bytes.TrimSpace(r.row)
		if size > r.limit+2 || len(row.data) > r.limit {
			return rawRow{}, r.tooLong(row.line)
		}
		if len(row.data) > 0 {
			return row, nil
		}
	}
}

func (r *rowReader) tooLong(line int) error {
	return &rowError{line, fmt.Errorf("the row is longer than %s", byteSize(r.limit))}
}

func byteSize(n int) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}

// element reads the next element of the list and the comma or bracket behind it.
func (r *rowReader) element() (rawRow, error) {
	c, err := r.nextToken()
	if errors.Is(err, io.EOF) {
		return rawRow{}, r.cutOff()
	}
	if err != nil {
		return rawRow{}, err
	}
	if c == ']' || c == ',' {
		return rawRow{}, &fileError{r.line, fmt.Sprintf("a row was expected, found %q", c)}
	}
	row := rawRow{line: r.line}
	r.in.UnreadByte()
	r.row = r.row[:0]
	size, depth, inString, escaped := 0, 0, false, false
scan:
	for {
		c, err := r.in.ReadByte()
		if errors.Is(err, io.EOF) {
			return rawRow{}, r.cutOff()
		}
		if err != nil {
			return rawRow{}, err
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
			return rawRow{}, err
		}
	}
	if size > r.limit {
		return rawRow{}, r.tooLong(row.line)
	}
	row.data = bytes.TrimSpace(r.row)
	return row, nil
}

// end checks that nothing but blanks follows the list; io.EOF if so.
func (r *rowReader) end() error {
	r.done = true
	c, err := r.nextToken()
	if err != nil {
		return err
	}
	return &fileError{r.line, fmt.Sprintf("found %q behind the end of the list", c)}
}

func (r *rowReader) cutOff() error {
	return &fileError{r.line, "the file ends inside its list: it is cut off"}
}

// nextToken is the next byte that is not blank.
func (r *rowReader) nextToken() (byte, error) {
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

// contextReader stops a long read when the run is interrupted.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
