package source

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
)

// Limits of the memory for each buffer.
const (
	arrowWindow     = 64 << 10
	leastWindow     = 512
	arrowAllWindows = 64 << 20

	dictionaryWindow = 4 << 10 // there may be many
	maxArrowDepth    = 4 * maxSchemaDepth
)

// arrowBuffer is a part of a batch's body: decompressed bytes, or a window of the file.
type arrowBuffer struct {
	rows   *arrowRows
	at     int64 // position in the file
	size   int64
	whole  []byte // decompressed
	window []byte
	from   int64 // position of window in the buffer
	wide   int   // bytes read at once
}

// bytes returns n bytes of the buffer, valid until the next call.
func (b *arrowBuffer) bytes(at, n int64) ([]byte, error) {
	if at < 0 || n < 0 || at > b.size-n {
		return nil, arrowDamaged("a buffer ends before its last value")
	}
	if b.whole != nil {
		return b.whole[at : at+n], nil
	}
	if at < b.from || at+n > b.from+int64(len(b.window)) {
		size := min(max(n, int64(b.wide)), b.size-at)
		if int64(cap(b.window)) < size || cap(b.window) > 4*b.wide {
			b.window = make([]byte, size)
		}
		b.window, b.from = b.window[:size], at
		if err := b.rows.read(b.window, b.at+at); err != nil {
			b.window = b.window[:0]
			return nil, err
		}
	}
	return b.window[at-b.from : at-b.from+n], nil
}

// arrowColumn holds a field's values in a batch.
type arrowColumn struct {
	*arrowField
	length                  int64
	depth                   int // levels of members and dictionaries below it
	validity, offsets, data arrowBuffer
	parts                   []*arrowColumn // parts of the dictionary, in order
	members                 []*arrowColumn
}

// arrowBody returns the nodes and buffers of a batch in order.
type arrowBody struct {
	rows           *arrowRows
	nodes, buffers flatVector
	message        arrowMessage
	zstd           bool
	wide           int
	node, buffer   int
}

func (r *arrowRows) at() int { return 0 }

// count returns the number of rows without reading them.
func (r *arrowRows) count() int { return int(r.rows) }

func (r *arrowRows) close() {
	if r.zstd != nil {
		r.zstd.Close()
		r.zstd = nil
	}
}

// next returns the next row. It recovers from a panic over malformed bytes that no check found.
func (r *arrowRows) next() (row Row, err error) {
	defer func() {
		if p := recover(); p != nil {
			row, err = Row{}, arrowDamaged("%v", p)
		}
	}()
	return r.nextRow()
}

// errRowTooLong stops the making of a row.
var errRowTooLong = errors.New("the row is too long")

func (r *arrowRows) nextRow() (Row, error) {
	for r.row == r.length {
		if r.message == len(r.messages) {
			return Row{}, io.EOF
		}
		if err := r.nextBatch(); err != nil {
			return Row{}, err
		}
	}
	i := r.row
	r.row++
	r.data, r.wrong = r.data[:0], nil
	err := r.object(r.fields, r.columns, i, false)
	switch {
	case errors.Is(err, errRowTooLong):
		return Row{}, tooLong(0, r.limit)
	case err != nil:
		return Row{}, err
	case r.wrong != nil:
		return Row{}, &RowError{0, r.wrong}
	}
	return Row{Data: r.data}, nil
}

// nextBatch reads the next message: rows, or a dictionary for the rows after it.
func (r *arrowRows) nextBatch() error {
	m := r.messages[r.message]
	r.message++
	table, err := r.metadata(m)
	if err != nil {
		return err
	}
	header := table.table(2)
	r.columns, r.row, r.length, r.unpacked = r.columns[:0], 0, 0, r.kept
	if m.header == arrowDictionary {
		return r.readDictionary(m, header)
	}
	b, err := r.body(m, header)
	if err != nil {
		return err
	}
	for _, f := range r.fields {
		c, err := b.column(f, f.coded)
		if err != nil {
			return err
		}
		if c.length != m.rows {
			return arrowDamaged("column %q has %d values in a batch of %d rows", f.path, c.length, m.rows)
		}
		r.columns = append(r.columns, c)
	}
	r.length = m.rows
	return b.end()
}

