package source

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// Encodings of Parquet.
const (
	encodingPlain       = 0
	encodingPlainDict   = 2
	encodingRLE         = 3
	encodingDelta       = 5
	encodingDeltaLength = 6
	encodingDeltaBytes  = 7
	encodingDict        = 8
	encodingSplit       = 9
)

// values are decoded values: numbers as bits, or byte slices.
type values struct {
	bits    []uint64
	pieces  [][]byte
	indices []uint32 // indices into dict, instead of values
	dict    *values
}

func (v *values) number(i int) uint64 {
	if v.dict != nil {
		return v.dict.bits[v.indices[i]]
	}
	return v.bits[i]
}

func (v *values) piece(i int) []byte {
	if v.dict != nil {
		return v.dict.pieces[v.indices[i]]
	}
	return v.pieces[i]
}

func (v *values) len() int { return max(len(v.bits), len(v.pieces)) }

var errPageEnds = errors.New("a page ends before its last value")

// width returns the size of a plain value in bytes, 0 if it varies.
func (n *node) width() int {
	switch n.kind {
	case kindInt32, kindFloat:
		return 4
	case kindInt64, kindDouble:
		return 8
	case kindInt96:
		return 12
	case kindFixed:
		return n.length
	}
	return 0
}

// inPieces reports whether values are byte slices and not numbers.
func (n *node) inPieces() bool {
	return n.kind == kindBytes || n.kind == kindFixed || n.kind == kindInt96
}

func decodeValues(data []byte, encoding, n int, leaf *node, dict values, hasDict bool) (values, error) {
	if n == 0 {
		return values{}, nil
	}
	switch encoding {
	case encodingPlain:
		return decodePlain(data, n, leaf)
	case encodingDict, encodingPlainDict:
		if !hasDict {
			return values{}, errors.New("a page needs a dictionary, and there is none")
		}
		return decodeIndices(data, n, dict)
	case encodingRLE:
		if leaf.kind == kindBool && len(data) >= 4 {
			ones, err := decodeHybrid(data[4:], n, 1)
			v := values{bits: make([]uint64, len(ones))}
			for i, b := range ones {
				v.bits[i] = uint64(b)
			}
			return v, err
		}
	case encodingDelta:
		if leaf.kind == kindInt32 || leaf.kind == kindInt64 {
			numbers, _, err := decodeDelta(data, n)
			return values{bits: numbers}, err
		}
	case encodingDeltaLength:
		if leaf.kind == kindBytes {
			pieces, err := decodeDeltaLength(data, n)
			return values{pieces: pieces}, err
		}
	case encodingDeltaBytes:
		if leaf.kind == kindBytes || leaf.kind == kindFixed {
			pieces, err := decodeDeltaBytes(data, n, leaf)
			return values{pieces: pieces}, err
		}
	case encodingSplit:
		if w := leaf.width(); w > 0 && leaf.kind != kindInt96 {
			if len(data) != n*w {
				return values{}, errPageEnds
			}
			joined := make([]byte, len(data))
			for i := range n {
				for b := range w {
					joined[i*w+b] = data[b*n+i]
				}
			}
			return decodePlain(joined, n, leaf)
		}
	}
	return values{}, fmt.Errorf("a page has the encoding %d, which is not read for its type", encoding)
}

func decodePlain(data []byte, n int, leaf *node) (v values, err error) {
	w := leaf.width()
	switch {
	case leaf.kind == kindBool:
		if n > 8*len(data) {
			return v, errPageEnds
		}
		v.bits = make([]uint64, n)
		for i := range v.bits {
			v.bits[i] = uint64(data[i/8] >> (i % 8) & 1)
		}
	case w > 0 && n > len(data)/w:
		return v, errPageEnds
	case w > 0 && leaf.inPieces():
		v.pieces = make([][]byte, n)
		for i := range v.pieces {
			v.pieces[i] = data[i*w : (i+1)*w]
		}
	case w == 4:
		v.bits = make([]uint64, n)
		for i := range v.bits {
			v.bits[i] = uint64(binary.LittleEndian.Uint32(data[4*i:]))
		}
	case w == 8:
		v.bits = make([]uint64, n)
		for i := range v.bits {
			v.bits[i] = binary.LittleEndian.Uint64(data[8*i:])
		}
	default:
		if n > len(data)/4 {
			return v, errPageEnds
		}
		v.pieces = make([][]byte, n)
		for i := range v.pieces {
			if len(data) < 4 {
				return v, errPageEnds
			}
			size := binary.LittleEndian.Uint32(data)
			if data = data[4:]; uint64(size) > uint64(len(data)) {
				return v, errPageEnds
			}
			v.pieces[i], data = data[:size], data[size:]
		}
	}
	return v, nil
}

func decodeIndices(data []byte, n int, dict values) (values, error) {
	if len(data) == 0 || data[0] > 32 {
		return values{}, errors.New("the indices of a page have no width")
	}
	indices, err := decodeHybrid(data[1:], n, int(data[0]))
	if err != nil {
		return values{}, err
	}
	size := uint32(dict.len())
	for _, i := range indices {
		if i >= size {
			return values{}, fmt.Errorf("a page asks for value %d of a dictionary of %d", i, size)
		}
	}
	return values{indices: indices, dict: &dict}, nil
}

