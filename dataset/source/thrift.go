package source

import (
	"encoding/binary"
	"errors"
	"math"
)

// thrift reads the compact protocol of Apache Thrift, in which a Parquet file stores its metadata. The first error is
// kept, and everything read after it is zero.
type thrift struct {
	data []byte
	at   int
	err  error
}

var (
	errShort   = errors.New("it ends too early")
	errNested  = errors.New("it is nested too deeply")
	errLengths = errors.New("a length in it is larger than what is there")
)

// Types of the compact protocol.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

const thriftDepth = 32

func (t *thrift) fail(err error) {
	if t.err == nil {
		t.err = err
	}
	t.at = len(t.data)
}

func (t *thrift) byte() byte {
	if t.at >= len(t.data) {
		t.fail(errShort)
		return 0
	}
	t.at++
	return t.data[t.at-1]
}

func (t *thrift) uvarint() uint64 {
	v, n := binary.Uvarint(t.data[t.at:])
	if n <= 0 {
		t.fail(errShort)
		return 0
	}
	t.at += n
	return v
}

// int reads a zigzag number.
func (t *thrift) int() int64 {
	v := t.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// bytes reads a string or binary that is no longer than the remaining data.
func (t *thrift) bytes() []byte {
	n := t.uvarint()
	if n > uint64(len(t.data)-t.at) {
		t.fail(errLengths)
		return nil
	}
	t.at += int(n)
	return t.data[t.at-int(n) : t.at]
}

// list reads the head of a list. Every element takes at least a byte.
func (t *thrift) list() (n int, kind byte) {
	b := t.byte()
	size := uint64(b >> 4)
	if size == 15 {
		size = t.uvarint()
	}
	if size > uint64(len(t.data)-t.at) {
		t.fail(errLengths)
		return 0, 0
	}
	return int(size), b & 15
}

// fields calls read for every field of a struct; read must consume the value or call skip.
func (t *thrift) fields(read func(id int, kind byte)) {
	id := 0
	for t.err == nil {
		b := t.byte()
		kind := b & 15
		if kind == 0 {
			return
		}
		if delta := int(b >> 4); delta > 0 {
			id += delta
		} else {
			id = int(int16(t.int()))
		}
		read(id, kind)
	}
}

// structs calls read for every element of a list of structs, and skips other lists.
func (t *thrift) structs(kind byte, read func()) {
	if kind != thriftList {
		t.skip(kind, 0)
		return
	}
	n, of := t.list()
	for range n {
		if t.err != nil {
			return
		}
		if of == thriftStruct {
			read()
		} else {
			t.skipElement(of, 0)
		}
	}
}

// number reads an integer or boolean of any width.
func (t *thrift) number(kind byte) int64 {
	switch kind {
	case thriftTrue:
		return 1
	case thriftByte:
		return int64(int8(t.byte()))
	case thriftI16, thriftI32, thriftI64:
		return t.int()
	}
	t.skip(kind, 0)
	return 0
}

// number32 reads a number and returns -1 if it does not fit in 32 bits.
func (t *thrift) number32(kind byte) int {
	n := t.number(kind)
	if n < math.MinInt32 || n > math.MaxInt32 {
		return -1
	}
	return int(n)
}

func (t *thrift) skip(kind byte, depth int) {
	if depth > thriftDepth {
		t.fail(errNested)
		return
	}
	switch kind {
	case thriftTrue, thriftFalse:
	case thriftByte:
		t.byte()
	case thriftI16, thriftI32, thriftI64:
		t.uvarint()
	case thriftDouble:
		for range 8 {
			t.byte()
		}
	case thriftBinary:
		t.bytes()
	case thriftList, thriftSet:
		n, of := t.list()
		for i := 0; i < n && t.err == nil; i++ {
			t.skipElement(of, depth+1)
		}
	case thriftMap:
		n := t.uvarint()
		if n == 0 {
			return
		}
		kinds := t.byte()
		for i := uint64(0); i < n && t.err == nil; i++ {
			t.skipElement(kinds>>4, depth+1)
			t.skipElement(kinds&15, depth+1)
		}
	case thriftStruct:
		t.fields(func(_ int, kind byte) { t.skip(kind, depth+1) })
	default:
		t.fail(errors.New("it has a field of an unknown type"))
	}
}

// skipElement skips an element of a list, in which a boolean takes a byte.
func (t *thrift) skipElement(kind byte, depth int) {
	if kind == thriftTrue || kind == thriftFalse {
		t.byte()
		return
	}
	t.skip(kind, depth)
}
