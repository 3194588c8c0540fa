package quant

// Part is one stored tensor of a packed weight, a vector. Either Bytes or Floats is set, which decides its element
// type: u8 or f32.
type Part struct {
	Suffix string // what follows the weight's name in the tensor's name
	Len    int
	Bytes  func(p *Packed) []byte
	Floats func(p *Packed) []float32
}

// Parts returns the tensors that a weight of rows x cols is stored as, in the order in which GEMMs with it take
// them.
func (c Config) Parts(rows, cols int) []Part { return Schemes[c.Type].Parts(c, rows, cols) }

// Size returns the exact size in bytes of a packed weight of rows x cols.
func (c Config) Size(rows, cols int) int64 {
	size := int64(0)
	for _, p := range c.Parts(rows, cols) {
		if p.Floats != nil {
			size += 3 * int64(p.Len)
		}
		size += int64(p.Len)
	}
	return size
}

// blockParts returns bitsandbytes': codes, then the scale of each block, or, double quantised, its code, the scales of
// NestedBlock of those each, and the offset of all.
func blockParts(c Config, rows, cols int) []Part {
	n := rows * cols
	blocks := (n + c.BlockSize - 1) / c.BlockSize
	parts := []Part{{Len: (n*c.Bits + 7) / 8, Bytes: func(p *Packed) []byte { return p.Codes }}}
	if !c.DoubleQuant {
		return append(parts, Part{Suffix: ".absmax", Len: blocks, Floats: (*Packed).Scales})
	}
	return append(parts,
		Part{Suffix: ".absmax", Len: blocks, Bytes: func(p *Packed) []byte { return p.AbsmaxU8 }},
		Part{Suffix: ".nested_absmax", Len: (blocks + NestedBlock - 1) / NestedBlock,
			Floats: func(p *Packed) []float32 { return p.Absmax2 }},
		Part{Suffix: ".nested_offset", Len: 1, Floats: func(p *Packed) []float32 { return []float32{p.Offset} }})
}
