// Package source finds data files and reads their rows, each as the bytes of one JSON object, whatever the format of
// the file: JSON, JSONL, CSV, TSV, text, Parquet or Arrow; the first five also in gzip or zstd.
package source

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/regular"
)

// MaxRowBytes bounds the memory that one row can take.
const MaxRowBytes = 16 << 20

// passedOver is how many times the limit a row may exceed and still be read to its end, so that reading can continue
// after it.
const passedOver = 64

// Row is one row's JSON, not yet parsed. Data is valid until the next call.
type Row struct {
	Line int // line where the row starts, from 1; 0 in a format without lines
	Data []byte
}

// RowError is an error about one row; reading continues after it.
type RowError struct {
	Line int
	Err  error
}

func (e *RowError) Error() string { return e.Err.Error() }
func (e *RowError) Unwrap() error { return e.Err }

// FileError is an error at a line that ends the reading.
type FileError struct {
	Line int // 0 = about the whole file
	Text string
}

func (e *FileError) Error() string { return e.Text }

// Options say which rows of a file are read, and how.
type Options struct {
	Path   string      // its ending matters if the bytes do not identify the format
	TextBy string      // what makes a row of a text file; "" = TextLine
	Limit  int         // most bytes of a row; 0 = MaxRowBytes
	Rows   Span        // rows to return
	Leave  bool        // do not read what follows Rows
	At     io.ReaderAt // random access to the same bytes, which Parquet and Arrow need
	Size   int64       // size of At in bytes
}

// Span is the half-open range [From, To) of a file's rows, from 0. To 0 means the end of the file.
type Span struct{ From, To int }

func (s Span) ends(row int) bool { return s.To > 0 && row >= s.To }

// rows reads the rows of one format.
type rows interface {
	next() (Row, error) // io.EOF after the last row, a *RowError for a row that can be skipped
	at() int            // line that is read next
}

// Reader returns the rows of a file.
type Reader struct {
	file  io.Reader
	o     Options
	rows  rows
	index int // index of the next row
	err   error
	close func()
}

// NewReader reads a file that begins with r's next byte. After the last row it has read r to its end, so that a hash
// over r is the file's hash; Options.Leave skips that. A reader that was not read to its end must be closed.
func NewReader(r io.Reader, o Options) *Reader {
	if o.Limit == 0 {
		o.Limit = MaxRowBytes
	}
	return &Reader{file: r, o: o, close: func() {}}
}

// Next returns io.EOF after the last row, a *RowError for a row that can be skipped, else a fatal error.
func (r *Reader) Next() (Row, error) {
	if r.err != nil {
		return Row{}, r.err
	}
	if r.rows == nil {
		if r.rows, r.err = r.open(); r.err != nil {
			return Row{}, r.finish(r.err)
		}
	}
	for {
		if r.o.Rows.ends(r.index) {
			return Row{}, r.finish(io.EOF)
		}
		row, err := r.rows.next()
		var skip *RowError
		if err != nil && !errors.As(err, &skip) {
			return Row{}, r.finish(inPlainWords(err))
		}
		if r.index++; r.index > r.o.Rows.From {
			return row, err
		}
	}
}

// ErrClosed is returned by a closed Reader.
var ErrClosed = errors.New("the reader is closed")

// Close ends the reading and leaves the file open. A second call has no effect.
func (r *Reader) Close() {
	if r.err == nil {
		r.err = ErrClosed
	}
	r.release()
}

// release frees what a decompressor holds.
func (r *Reader) release() {
	r.close()
	r.close = func() {}
	if c, ok := r.rows.(interface{ close() }); ok {
		c.close()
	}
}

// finish records how the reading ended.
func (r *Reader) finish(err error) error {
	r.err = err
	r.release()
	if errors.Is(err, io.EOF) && !(r.o.Leave && r.o.Rows.ends(r.index)) {
		if _, drain := io.Copy(io.Discard, r.file); drain != nil {
			r.err = drain
		}
	}
	return r.err
}

// Line returns the line that is read next, from 1.
func (r *Reader) Line() int {
	if r.rows == nil {
		return 1
	}
	return r.rows.at()
}

// Count returns the number of rows of a file, including malformed ones. Parquet and Arrow files record it.
func Count(r io.Reader, o Options) (int, error) {
	in := NewReader(r, o)
	defer in.Close()
	if in.rows, in.err = in.open(); in.err != nil {
		if errors.Is(in.err, io.EOF) {
			return 0, nil
		}
		return 0, in.err
	}
	if known, ok := in.rows.(interface{ count() int }); ok {
		return known.count(), nil
	}
	for n := 0; ; n++ {
		_, err := in.Next()
		var skip *RowError
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil && !errors.As(err, &skip):
			return 0, err
		}
	}
}

// leavesOut reports whether a null member of a struct is left out of its row. A message has content in every row, null
// if it only calls tools, so that null belongs to the row.
func leavesOut(member string) bool { return member != "content" }

