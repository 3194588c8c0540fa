package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
)

// Limits of what is read: files of models stay far below.
const (
	maxKVs     = 1 << 16
	maxTensors = 1 << 16
	maxKey     = 1 << 16 // bytes
	maxText    = 1 << 26 // bytes of a value
	maxList    = 1 << 24 // elements of a value
)

// File is an open file.
type File struct {
	Header
	offsets []int64 // of the tensors' bytes
	r       io.ReaderAt
	close   func() error
}

// Open reads the header of a file and checks that its tensors lie in it one after the other.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	var opened *File
	if err == nil {
		opened, err = Read(f, info.Size())
	}
	if err != nil {
		f.Close() //nolint:errcheck // the error before it is what matters
		return nil, fmt.Errorf("read GGUF file %s: %w", path, err)
	}
	opened.close = f.Close
	return opened, nil
}

// Close closes the file.
func (f *File) Close() error {
	if f.close == nil {
		return nil
	}
	return f.close()
}

// Data reads the bytes of tensor i.
func (f *File) Data(i int) *io.SectionReader {
	return io.NewSectionReader(f.r, f.offsets[i], f.Tensors[i].Bytes())
}

// Read is Open for size bytes that r holds.
func Read(r io.ReaderAt, size int64) (*File, error) {
	c := &cursor{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 1<<16), left: size}
	if string(c.bytes(4)) != magic {
		return nil, errors.New("it does not begin with GGUF")
	}
	if v := c.u32(); c.err == nil && v != version {
		return nil, fmt.Errorf("it has version %d; version %d is read", v, version)
	}
	tensors, kvs := c.u64(), c.u64()
	if c.err == nil && (tensors > maxTensors || kvs > maxKVs) {
		return nil, fmt.Errorf("it claims %d tensors and %d keys; up to %d and %d are read", tensors, kvs,
			maxTensors, maxKVs)
	}
	f := &File{r: r}
	for i := uint64(0); i < kvs && c.err == nil; i++ {
		key := c.string(maxKey)
		value := c.value()
		if c.err != nil {
			return nil, fmt.Errorf("key %d of %d %.64q: %w", i+1, kvs, key, c.err)
		}
		if key == "general.alignment" {
			return nil, errors.New("it has an alignment of its own, which is not read")
		}
		f.KVs = append(f.KVs, KV{key, value})
	}
	var offsets []uint64
	for i := uint64(0); i < tensors && c.err == nil; i++ {
		t := Tensor{Name: c.string(maxName)}
		dims := c.u32()
		if c.err == nil && (dims < 1 || dims > maxDims) {
			return nil, fmt.Errorf("tensor %q has %d dimensions", t.Name, dims)
		}
		for range dims {
			d := c.u64()
			if c.err == nil && (d < 1 || d > math.MaxInt32) {
				return nil, fmt.Errorf("tensor %q has a dimension of %d", t.Name, d)
			}
			t.Shape = append(t.Shape, int(d))
		}
		t.Type = Type(c.u32())
		offsets = append(offsets, c.u64())
		if c.err == nil && !fits(t, size) {
			return nil, fmt.Errorf("tensor %q of %v with the shape %v does not fit into the file's %d bytes", t.Name,
				t.Type, t.Shape, size)
		}
		f.Tensors = append(f.Tensors, t)
	}
	if c.err != nil {
		return nil, c.err
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	start := padded(size - c.left)
	if n := start - (size - c.left); n <= c.left && strings.Trim(string(c.bytes(n)), "\x00") != "" {
		return nil, errors.New("the bytes between its header and its tensors are not zero")
	}
	return f, f.place(offsets, start, size)
}

// fits tells whether a tensor is no larger than the file; the product of its dimensions does not run over.
func fits(t Tensor, size int64) bool {
	if t.Type.Block() == 0 {
		return true // check says that it is not known
	}
	n := int64(1)
	for _, d := range t.Shape {
		if n > (size*int64(t.Type.Block()))/int64(d) {
			return false
		}
		n *= int64(d)
	}
	return t.Bytes() <= size
}