// decodeLevels reads n levels of at most `most`.
func decodeLevels(data []byte, n, most int) ([]byte, error) {
	wide, err := decodeHybrid(data, n, bits.Len(uint(most)))
	if err != nil {
		return nil, err
	}
	levels := make([]byte, n)
	for i, l := range wide {
		if int(l) > most {
			return nil, fmt.Errorf("a page has the level %d, the schema allows %d", l, most)
		}
		levels[i] = byte(l)
	}
	return levels, nil
}

// decodeHybrid reads n numbers of width bits, in runs of one value and in packs of eight values.
func decodeHybrid(data []byte, n, width int) ([]uint32, error) {
	out := make([]uint32, 0, n)
	bytesWide := (width + 7) / 8
	for len(out) < n {
		head, used := binary.Uvarint(data)
		if used <= 0 {
			return nil, errPageEnds
		}
		data = data[used:]
		if head&1 == 0 { // a run of one value
			if len(data) < bytesWide {
				return nil, errPageEnds
			}
			value := uint32(0)
			for i := range bytesWide {
				value |= uint32(data[i]) << (8 * i)
			}
			data = data[bytesWide:]
			for range min(head>>1, uint64(n-len(out))) {
				out = append(out, value)
			}
			if head>>1 == 0 {
				return nil, errors.New("a page has a run of no values")
			}
			continue
		}
		groups := head >> 1
		if groups == 0 {
			return nil, errors.New("a page has a run of no values")
		}
		if width > 0 && groups > uint64(len(data))/uint64(width) {
			// The last pack of a page may be written without its unused bytes.
			if uint64(len(data))*8/uint64(width) < uint64(n-len(out)) {
				return nil, errPageEnds
			}
			groups = uint64(len(data)+width-1) / uint64(width)
		}
		at := 0
		for range min(groups*8, uint64(n-len(out))) {
			out = append(out, uint32(bitsAt(data, at, width)))
			at += width
		}
		data = data[min(groups*uint64(width), uint64(len(data))):]
	}
	return out, nil
}

// bitsAt reads width bits, at most 64, the lowest first; bits after the end are 0.
func bitsAt(data []byte, at, width int) uint64 {
	var v uint64
	for got := 0; got < width; {
		i := (at + got) / 8
		if i >= len(data) {
			break
		}
		shift := (at + got) % 8
		v |= uint64(data[i]>>shift) << got
		got += 8 - shift
	}
	if width < 64 {
		v &= 1<<width - 1
	}
	return v
}

// decodeDelta reads numbers stored as differences, in blocks of smaller blocks that each have a bit width
// (DELTA_BINARY_PACKED).
func decodeDelta(data []byte, want int) (out []uint64, rest []byte, err error) {
	t := &thrift{data: data} // the numbers are varints as in Thrift
	block, minis, total, value := t.uvarint(), t.uvarint(), t.uvarint(), t.int()
	switch {
	case t.err != nil:
		return nil, nil, errPageEnds
	case block == 0 || block > 1<<20 || minis == 0 || block%minis != 0 || block/minis%8 != 0:
		return nil, nil, errors.New("a page has blocks of a wrong size")
	case total != uint64(want):
		return nil, nil, fmt.Errorf("a page has %d values in place of %d", total, want)
	}
	out = make([]uint64, 0, min(want, 1<<16))
	if want > 0 {
		out = append(out, uint64(value))
	}
	per := int(block / minis)
	for len(out) < want {
		least := t.int()
		if t.err != nil || uint64(len(data)-t.at) < minis {
			return nil, nil, errPageEnds
		}
		widths := data[t.at : t.at+int(minis)]
		t.at += int(minis)
		for _, w := range widths {
			if len(out) == want {
				break // the widths of blocks that do not exist are meaningless
			}
			if w > 64 || per/8*int(w) > len(data)-t.at {
				return nil, nil, errPageEnds
			}
			pack := data[t.at : t.at+per/8*int(w)]
			t.at += len(pack)
			for i := 0; i < per && len(out) < want; i++ {
				out = append(out, out[len(out)-1]+uint64(least)+bitsAt(pack, i*int(w), int(w)))
			}
		}
	}
	return out, data[t.at:], nil
}

func decodeDeltaLength(data []byte, n int) ([][]byte, error) {
	lengths, data, err := decodeDelta(data, n)
	if err != nil {
		return nil, err
	}
	pieces := make([][]byte, n)
	for i, size := range lengths {
		if size > uint64(len(data)) {
			return nil, errPageEnds
		}
		pieces[i], data = data[:size], data[size:]
	}
	return pieces, nil
}

// decodeDeltaBytes reads values that each begin with a prefix of the value before.
func decodeDeltaBytes(data []byte, n int, leaf *node) ([][]byte, error) {
	prefixes, data, err := decodeDelta(data, n)
	if err != nil {
		return nil, err
	}
	pieces, err := decodeDeltaLength(data, n)
	if err != nil {
		return nil, err
	}
	size := 0
	for i, prefix := range prefixes {
		if i == 0 && prefix > 0 || i > 0 && prefix > uint64(len(pieces[i-1])) {
			return nil, errors.New("a value begins with more of the one before than there is")
		}
		if prefix > 0 {
			pieces[i] = slices.Concat(pieces[i-1][:prefix], pieces[i])
		}
		if size += len(pieces[i]); size > maxPage {
			return nil, fmt.Errorf("the values of a page have more than %s", byteSize(maxPage))
		}
		if leaf.kind == kindFixed && len(pieces[i]) != leaf.length {
			return nil, errPageEnds
		}
	}
	return pieces, nil
}
