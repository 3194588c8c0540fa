package source

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

const (
	parquetMagic    = "PAR1"
	encryptedMagic  = "PARE"
	maxFooter       = 64 << 20
	maxSchema       = 10000 // elements
	maxGroups       = 1 << 15
	maxSchemaDepth  = 64
	maxParquetBytes = 1 << 50
)

// parquetFile holds the contents of the footer.
type parquetFile struct {
	at     io.ReaderAt
	size   int64
	root   *node
	leaves []*node
	groups []rowGroup
	count  int64 // rows
}

type rowGroup struct {
	rows   int64
	chunks []chunk // one for each leaf, in the order of the leaves
}

// chunk is the position of the pages of one leaf in one row group.
type chunk struct {
	codec, kind int
	values      int64
	from, size  int64
}

func damaged(format string, args ...any) error {
	return &FileError{0, "the Parquet file is damaged: " + fmt.Sprintf(format, args...)}
}

func openParquet(head []byte, o Options) (rows, error) {
	switch {
	case len(head) == 0:
		return nil, io.EOF
	case string(head[:min(4, len(head))]) == encryptedMagic:
		return nil, &FileError{0, "the Parquet file is encrypted: write it without encryption"}
	case string(head[:min(4, len(head))]) != parquetMagic:
		return nil, &FileError{0, fmt.Sprintf("the file is named .parquet and begins with %q instead of %q: it is no "+
			"Parquet file", head[:min(4, len(head))], parquetMagic)}
	case o.At == nil:
		return nil, &FileError{0, "the file is Parquet, which must be read from a plain file: it is given as a stream"}
	}
	f := &parquetFile{at: o.At, size: o.Size}
	if err := f.readFooter(); err != nil {
		return nil, err
	}
	return &parquetRows{file: f, limit: o.Limit, group: -1}, nil
}

func (f *parquetFile) readFooter() error {
	if f.size < 12 || f.size > maxParquetBytes {
		return damaged("it has %d bytes", f.size)
	}
	var tail [8]byte
	if _, err := f.at.ReadAt(tail[:], f.size-8); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch string(tail[4:]) {
	case parquetMagic:
	case encryptedMagic:
		return &FileError{0, "the Parquet file is encrypted: write it without encryption"}
	default:
		return &FileError{0, fmt.Sprintf("the Parquet file does not end with %q: it is cut off", parquetMagic)}
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	switch {
	case n > f.size-12:
		return damaged("its footer would have %d of the file's %d bytes", n, f.size)
	case n > maxFooter:
		return &FileError{0, fmt.Sprintf("the Parquet file's footer has more than %s: write it in fewer row groups",
			byteSize(maxFooter))}
	}
	footer := make([]byte, n)
	if _, err := f.at.ReadAt(footer, f.size-8-n); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return f.parseFooter(footer)
}

func (f *parquetFile) parseFooter(footer []byte) error {
	t := &thrift{data: footer}
	var elements []element
	var encrypted, tooMany bool
	t.fields(func(id int, kind byte) {
		switch id {
		case 2:
			t.structs(kind, func() {
				if e := readElement(t); len(elements) < maxSchema {
					elements = append(elements, e)
				} else {
					tooMany = true
				}
			})
		case 3:
			f.count = t.number(kind)
		case 4:
			t.structs(kind, func() {
				if g := readGroup(t, len(elements)); len(f.groups) < maxGroups {
					f.groups = append(f.groups, g)
				} else {
					tooMany = true
				}
			})
		case 8:
			encrypted = true
			t.skip(kind, 0)
		default:
			t.skip(kind, 0)
		}
	})
	switch {
	case t.err != nil:
		return damaged("its footer: %v", t.err)
	case encrypted:
		return &FileError{0, "the Parquet file is encrypted: write it without encryption"}
	case tooMany:
		return &FileError{0, fmt.Sprintf("the Parquet file has more than %d columns or %d row groups", maxSchema,
			maxGroups)}
	}
	if err := f.buildSchema(elements); err != nil {
		return err
	}
	return f.checkGroups()
}

func readGroup(t *thrift, columns int) (g rowGroup) {
	t.fields(func(id int, kind byte) {
		switch id {
		case 1:
			t.structs(kind, func() {
				if c := readChunk(t); len(g.chunks) <= columns {
					g.chunks = append(g.chunks, c)
				}
			})
		case 3:
			g.rows = t.number(kind)
		default:
			t.skip(kind, 0)
		}
	})
	return g
}

func readChunk(t *thrift) (c chunk) {
	c.from = -1
	t.fields(func(id int, kind byte) {
		if id != 3 || kind != thriftStruct {
			t.skip(kind, 0)
			return
		}
		t.fields(func(id int, kind byte) {
			switch id {
			case 1:
				c.kind = t.number32(kind)
			case 4:
				c.codec = t.number32(kind)
			case 5:
				c.values = t.number(kind)
			case 7:
				c.size = t.number(kind)
			case 9:
				if at := t.number(kind); c.from < 0 || at < c.from {
					c.from = at
				}
			case 11: // the page of the dictionary, which comes first; some writers write 0 if there is none
				if at := t.number(kind); at > 0 && (c.from < 0 || at < c.from) {
					c.from = at
				}
			default:
				t.skip(kind, 0)
			}
		})
	})
	return c
}

// checkGroups compares the row groups with the schema and the file's size.
func (f *parquetFile) checkGroups() error {
	var sum int64
	for i, g := range f.groups {
		if g.rows < 0 || g.rows > 1<<40 {
			return damaged("row group %d says that it has %d rows", i, g.rows)
		}
		sum += g.rows
		if len(g.chunks) != len(f.leaves) {
			return damaged("row group %d has %d columns, the schema has %d", i, len(g.chunks), len(f.leaves))
		}
		for j, c := range g.chunks {
			leaf := f.leaves[j]
			switch {
			case c.kind != leaf.kind:
				return damaged("column %q is of another type in row group %d than in the schema", leaf.path(), i)
			case c.values == 0 && g.rows == 0: // some writers give no position then
			case c.from < 4 || c.size < 0 || c.size > f.size || c.from > f.size-c.size || c.values < 0:
				return damaged("the pages of column %q in row group %d would lie outside the file", leaf.path(), i)
			}
			if c.values > f.mostValues() {
				return damaged("column %q would have %d values in row group %d of a file of %d bytes", leaf.path(),
					c.values, i, f.size)
			}
			if !slices.Contains([]int{codecNone, codecSnappy, codecGzip, codecZstd}, c.codec) {
				return &FileError{0, fmt.Sprintf("column %q of the Parquet file is compressed with %s: write it with "+
					"snappy, gzip or zstd", leaf.path(), codecName(c.codec))}
			}
		}
	}
	if sum > f.mostValues() {
		return damaged("it would have %d rows in %d bytes", sum, f.size)
	}
	if f.count != sum {
		return damaged("its footer says %d rows, its row groups %d", f.count, sum)
	}
	return nil
}

// mostValues bounds the number of values in a file of its size: a repeated value takes very few bytes, but not fewer
// than this.
func (f *parquetFile) mostValues() int64 { return 1<<20 + 1000*f.size }