// readDictionary stores the values of a dictionary. A delta is appended to the earlier values.
func (r *arrowRows) readDictionary(m arrowMessage, header flatTable) error {
	id := header.i64(0)
	field := findCoded(r.fields, id)
	if field == nil {
		return arrowDamaged("no column has its dictionary %d", id)
	}
	b, err := r.body(m, header.table(1))
	if err != nil {
		return err
	}
	b.wide = min(b.wide, dictionaryWindow)
	c, err := b.column(field, false)
	if err != nil {
		return err
	}
	r.kept = r.unpacked
	if header.u8(2, 0) == 0 {
		r.dictionaries[id] = nil
	}
	if r.parts++; r.parts > maxSchema {
		return &FileError{0, fmt.Sprintf("the Arrow file gives its dictionaries in more than %d pieces", maxSchema)}
	}
	r.dictionaries[id] = append(slices.Clip(r.dictionaries[id]), c)
	return b.end()
}

// findCoded returns the field whose values are indices into the given dictionary.
func findCoded(fields []*arrowField, id int64) *arrowField {
	for _, f := range fields {
		if f.coded && f.dictionary == id {
			return f
		}
		if inner := findCoded(f.children, id); inner != nil {
			return inner
		}
	}
	return nil
}

// body starts reading a batch.
func (r *arrowRows) body(m arrowMessage, batch flatTable) (*arrowBody, error) {
	b := &arrowBody{rows: r, nodes: batch.vector(1, 16), buffers: batch.vector(2, 16), message: m}
	b.wide = min(max(arrowAllWindows/max(b.buffers.n, 1), leastWindow), arrowWindow)
	if packing := batch.table(3); packing.at > 0 {
		if packing.u8(0, 0) != 1 {
			return nil, &FileError{0, "the Arrow file is compressed with LZ4: write it without compression or with " +
				"zstd"}
		}
		b.zstd = true
	}
	if batch.f == nil || batch.f.err != nil {
		return nil, arrowDamaged("%v", errFlat)
	}
	return b, nil
}

// end checks that the batch has no more nodes and buffers than its columns need.
func (b *arrowBody) end() error {
	if b.node != b.nodes.n || b.buffer != b.buffers.n {
		return arrowDamaged("a batch has %d nodes and %d buffers, its columns have %d and %d", b.nodes.n, b.buffers.n,
			b.node, b.buffer)
	}
	return nil
}

// column reads a field's part of the batch; coded means that it has indices into the field's dictionary.
func (b *arrowBody) column(f *arrowField, coded bool) (*arrowColumn, error) {
	if b.node == b.nodes.n {
		return nil, arrowDamaged("a batch lacks column %q", f.path)
	}
	at := b.nodes.place(b.node)
	b.node++
	c := &arrowColumn{arrowField: f, length: b.nodes.f.i64(at)}
	nulls := b.nodes.f.i64(at + 8)
	if c.length < 0 || c.length > math.MaxInt64/64 || nulls < 0 {
		return nil, arrowDamaged("column %q would have %d values in a batch", f.path, c.length)
	}
	if coded {
		if c.parts = b.rows.dictionaries[f.dictionary]; c.parts == nil && c.length > 0 {
			return nil, arrowDamaged("the dictionary of column %q does not come before its values", f.path)
		}
		for _, p := range c.parts {
			c.depth = max(c.depth, p.depth+1)
		}
	}
	var wanted []*arrowBuffer
	switch f.kind {
	case arrowText, arrowBinary, arrowBigText, arrowBigBinary:
		wanted = []*arrowBuffer{&c.validity, &c.offsets, &c.data}
	case arrowList, arrowBigList, arrowMap:
		wanted = []*arrowBuffer{&c.validity, &c.offsets}
	case arrowStruct, arrowFixedList:
		wanted = []*arrowBuffer{&c.validity}
	case arrowNull:
	default:
		wanted = []*arrowBuffer{&c.validity, &c.data}
	}
	if coded {
		wanted = []*arrowBuffer{&c.validity, &c.data}
	}
	for _, to := range wanted {
		if err := b.take(to, f); err != nil {
			return nil, err
		}
	}
	if nulls == 0 {
		c.validity = arrowBuffer{}
	}
	if coded { // its members belong to the dictionary
		if c.depth > maxArrowDepth {
			return nil, arrowDamaged("column %q is nested deeper than %d levels", f.path, maxArrowDepth)
		}
		return c, nil
	}
	for _, child := range f.children {
		member, err := b.column(child, child.coded)
		if err != nil {
			return nil, err
		}
		if f.kind == arrowStruct && member.length < c.length || f.kind == arrowFixedList && f.size > 0 &&
			member.length/int64(f.size) < c.length {
			return nil, arrowDamaged("column %q has fewer values than the rows around it", child.path)
		}
		c.members, c.depth = append(c.members, member), max(c.depth, member.depth+1)
	}
	if c.depth > maxArrowDepth {
		return nil, arrowDamaged("column %q is nested deeper than %d levels", f.path, maxArrowDepth)
	}
	return c, nil
}

