package quant

// table4 is the value of every four-bit code.
type table4 struct {
	values [16]float32
	pairs  [256][2]float32 // the two values of every byte
}

// tabled4 is a scheme that decodes by a table4.
type tabled4 interface{ table4() *table4 }

func newTable4(values [16]float32) *table4 {
	t := &table4{values: values}
	for b := range t.pairs {
		t.pairs[b] = [2]float32{values[b>>4], values[b&15]}
	}
	return t
}

func decode4Go(t *table4, dst []float32, codes []byte, absmax float32) {
	n := len(dst)
	codes = codes[:(n+1)/2]
	for i := 0; i+1 < n; i += 2 {
		p := &t.pairs[codes[i/2]]
		dst[i] = p[0] * absmax
		dst[i+1] = p[1] * absmax
	}
	if n%2 == 1 {
		dst[n-1] = t.pairs[codes[n/2]][0] * absmax
	}
}

func decodeBlocks4Go(t *table4, dst []float32, codes []byte, size int, scales []float32) {
	for i := 0; len(dst) > 0; i++ {
		decode4Go(t, dst[:size], codes, scales[i])
		dst, codes = dst[size:], codes[size/2:]
	}
}

// blocksOf64 are the block sizes of the schemes of four bits.
var blocksOf64 = []int{64}
