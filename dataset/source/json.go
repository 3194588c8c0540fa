package source

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/tierlora/tierlora/internal/jsonerr"
)

// jsonRows streams the rows of a JSONL file or of a JSON list, detected from the first byte. A JSONL file whose lines
// are lists begins like a JSON list; each of its lines is a row.
type jsonRows struct {
	in    *bufio.Reader
	row   []byte // buffer of the current row
	limit int
	line  int // line of the next byte, from 1
	list  bool
	begun bool
	done  bool
}

// begin skips white space and detects which of the two forms the file has.
func (r *jsonRows) begin() error {
	r.begun = true
	c, err := r.nextToken()
	if err != nil {
		return err
	}
	if c == '[' {
		if err := r.in.UnreadByte(); err != nil {
			return err
		}
		lists, err := r.listsInLines()
		if err != nil || lists {
			return err
		}
		if c, err = r.nextToken(); err != nil {
			return err
		}
	}
	if r.list = c == '['; !r.list {
		if c != '{' {
			return &FileError{r.line, fmt.Sprintf("the file begins with %q: want JSONL (an object a line) or a JSON "+
				"list of objects, or a name that ends in .csv, .tsv, .txt or .parquet", rune(c))}
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

// listsInLines reports whether the file's first line is a complete list and the next line has another list. The bytes
// that it reads, at most a row's length and one line, are read again.
func (r *jsonRows) listsInLines() (bool, error) {
	var line []byte
	for len(line) <= r.limit {
		part, err := r.in.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			r.in = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(line), r.in), bufferBytes)
			return false, err
		}
	}
	blanks := len(line)
	lists := false
	for lists = bytes.HasSuffix(line, []byte("\n")) && jsonerr.Check(line) == nil; lists; {
		c, err := r.in.ReadByte()
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if lists = err == nil && len(line)-blanks < bufferBytes; err != nil {
			break
		}
		if line = append(line, c); !isSpace(c) {
			lists = c == '['
			break
		}
	}
	r.in = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(line), r.in), bufferBytes)
	return lists, nil
}

func (r *jsonRows) next() (Row, error) {
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
func (r *jsonRows) oneLine() (Row, error) {
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
				if tooLongToPass(size, r.limit) {
					return Row{}, endless(row.Line, r.limit)
				}
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
			return Row{}, tooLong(row.Line, r.limit)
		}
		if len(row.Data) > 0 {
			return row, nil
		}
	}
}

// element reads the next element of the list and the comma or bracket after it.
func (r *jsonRows) element() (Row, error) {
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
		} else if tooLongToPass(size, r.limit) {
			return Row{}, endless(row.Line, r.limit)
		}
	}
	if c, _ := r.in.ReadByte(); c == ']' {
		if err := r.end(); !errors.Is(err, io.EOF) {
			return Row{}, err
		}
	}
	if size > r.limit {
		return Row{}, tooLong(row.Line, r.limit)
	}
	row.Data = bytes.TrimSpace(r.row)
	return row, nil
}

// end checks that only white space follows the list; then it returns io.EOF.
func (r *jsonRows) end() error {
	r.done = true
	c, err := r.nextToken()
	if err != nil {
		return err
	}
	return &FileError{r.line, fmt.Sprintf("found %q behind the end of the list", c)}
}

func (r *jsonRows) cutOff() error {
	return &FileError{r.line, "the file ends inside its list: it is cut off"}
}

// nextToken returns the next byte that is not white space.
func (r *jsonRows) nextToken() (byte, error) {
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

func (r *jsonRows) at() int { return r.line }