// take reads the position of the next buffer, and the buffer itself if it is compressed.
func (b *arrowBody) take(to *arrowBuffer, f *arrowField) error {
	if b.buffer == b.buffers.n {
		return arrowDamaged("a batch lacks a buffer of column %q", f.path)
	}
	at := b.buffers.place(b.buffer)
	b.buffer++
	from, size := b.buffers.f.i64(at), b.buffers.f.i64(at+8)
	if from < 0 || size < 0 || size > b.message.bodySize || from > b.message.bodySize-size {
		return arrowDamaged("a buffer of column %q would lie outside of its batch", f.path)
	}
	*to = arrowBuffer{rows: b.rows, at: b.message.body + from, size: size, wide: b.wide}
	if !b.zstd || size == 0 {
		return nil
	}
	return to.unpack(f)
}

// unpack decompresses the buffer. Its length comes first; -1 means that it is not compressed.
func (b *arrowBuffer) unpack(f *arrowField) error {
	head, err := b.bytes(0, 8)
	if err != nil {
		return err
	}
	n := int64(binary.LittleEndian.Uint64(head))
	if n == -1 {
		b.at, b.size, b.window = b.at+8, b.size-8, nil
		return nil
	}
	r := b.rows
	if n < 0 || n > maxArrowUnpacked-r.unpacked || b.size > maxArrowUnpacked {
		return &FileError{0, fmt.Sprintf("the Arrow file has more than %s of compressed values in a batch: write it "+
			"in smaller batches", byteSize(maxArrowUnpacked))}
	}
	r.unpacked += n
	if r.zstd == nil {
		if r.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxMemory(maxArrowUnpacked)); err != nil {
			return err
		}
	}
	packed := make([]byte, b.size-8)
	if err := r.read(packed, b.at+8); err != nil {
		return err
	}
	whole, err := r.zstd.DecodeAll(packed, make([]byte, 0, min(n, int64(len(packed))*16)))
	if err != nil || int64(len(whole)) != n {
		return arrowDamaged("the zstd data of column %q is not %d bytes long (%v)", f.path, n, err)
	}
	if b.whole, b.size, b.window = whole, n, nil; b.whole == nil {
		b.whole = []byte{}
	}
	return nil
}

// isNull reports whether value i is null.
func (c *arrowColumn) isNull(i int64) (bool, error) {
	if c.kind == arrowNull && c.parts == nil {
		return true, nil
	}
	if c.validity.size == 0 {
		return false, nil
	}
	b, err := c.validity.bytes(i/8, 1)
	return err == nil && b[0]>>(i%8)&1 == 0, err
}

// object writes a row or a struct. A null member is left out if leavesOut says so.
func (r *arrowRows) object(fields []*arrowField, columns []*arrowColumn, i int64, inner bool) error {
	r.data = append(r.data, '{')
	written := 0
	for n, f := range fields {
		before := len(r.data)
		leave := inner && leavesOut(f.name)
		if null, err := columns[n].isNull(i); err != nil {
			return err
		} else if null && leave {
			continue
		}
		if written > 0 {
			r.data = append(r.data, ',')
		}
		r.data = append(append(r.data, f.key...), ':')
		start := len(r.data)
		if err := r.value(columns[n], i); err != nil {
			return err
		}
		if leave && f.json && string(r.data[start:]) == "null" { // the library datasets writes the text null
			r.data = r.data[:before]
			continue
		}
		written++
	}
	r.data = append(r.data, '}')
	return r.full()
}

