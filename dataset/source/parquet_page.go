package source

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// Supported codecs of Parquet.
const (
	codecNone   = 0
	codecSnappy = 1
	codecGzip   = 2
	codecZstd   = 6
)

const (
	maxPage       = 256 << 20 // bytes after decompression
	maxPageValues = 1 << 24
	maxHeld       = 1 << 30 // bytes of pages in memory at a time
	pageHeadBytes = 4 << 10
	maxPageHead   = 1 << 20
)

// Types of pages.
const (
	pageData       = 0
	pageDictionary = 2
	pageDataV2     = 3
)

// pageHead is the header of a page.
type pageHead struct {
	kind, packed, unpacked int
	values, encoding       int
	defBytes, repBytes     int // lengths of the levels (data page v2)
	plain                  bool
	crc                    uint32
	hasCRC                 bool
}

// cursor reads the values of one leaf in one row group, page by page.
type cursor struct {
	leaf  *node
	chunk chunk
	file  *parquetFile
	owner *parquetRows

	at      int64 // position of the next page
	left    int64 // values after the current page
	dict    values
	hasDict bool

	reps, defs []byte // levels of the current page; nil if the greatest level is 0
	vals       values
	n, pos     int // levels of the page, and index of the next one
	used       int // values of the page that were returned
	held       int
}

func newCursor(owner *parquetRows, leaf *node, c chunk) *cursor {
	return &cursor{leaf: leaf, chunk: c, file: owner.file, owner: owner, at: c.from, left: c.values}
}

func (c *cursor) damaged(format string, args ...any) error {
	return damaged("column %q: %s", c.leaf.path(), fmt.Sprintf(format, args...))
}