// place finds the tensors' bytes, which lie without gaps but the padding.
func (f *File) place(offsets []uint64, start, size int64) error {
	next := start
	for i, t := range f.Tensors {
		if at := offsets[i]; at != uint64(next-start) {
			return fmt.Errorf("tensor %q begins at byte %d, where the tensor before it puts it at %d", t.Name,
				at, next-start)
		}
		f.offsets = append(f.offsets, next)
		if next += t.Bytes(); next > size {
			return fmt.Errorf("tensor %q ends at byte %d of %d: the file is cut short", t.Name, next, size)
		}
		next = padded(next)
	}
	if len(f.Tensors) > 0 && size > next {
		return fmt.Errorf("%d bytes stand behind the last tensor", size-next)
	}
	return nil
}

// cursor reads a header. After an error everything is empty.
type cursor struct {
	r    *bufio.Reader
	left int64
	err  error
}

func (c *cursor) bytes(n int64) []byte {
	if c.err == nil && (n < 0 || n > c.left) {
		c.err = errors.New("the file ends within its header")
	}
	if c.err != nil {
		return nil
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.r, b); err != nil {
		c.err = err
		return nil
	}
	c.left -= n
	return b
}

func (c *cursor) u32() uint32 {
	if b := c.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (c *cursor) string(limit uint64) string {
	n := c.u64()
	switch {
	case c.err != nil:
	case n > limit:
		c.err = fmt.Errorf("a text of %d bytes is too long: up to %d are read", n, limit)
	case n > uint64(c.left):
		c.err = fmt.Errorf("a text of %d bytes does not fit into the %d that the file still has", n, c.left)
	}
	return string(c.bytes(int64(n)))
}

func (c *cursor) bool() bool {
	b := c.bytes(1)
	if c.err == nil && b[0] > 1 {
		c.err = fmt.Errorf("a truth value is %d", b[0])
	}
	return c.err == nil && b[0] == 1
}

func (c *cursor) value() any {
	switch kind := c.u32(); kind {
	case kindBool:
		return c.bool()
	case kindUint32:
		return c.u32()
	case kindInt32:
		return int32(c.u32())
	case kindUint64:
		return c.u64()
	case kindFloat32:
		return math.Float32frombits(c.u32())
	case kindString:
		return c.string(maxText)
	case kindArray:
		return c.list()
	default:
		if c.err == nil {
			c.err = fmt.Errorf("values of type %d are not read", kind)
		}
		return nil
	}
}

func (c *cursor) list() any {
	kind, n := c.u32(), c.u64()
	smallest := map[uint32]uint64{kindBool: 1, kindUint8: 1, kindInt32: 4, kindUint32: 4, kindFloat32: 4,
		kindString: 8}[kind]
	if c.err == nil && smallest == 0 {
		c.err = fmt.Errorf("lists of type %d are not read", kind)
	}
	if c.err == nil && n > maxList {
		c.err = fmt.Errorf("a list of %d elements is too long: up to %d are read", n, maxList)
	}
	if c.err == nil && n > uint64(c.left)/smallest {
		c.err = fmt.Errorf("a list of %d elements does not fit into the file", n)
	}
	if c.err != nil {
		return nil
	}
	switch kind {
	case kindBool:
		return elements(c, n, c.bool)
	case kindUint8:
		return c.bytes(int64(n))
	case kindInt32:
		return elements(c, n, func() int32 { return int32(c.u32()) })
	case kindUint32:
		return elements(c, n, c.u32)
	case kindFloat32:
		return elements(c, n, func() float32 { return math.Float32frombits(c.u32()) })
	}
	return elements(c, n, func() string { return c.string(maxText) })
}

func elements[T any](c *cursor, n uint64, one func() T) []T {
	list := make([]T, 0, min(n, 1<<16))
	for ; n > 0 && c.err == nil; n-- {
		list = append(list, one())
	}
	return list
}