// Formats, by the endings of their files.
const (
	inJSON    = "json"
	inCSV     = "csv"
	inTSV     = "tsv"
	inText    = "text"
	inParquet = "parquet"
	inArrow   = "arrow"
)

var endings = map[string]string{
	".json": inJSON, ".jsonl": inJSON, ".ndjson": inJSON, ".csv": inCSV, ".tsv": inTSV, ".txt": inText,
	".parquet": inParquet,
	".arrow":   inArrow,
}

// packed are the endings of compressed files.
var packed = []string{".gz", ".gzip", ".zst", ".zstd"}

// containerOf returns the format that a name identifies, "" if none.
func containerOf(name string) string {
	name = strings.ToLower(path.Base(strings.ReplaceAll(name, "\\", "/")))
	if slices.Contains(packed, path.Ext(name)) {
		name = strings.TrimSuffix(name, path.Ext(name))
	}
	return endings[path.Ext(name)]
}

// magics are the first bytes of files that users often pass by mistake.
var magics = []struct{ bytes, text string }{
	{"\x1f\x8b", "the file is compressed twice: unpack it first"},
	{"\x28\xb5\x2f\xfd", "the file is compressed twice: unpack it first"},
	{"PK\x03\x04", "the file is a zip archive: unpack it first"},
	{"BZh", "the file is bzip2-compressed: unpack it first"},
	{"\xfd7zXZ\x00", "the file is xz-compressed: unpack it first"},
	{"ARROW1", "the file is Arrow inside a compressed file: unpack it first"},
	{arrowContinuation, "the file is Arrow inside a compressed file: unpack it first"},
	{"\xff\xfe\x00\x00", "the file is UTF-32: save it as UTF-8"},
	{"\x00\x00\xfe\xff", "the file is UTF-32: save it as UTF-8"},
	{"\xff\xfe", "the file is UTF-16: save it as UTF-8"},
	{"\xfe\xff", "the file is UTF-16: save it as UTF-8"},
	{"SQLite format 3\x00", "the file is an SQLite database: export its rows to JSONL or CSV first"},
	{parquetMagic, "the file is Parquet inside a compressed file: unpack it first"},
}

const (
	bufferBytes = 64 << 10
	tarMagicAt  = 257
)

// open detects the format of the file, from its bytes first and else from its name.
func (r *Reader) open() (rows, error) {
	in := bufio.NewReaderSize(r.file, bufferBytes)
	head, err := in.Peek(tarMagicAt + 5)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if regular.Pointer(head) {
		return nil, &FileError{0, "the file is " + regular.IsPointer}
	}
	if bytes.HasPrefix(head, []byte(parquetMagic)) || containerOf(r.o.Path) == inParquet {
		return openParquet(head, r.o)
	}
	unpacked, closing, err := unpack(in, head)
	if err != nil {
		return nil, err
	}
	if isArrow(head) || unpacked == nil && containerOf(r.o.Path) == inArrow {
		return openArrow(head, r.o)
	}
	if unpacked != nil {
		r.close = closing
		in = bufio.NewReaderSize(unpacked, bufferBytes)
		if head, err = in.Peek(tarMagicAt + 5); err != nil && !errors.Is(err, io.EOF) {
			return nil, inPlainWords(err)
		}
	}
	for _, m := range magics {
		if bytes.HasPrefix(head, []byte(m.bytes)) {
			return nil, &FileError{0, m.text}
		}
	}
	if len(head) >= 4 && (head[0] == 0) != (head[1] == 0) && (head[0] == 0) == (head[2] == 0) &&
		(head[1] == 0) == (head[3] == 0) {
		return nil, &FileError{0, "the file is UTF-16 without its mark: save it as UTF-8"}
	}
	if len(head) > tarMagicAt && string(head[tarMagicAt:]) == "ustar" {
		return nil, &FileError{0, "the file is a tar archive: unpack it first"}
	}
	if bytes.HasPrefix(head, []byte("\xef\xbb\xbf")) {
		in.Discard(3)
		head = head[3:]
	}
	begin := bytes.TrimLeft(head, " \t\r\n")
	isJSON := len(begin) > 0 && begin[0] == '{' // a row of a table or a line of prose rarely begins with a brace
	switch container := containerOf(r.o.Path); {
	case container == inCSV && !isJSON:
		return newCSV(in, ',', r.o), nil
	case container == inTSV && !isJSON:
		return newCSV(in, '\t', r.o), nil
	case container == inText && !isJSON:
		return newText(in, r.o), nil
	}
	return &jsonRows{in: in, limit: r.o.Limit, line: 1}, nil
}

func tooLong(line, limit int) error {
	return &RowError{line, fmt.Errorf("the row is longer than %s", byteSize(limit))}
}

// tooLongToPass reports whether the end of a row is too far away to be searched for.
func tooLongToPass(size, limit int) bool { return size/passedOver > limit }

func endless(line, limit int) error {
	return &FileError{line, fmt.Sprintf("a row does not end within %s: this is no file of rows",
		byteSize(passedOver*limit))}
}

func byteSize(n int) string {
	switch {
	case n >= 1<<30 && n%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}