// ready reads on until there is a next value; false after the last one.
func (c *cursor) ready() (bool, error) {
	for c.pos == c.n {
		if c.left == 0 {
			return false, nil
		}
		if err := c.page(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// levels returns the levels of the next value.
func (c *cursor) levels() (rep, def int) {
	if c.reps != nil {
		rep = int(c.reps[c.pos])
	}
	if c.defs != nil {
		def = int(c.defs[c.pos])
	}
	return rep, def
}

// page reads the next page.
func (c *cursor) page() error {
	end := c.chunk.from + c.chunk.size
	if c.at >= end {
		return c.damaged("%d of its %d values are missing", c.left, c.chunk.values)
	}
	h, n, err := c.head(end)
	if err != nil {
		return err
	}
	from := c.at + int64(n)
	if h.packed < 0 || int64(h.packed) > end-from {
		return c.damaged("a page would have %d bytes, %d are left", h.packed, end-from)
	}
	if h.unpacked < 0 || h.unpacked > maxPage {
		return c.damaged("a page would have %d bytes, at most %s are read", h.unpacked, byteSize(maxPage))
	}
	if h.kind != pageData && h.kind != pageDictionary && h.kind != pageDataV2 {
		c.at = from + int64(h.packed) // an index
		return nil
	}
	if h.values < 0 || h.values > maxPageValues {
		return c.damaged("a page would have %d values, at most %d are read", h.values, maxPageValues)
	}
	if c.owner.held += h.unpacked - c.held; c.owner.held > maxHeld {
		return &FileError{0, fmt.Sprintf("the pages of a Parquet row take more than %s: write smaller pages",
			byteSize(maxHeld))}
	}
	c.held = h.unpacked
	body := make([]byte, h.packed)
	if _, err := c.file.at.ReadAt(body, from); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if h.hasCRC && crc32.ChecksumIEEE(body) != h.crc {
		return c.damaged("the checksum of a page does not match")
	}
	c.at = from + int64(h.packed)
	switch h.kind {
	case pageDictionary:
		return c.dictionary(h, body)
	case pageData:
		return c.dataPage(h, body)
	}
	return c.dataPageV2(h, body)
}

// head reads a page's header, whose length is known only at its end.
func (c *cursor) head(end int64) (pageHead, int, error) {
	for size := int64(pageHeadBytes); ; size *= 16 {
		buffer := make([]byte, min(size, end-c.at))
		if _, err := c.file.at.ReadAt(buffer, c.at); err != nil && !errors.Is(err, io.EOF) {
			return pageHead{}, 0, err
		}
		t := &thrift{data: buffer}
		h := readPageHead(t)
		if t.err == nil {
			return h, t.at, nil
		}
		if int64(len(buffer)) == end-c.at || size > maxPageHead {
			return pageHead{}, 0, c.damaged("the header of a page: %v", t.err)
		}
	}
}

func readPageHead(t *thrift) (h pageHead) {
	h.kind, h.packed, h.unpacked, h.values = -1, -1, -1, -1
	t.fields(func(id int, kind byte) {
		switch {
		case id == 1:
			h.kind = t.number32(kind)
		case id == 2:
			h.unpacked = t.number32(kind)
		case id == 3:
			h.packed = t.number32(kind)
		case id == 4:
			h.crc, h.hasCRC = uint32(t.number(kind)), true
		case (id == 5 || id == 7 || id == 8) && kind == thriftStruct:
			of := id
			t.fields(func(id int, kind byte) {
				switch {
				case id == 1:
					h.values = t.number32(kind)
				case id == 2 && of != 8, id == 4 && of == 8:
					h.encoding = t.number32(kind)
				case id == 5 && of == 8:
					h.defBytes = t.number32(kind)
				case id == 6 && of == 8:
					h.repBytes = t.number32(kind)
				case id == 7 && of == 8:
					h.plain = kind == thriftFalse
					t.skip(kind, 0)
				default:
					t.skip(kind, 0)
				}
			})
		default:
			t.skip(kind, 0)
		}
	})
	return h
}

func (c *cursor) dictionary(h pageHead, body []byte) error {
	if c.hasDict {
		return c.damaged("it has two dictionaries")
	}
	data, err := c.unpack(body, h.unpacked)
	if err != nil {
		return err
	}
	c.dict, err = decodePlain(data, h.values, c.leaf)
	if err != nil {
		return c.damaged("its dictionary: %v", err)
	}
	c.hasDict = true
	c.owner.held += c.held // it stays in memory beside the pages
	c.held = 0
	return nil
}

// dataPage reads a page whose levels and values are compressed together, each kind of levels after its length.
func (c *cursor) dataPage(h pageHead, body []byte) error {
	data, err := c.unpack(body, h.unpacked)
	if err != nil {
		return err
	}
	c.reps, c.defs = nil, nil
	for _, l := range []struct {
		most int
		to   *[]byte
	}{{c.leaf.rep, &c.reps}, {c.leaf.def, &c.defs}} {
		if l.most == 0 {
			continue
		}
		if len(data) < 4 {
			return c.damaged("a page ends inside its levels")
		}
		n := uint64(data[0]) | uint64(data[1])<<8 | uint64(data[2])<<16 | uint64(data[3])<<24
		if data = data[4:]; n > uint64(len(data)) {
			return c.damaged("the levels of a page would have %d bytes, %d are left", n, len(data))
		}
		if *l.to, err = decodeLevels(data[:n], h.values, l.most); err != nil {
			return c.damaged("%v", err)
		}
		data = data[n:]
	}
	return c.fill(h, data)
}

// dataPageV2 reads a page whose levels come first and are not compressed.
func (c *cursor) dataPageV2(h pageHead, body []byte) error {
	if h.defBytes < 0 || h.repBytes < 0 || h.defBytes+h.repBytes > len(body) || h.defBytes+h.repBytes > h.unpacked {
		return c.damaged("the levels of a page would have %d bytes, %d are left", h.defBytes+h.repBytes, len(body))
	}
	var err error
	c.reps, c.defs = nil, nil
	if c.leaf.rep > 0 {
		if c.reps, err = decodeLevels(body[:h.repBytes], h.values, c.leaf.rep); err != nil {
			return c.damaged("%v", err)
		}
	}
	if c.leaf.def > 0 {
		if c.defs, err = decodeLevels(body[h.repBytes:][:h.defBytes], h.values, c.leaf.def); err != nil {
			return c.damaged("%v", err)
		}
	}
	data, size := body[h.repBytes+h.defBytes:], h.unpacked-h.repBytes-h.defBytes
	if !h.plain && size > 0 {
		if data, err = c.unpack(data, size); err != nil {
			return err
		}
	}
	return c.fill(h, data)
}

// fill decodes the values of a page whose levels are known.
func (c *cursor) fill(h pageHead, data []byte) error {
	n := h.values
	if int64(n) > c.left {
		return c.damaged("a page has %d values, %d are left", n, c.left)
	}
	present := n
	if c.defs != nil {
		present = 0
		for _, d := range c.defs {
			if int(d) == c.leaf.def {
				present++
			}
		}
	}
	var err error
	if c.vals, err = decodeValues(data, h.encoding, present, c.leaf, c.dict, c.hasDict); err != nil {
		return c.damaged("%v", err)
	}
	c.n, c.pos, c.used = n, 0, 0
	c.left -= int64(n)
	return nil
}

// unpack decompresses a page into exactly size bytes, and never more.
func (c *cursor) unpack(body []byte, size int) ([]byte, error) {
	wrong := func(err error) ([]byte, error) {
		return nil, c.damaged("a page is no %s data of %d bytes (%v)", codecName(c.chunk.codec), size, err)
	}
	switch c.chunk.codec {
	case codecNone:
		if len(body) != size {
			return wrong(fmt.Errorf("it has %d", len(body)))
		}
		return body, nil
	case codecSnappy:
		if n, err := snappy.DecodedLen(body); err != nil || n != size {
			return wrong(fmt.Errorf("it has %d: %w", n, errors.Join(err)))
		}
		out, err := snappy.Decode(make([]byte, size), body)
		if err != nil {
			return wrong(err)
		}
		return out, nil
	case codecGzip:
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return wrong(err)
		}
		return readExactly(z, size, wrong)
	}
	if c.owner.zstd == nil {
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return wrong(err)
		}
		c.owner.zstd = z
	}
	if err := c.owner.zstd.Reset(bytes.NewReader(body)); err != nil {
		return wrong(err)
	}
	return readExactly(c.owner.zstd, size, wrong)
}

func readExactly(r io.Reader, size int, wrong func(error) ([]byte, error)) ([]byte, error) {
	var out bytes.Buffer // grows with the data that arrives, since the size may be wrong
	n, err := io.Copy(&out, io.LimitReader(r, int64(size)+1))
	switch {
	case err != nil:
		return wrong(err)
	case n != int64(size):
		return wrong(errors.New("it has another length"))
	}
	return out.Bytes(), nil
}
