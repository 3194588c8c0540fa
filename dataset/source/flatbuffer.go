package source

import (
	"encoding/binary"
	"errors"
)

// flatbuffer reads the metadata of an Arrow message. The first error is kept, and everything read after it is zero.
type flatbuffer struct {
	data []byte
	err  error
}

// flatTable is a table of a flatbuffer. All fields of an absent table are absent.
type flatTable struct {
	f  *flatbuffer
	at int // 0 = absent
}

// flatVector is a vector of a flatbuffer; size is the size of an element in bytes.
type flatVector struct {
	f           *flatbuffer
	at, n, size int
}

var errFlat = errors.New("an offset in its metadata leads outside of it")

// bytes returns n bytes at a position, nil if there are fewer.
func (f *flatbuffer) bytes(at, n int) []byte {
	if f.err != nil || at < 0 || n < 0 || at > len(f.data)-n {
		if f.err == nil {
			f.err = errFlat
		}
		return nil
	}
	return f.data[at : at+n]
}

func (f *flatbuffer) u8(at int) uint8 {
	if b := f.bytes(at, 1); b != nil {
		return b[0]
	}
	return 0
}

func (f *flatbuffer) u16(at int) uint16 {
	if b := f.bytes(at, 2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (f *flatbuffer) u32(at int) uint32 {
	if b := f.bytes(at, 4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (f *flatbuffer) i64(at int) int64 {
	if b := f.bytes(at, 8); b != nil {
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}

// follow returns the position to which the offset at a position points. Offsets point forwards.
func (f *flatbuffer) follow(at int) int {
	offset := f.u32(at)
	if offset == 0 || uint64(offset) > uint64(len(f.data)) {
		f.bytes(-1, 0)
		return 0
	}
	return at + int(offset)
}

func (f *flatbuffer) root() flatTable { return flatTable{f, f.follow(0)} }

// field returns the position of a field's value, 0 if the table omits it.
func (t flatTable) field(i int) int {
	if t.at == 0 {
		return 0
	}
	vtable := t.at - int(int32(t.f.u32(t.at)))
	if t.f.err != nil || 4+2*i+2 > int(t.f.u16(vtable)) {
		return 0
	}
	offset := int(t.f.u16(vtable + 4 + 2*i))
	if offset == 0 {
		return 0
	}
	return t.at + offset
}

func (t flatTable) u8(i int, absent uint8) uint8 {
	if at := t.field(i); at > 0 {
		return t.f.u8(at)
	}
	return absent
}

func (t flatTable) i16(i int, absent int16) int16 {
	if at := t.field(i); at > 0 {
		return int16(t.f.u16(at))
	}
	return absent
}

func (t flatTable) i32(i int, absent int32) int32 {
	if at := t.field(i); at > 0 {
		return int32(t.f.u32(at))
	}
	return absent
}

func (t flatTable) i64(i int) int64 {
	if at := t.field(i); at > 0 {
		return t.f.i64(at)
	}
	return 0
}

// table returns an inner table, an absent one if the field is omitted.
func (t flatTable) table(i int) flatTable {
	if at := t.field(i); at > 0 {
		return flatTable{t.f, t.f.follow(at)}
	}
	return flatTable{f: t.f}
}

// vector returns a vector of elements of the given size, an empty one if the field is omitted.
func (t flatTable) vector(i, size int) flatVector {
	at := t.field(i)
	if at == 0 {
		return flatVector{f: t.f}
	}
	at = t.f.follow(at)
	n := t.f.u32(at)
	if t.f.err != nil || uint64(n)*uint64(size) > uint64(len(t.f.data)) || t.f.bytes(at+4, int(n)*size) == nil {
		return flatVector{f: t.f}
	}
	return flatVector{t.f, at + 4, int(n), size}
}

// text returns a string, "" if the field is omitted.
func (t flatTable) text(i int) string {
	v := t.vector(i, 1)
	if v.n == 0 {
		return ""
	}
	return string(v.f.bytes(v.at, v.n))
}

// place returns the position of element i of a vector.
func (v flatVector) place(i int) int { return v.at + i*v.size }

// table returns element i of a vector of tables, whose elements are offsets of 4 bytes.
func (v flatVector) table(i int) flatTable { return flatTable{v.f, v.f.follow(v.place(i))} }