// full returns errRowTooLong if the row exceeds its limit.
func (r *arrowRows) full() error {
	if len(r.data) > r.limit {
		return errRowTooLong
	}
	return nil
}

// value writes value i of a column.
func (r *arrowRows) value(c *arrowColumn, i int64) error {
	if i < 0 || i >= c.length {
		return arrowDamaged("column %q has %d values, and number %d is asked for", c.path, c.length, i+1)
	}
	null, err := c.isNull(i)
	if err != nil {
		return err
	}
	if null {
		r.data = append(r.data, "null"...)
		return r.full()
	}
	if c.parts != nil {
		return r.coded(c, i)
	}
	switch c.kind {
	case arrowStruct:
		return r.object(c.children, c.members, i, true)
	case arrowList, arrowBigList, arrowMap, arrowFixedList:
		from, to := i*int64(c.size), (i+1)*int64(c.size)
		if c.kind != arrowFixedList {
			if from, to, err = c.span(i); err != nil {
				return err
			}
		}
		if c.kind == arrowMap {
			return r.pairs(c.members[0], from, to)
		}
		return r.list(c.members[0], from, to)
	}
	if r.data, err = r.appendLeaf(r.data, c, i); err != nil {
		return err
	}
	return r.full()
}

// coded writes the dictionary value of the index at i.
func (r *arrowRows) coded(c *arrowColumn, i int64) error {
	bits, err := c.number(i, c.index.bits)
	if err != nil {
		return err
	}
	at := int64(bits)
	for _, p := range c.parts {
		if at >= 0 && at < p.length {
			return r.value(p, at)
		}
		at -= p.length
	}
	return arrowDamaged("column %q asks for value %d, which its dictionary does not have", c.path, bits)
}

// span returns the range of the elements of value i, or of its bytes.
func (c *arrowColumn) span(i int64) (from, to int64, err error) {
	if c.kind == arrowBigList || c.kind == arrowBigText || c.kind == arrowBigBinary {
		b, err := c.offsets.bytes(8*i, 16)
		if err != nil {
			return 0, 0, err
		}
		from, to = int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))
	} else {
		b, err := c.offsets.bytes(4*i, 8)
		if err != nil {
			return 0, 0, err
		}
		from, to = int64(int32(binary.LittleEndian.Uint32(b))), int64(int32(binary.LittleEndian.Uint32(b[4:])))
	}
	if from < 0 || to < from {
		return 0, 0, arrowDamaged("a value of column %q would end before it begins", c.path)
	}
	return from, to, nil
}

func (r *arrowRows) list(items *arrowColumn, from, to int64) error {
	r.data = append(r.data, '[')
	for i := from; i < to; i++ {
		if i > from {
			r.data = append(r.data, ',')
		}
		if err := r.value(items, i); err != nil {
			return err
		}
	}
	r.data = append(r.data, ']')
	return r.full()
}

// pairs writes a map as an object; a key that is not a string is converted to one.
func (r *arrowRows) pairs(items *arrowColumn, from, to int64) error {
	r.data = append(r.data, '{')
	for i := from; i < to; i++ {
		if i > from {
			r.data = append(r.data, ',')
		}
		start := len(r.data)
		if err := r.value(items.members[0], i); err != nil {
			return err
		}
		if key := r.data[start:]; key[0] != '"' {
			r.data = appendString(r.data[:start], slices.Clone(key))
		}
		r.data = append(r.data, ':')
		if err := r.value(items.members[1], i); err != nil {
			return err
		}
	}
	r.data = append(r.data, '}')
	return r.full()
}

