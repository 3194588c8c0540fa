package quant

import "fmt"

// Packed is one weight matrix [Rows,Cols] in a scheme's codes. Blocks run over the flattened row-major matrix, across
// row ends. Kernels read the fields; only this package writes them.
type Packed struct {
	Scheme    Scheme
	Rows      int
	Cols      int
	BlockSize int

	Codes  []byte    // two codes a byte, the first in the high nibble
	Absmax []float32 // one scale for each block; nil when the scales are nested

	AbsmaxU8 []byte    // nested: code of each block's scale in Table2
	Table2   []float32 // nested: value of each code, ascending
	Absmax2  []float32 // nested: a scale for every NestedBlock scales
	Offset   float32   // nested: added to each restored scale
}

// Nested reports whether the scales are stored in 8 bits.
func (p *Packed) Nested() bool { return p.Absmax == nil }

// Len returns the number of weights.
func (p *Packed) Len() int { return p.Rows * p.Cols }

// Blocks returns the number of blocks; the last one may be short.
func (p *Packed) Blocks() int { return (p.Len() + p.BlockSize - 1) / p.BlockSize }

// Bytes returns the exact size of codes, scales and offset in bytes.
func (p *Packed) Bytes() int64 {
	n := int64(len(p.Codes)) + 4*int64(len(p.Absmax))
	if p.Nested() {
		n += int64(len(p.AbsmaxU8)) + 4*int64(len(p.Absmax2)) + 4
	}
	return n
}

// Scale returns the scale (absmax) of a block.
func (p *Packed) Scale(block int) float32 {
	if !p.Nested() {
		return p.Absmax[block]
	}
	// Two roundings, as the reference: the conversion forbids a fused multiply-add.
	return float32(p.Table2[p.AbsmaxU8[block]]*p.Absmax2[block/NestedBlock]) + p.Offset
}

// Scales returns the scales of all blocks. If they are not nested, it returns the stored slice.
func (p *Packed) Scales() []float32 {
	if !p.Nested() {
		return p.Absmax
	}
	all := make([]float32, p.Blocks())
	for i := range all {
		all[i] = p.Scale(i)
	}
	return all
}

// Dequantise writes all weights to dst, row-major; dst holds Len values.
func (p *Packed) Dequantise(dst []float32) { p.DequantiseRange(dst, 0, p.Len()) }

// DequantiseRange writes the weights [from,to) of the flattened row-major
// matrix to dst, which holds to-from values. It panics on a range outside the
// matrix. Safe for concurrent use.
func (p *Packed) DequantiseRange(dst []float32, from, to int) {
	if from < 0 || to < from || to > p.Len() || len(dst) < to-from {
		panic(fmt.Sprintf("quant: dequantise [%d,%d) of %d weights into %d values", from, to, p.Len(), len(dst)))
	}
	if s, ok := p.Scheme.(tabled4); ok && from%p.BlockSize == 0 {
		n := p.dequantiseBlocks(s.table4(), dst, from, to)
		dst, from = dst[n:], from+n
	}
	perByte := 8 / p.Scheme.Bits()
	for from < to {
		block := from / p.BlockSize
		end := min((block+1)*p.BlockSize, to)
		scale := p.Scale(block)
		if skip := from % perByte; skip != 0 {
			// A range that starts inside a byte: dequantise that byte's values apart.
			var pair [8]float32
			have := min(perByte, p.Len()-(from-skip))
			p.Scheme.Decode(pair[:have], p.Codes[from/perByte:], scale)
			n := copy(dst, pair[skip:min(have, skip+end-from)])
			dst, from = dst[n:], from+n
			continue
		}
		p.Scheme.Decode(dst[:end-from], p.Codes[from/perByte:], scale)
		dst, from = dst[end-from:], end
	}
}

// dequantiseBlocks dequantises the whole blocks of [from,to), from a block's start, and
// returns how many values that were: many blocks in one call, because a call a
// block takes as long as the block.
func (p *Packed) dequantiseBlocks(t *table4, dst []float32, from, to int) int {
	var scales [32]float32
	done := 0
	for to-from-done >= p.BlockSize {
		block := (from + done) / p.BlockSize
		blocks := min((to-from-done)/p.BlockSize, len(scales))
		for i := range blocks {
			scales[i] = p.Scale(block + i)
		}
		n := blocks * p.BlockSize
		decodeBlocks4(t, dst[done:done+n], p.Codes[(from+done)/2:], p.BlockSize, scales[:blocks])
		done += n
	}
	return done
}

const maxLen = 1 << 40 // weights in one matrix