// number returns value i of a column with the given number of bits, sign-extended if the type is signed.
func (c *arrowColumn) number(i int64, bits int) (uint64, error) {
	b, err := c.data.bytes(i*int64(bits/8), int64(bits/8))
	if err != nil {
		return 0, err
	}
	signed := c.signed
	if c.parts != nil {
		signed = c.index.signed
	}
	switch {
	case bits == 8 && signed:
		return uint64(int8(b[0])), nil
	case bits == 8:
		return uint64(b[0]), nil
	case bits == 16 && signed:
		return uint64(int16(binary.LittleEndian.Uint16(b))), nil
	case bits == 16:
		return uint64(binary.LittleEndian.Uint16(b)), nil
	case bits == 32 && signed:
		return uint64(int32(binary.LittleEndian.Uint32(b))), nil
	case bits == 32:
		return uint64(binary.LittleEndian.Uint32(b)), nil
	}
	return binary.LittleEndian.Uint64(b), nil
}

// appendLeaf appends value i of a column without members, as appendValue does for Parquet.
func (r *arrowRows) appendLeaf(out []byte, c *arrowColumn, i int64) ([]byte, error) {
	switch c.kind {
	case arrowText, arrowBigText, arrowBinary, arrowBigBinary, arrowFixed:
		return r.appendPiece(out, c, i)
	case arrowBool:
		b, err := c.data.bytes(i/8, 1)
		return strconv.AppendBool(out, err == nil && b[0]>>(i%8)&1 == 1), err
	case arrowDecimal:
		b, err := c.data.bytes(i*int64(c.bits/8), int64(c.bits/8))
		if err != nil {
			return out, err
		}
		b = slices.Clone(b)
		slices.Reverse(b)
		x := new(big.Int).SetBytes(b)
		if b[0]&0x80 != 0 {
			x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
		}
		return appendDecimal(out, x, c.scale), nil
	}
	bits, err := c.number(i, c.bits)
	if err != nil {
		return out, err
	}
	whole := int64(bits)
	if c.bits == 32 {
		whole = int64(int32(bits))
	}
	switch c.kind {
	case arrowFloat:
		switch c.bits {
		case 16:
			return appendFloat(out, float16(uint16(bits)), 32), nil
		case 32:
			return appendFloat(out, float64(math.Float32frombits(uint32(bits))), 32), nil
		}
		return appendFloat(out, math.Float64frombits(bits), 64), nil
	case arrowDate:
		if c.bits == 64 {
			return appendTime(out, whole, 3, "2006-01-02", false), nil
		}
		return append(append(append(out, '"'), time.Unix(0, 0).UTC().AddDate(0, 0, int(whole)).Format("2006-01-02")...),
			'"'), nil
	case arrowTimestamp:
		return appendTime(out, whole, c.unit, "2006-01-02T15:04:05", c.utc), nil
	case arrowTime:
		return appendTime(out, whole, c.unit, "15:04:05", false), nil
	case arrowDuration:
		return strconv.AppendInt(out, whole, 10), nil
	}
	if c.signed {
		return strconv.AppendInt(out, int64(bits), 10), nil
	}
	return strconv.AppendUint(out, bits, 10), nil
}

// appendPiece appends a string or bytes.
func (r *arrowRows) appendPiece(out []byte, c *arrowColumn, i int64) ([]byte, error) {
	from, to := i*int64(c.size), (i+1)*int64(c.size)
	if c.kind != arrowFixed {
		var err error
		if from, to, err = c.span(i); err != nil {
			return out, err
		}
	}
	if to-from > int64(r.limit) {
		return out, errRowTooLong
	}
	b, err := c.data.bytes(from, to-from)
	if err != nil {
		return out, err
	}
	isText := c.kind == arrowText || c.kind == arrowBigText
	switch {
	case isText && c.json:
		if out, err = appendJSON(out, c.path, b); err != nil && r.wrong == nil {
			r.wrong = err
		}
	case utf8.Valid(b):
		out = appendString(out, b)
	case isText:
		if out = append(out, "null"...); r.wrong == nil {
			r.wrong = notUTF8(c.path, b)
		}
	default:
		out = base64.StdEncoding.AppendEncode(append(out, '"'), b)
		out = append(out, '"')
	}
	return out, nil
}
