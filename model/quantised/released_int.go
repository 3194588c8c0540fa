package quantised

import (
	"encoding/binary"
	"slices"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/weights"
)

// halves are the types of the scales of integers.
var halves = []weights.DType{weights.F16, weights.BF16, weights.F32}

func word(t weights.Tensor, i int) uint32 { return binary.LittleEndian.Uint32(t.Data[4*i:]) }

// integer8 reads compressed-tensors' weight of bytes, with a scale for each row or for the whole weight.
func (f *finder) integer8() *decoded {
	codes, ok := f.matrix(".weight", weights.I8)
	if !ok {
		return nil
	}
	rows, cols := codes.Shape[0], codes.Shape[1]
	scales, d, ok := f.scales(".weight_scale", rows, cols)
	if !ok {
		return nil
	}
	zero := make([]int8, len(scales.values))
	if t, has := f.tensor(".weight_zero_point"); has {
		if t.DType != weights.I8 || t.Len() != len(zero) {
			f.fail("%s is %v with %d elements, not I8 with %d", f.module+".weight_zero_point", t.DType, t.Len(),
				len(zero))
			return nil
		}
		for i, b := range t.Data {
			zero[i] = int8(b)
		}
	}
	return &decoded{name: codes.Name, rows: rows, cols: cols, dtype: d, together: 64, fill: func(dst []float32, from,
		to int) {
		for r := from; r < to; r++ {
			by, less := scales.row(r), zero[r/scales.blockRows*scales.cols:]
			for k, b := range codes.Data[r*cols:][:cols] {
				g := k / scales.blockCol
				dst[(r-from)*cols+k] = float32(int(int8(b))-int(less[g])) * by[g]
			}
		}
	}}
}

// packedIntegers reads compressed-tensors' weight of integers of 1 to 8 bits: a row's numbers follow each other without
// gaps in words of 32 bits, from the low bits up. A number is stored plus half its range.
func (f *finder) packedIntegers() *decoded {
	codes, ok := f.matrix(".weight_packed", weights.I32)
	shape, known := f.need(".weight_shape", weights.I64, weights.I32)
	if !ok || !known {
		return nil
	}
	size := make([]int64, shape.Len())
	if err := weights.Int64s(shape, size); err != nil || len(size) != 2 || size[0] != int64(codes.Shape[0]) ||
		size[1] < 1 ||
		size[1] > 32*int64(codes.Shape[1]) {
		f.fail("%s is %v: it does not fit %s of the shape %v", f.module+".weight_shape", size,
			f.module+".weight_packed",
			codes.Shape)
		return nil
	}
	rows, cols, words := codes.Shape[0], int(size[1]), codes.Shape[1]
	bits := f.width(cols, words)
	scales, d, ok := f.scales(".weight_scale", rows, cols)
	if bits == 0 || !ok {
		return nil
	}
	group, ok := f.groups(".weight_g_idx", cols, scales.cols, scales.blockCol)
	if !ok {
		return nil
	}
	high := len(scales.values) / scales.cols
	zero := slices.Repeat([]uint32{1 << (bits - 1)}, len(scales.values))
	if t, has := f.tensor(".weight_zero_point"); has {
		if t.DType != weights.I32 || !slices.Equal(t.Shape, []int{(high*bits + 31) / 32, scales.cols}) {
			f.fail("%s is %v of the shape %v, not I32 of the shape %v", f.module+".weight_zero_point", t.DType, t.Shape,
				[]int{(high*bits + 31) / 32, scales.cols})
			return nil
		}
		for r := range high {
			for g := range scales.cols {
				zero[r*scales.cols+g] = field(r, bits, func(i int) uint32 { return word(t, i*scales.cols+g) })
			}
		}
	}
	return &decoded{name: fileName(codes, ".weight_packed"), rows: rows, cols: cols, dtype: d, together: 64,
		fill: func(dst []float32, from, to int) {
			for r := from; r < to; r++ {
				by, less := scales.row(r), zero[r/scales.blockRows*scales.cols:]
				at := func(i int) uint32 { return word(codes, r*words+i) }
				for k := range cols {
					g := group[k]
					dst[(r-from)*cols+k] = float32(int(field(k, bits, at))-int(less[g])) * by[g]
				}
			}
		}}
}

// field returns the i-th number of the given width in a stream of words.
func field(i, bits int, word func(i int) uint32) uint32 {
	at := i * bits
	v := word(at/32) >> (at % 32)
	if over := at%32 + bits - 32; over > 0 {
		v |= word(at/32+1) << (bits - over)
	}
	return v & (1<<bits - 1)
}

// width returns how many bits a number has if cols of them fill a row of words: the one width, among those in the
// configuration, that fits. It returns 0 on an error.
func (f *finder) width(cols, words int) int {
	var fit []int
	for _, bits := range f.released.Bits {
		if bits >= 1 && bits <= 8 && (cols*bits+31)/32 == words {
			fit = append(fit, bits)
		}
	}
	if len(fit) != 1 {
		f.fail("%s has rows of %d words for %d numbers, and num_bits %v in config.json: exactly one width must fit",
			f.module+".weight_packed", words, cols, f.released.Bits)
		return 0
	}
	return fit[0]
}

// groups returns the group of scales of each column: by a tensor if there is one, else in order.
func (f *finder) groups(suffix string, cols, count, size int) ([]int, bool) {
	group := make([]int, cols)
	for k := range group {
		group[k] = k / size
	}
	t, ok := f.tensor(suffix)
	if !ok {
		return group, true
	}
	of := make([]int64, t.Len())
	if err := weights.Int64s(t, of); err != nil || len(of) != cols {
		f.fail("%s is %v with %d elements, not I32 with %d", f.module+suffix, t.DType, t.Len(), cols)
		return nil, false
	}
	if of[0] < 0 { // compressed-tensors' sign of a weight whose columns are in order
		return group, true
	}
	for k, g := range of {
		if g < 0 || g >= int64(count) {
			f.fail("%s has the group %d of column %d, and there are %d", f.module+suffix, g, k, count)
			return nil, false
		}
		group[k] = int(g)
	}
	return group, true
}

// columns holds the tensors of a weight that GPTQ and AWQ store transposed.
type columns struct {
	codes, zeros weights.Tensor
	scales       []float32
	dtype        weights.DType
	inputs       int // columns of the weight
	outputs      int // rows of the weight
	count        int // groups of inputs
}

// columns reads codes, zero points and scales. The zero points have the given number of numbers in a word.
func (f *finder) columns(inputsOf func(codes weights.Tensor) (inputs, outputs int), inWord int) (c columns, ok bool) {
	codes, first := f.matrix(".qweight", weights.I32)
	scales, second := f.matrix(".scales", halves...)
	zeros, third := f.matrix(".qzeros", weights.I32)
	if !first || !second || !third {
		return c, false
	}
	c.codes, c.zeros, c.dtype, c.scales = codes, zeros, scales.DType, f.numbers(scales)
	c.inputs, c.outputs = inputsOf(codes)
	c.count = scales.Shape[0]
	switch {
	case scales.Shape[1] != c.outputs || c.inputs%c.count != 0:
		f.fail("%s has the shape %v: it gives no scale for each group of %d inputs and each of %d outputs",
			f.module+".scales", scales.Shape, c.inputs, c.outputs)
		return c, false
	case zeros.Shape[0] != c.count || zeros.Shape[1] != (c.outputs+inWord-1)/inWord:
		f.fail("%s has the shape %v, not [%d %d]", f.module+".qzeros", zeros.Shape, c.count,
			(c.outputs+inWord-1)/inWord)
		return c, false
	}
	return c, true
}

// gptq reads a weight of GPTQ: words hold numbers of successive inputs of one output.
func (f *finder) gptq() *decoded {
	if len(f.released.Bits) != 1 || !slices.Contains([]int{2, 4, 8}, f.released.Bits[0]) {
		f.fail("%s is packed integers, and config.json names no width for it", f.module+".qweight")
		return nil
	}
	bits := f.released.Bits[0]
	inWord, most := 32/bits, uint32(1)<<bits-1
	c, ok := f.columns(func(t weights.Tensor) (int, int) { return t.Shape[0] * inWord, t.Shape[1] }, inWord)
	if !ok {
		return nil
	}
	group, ok := f.groups(".g_idx", c.inputs, c.count, c.inputs/c.count)
	if !ok {
		return nil
	}
	more := 0
	if f.released.Layout == model.GPTQ {
		more = 1
	}
	zero := make([]int, len(c.scales))
	for i := range zero {
		g, o := i/c.outputs, i%c.outputs
		zero[i] = int(word(c.zeros, g*c.zeros.Shape[1]+o/inWord)>>(o%inWord*bits)&most) + more
	}
	return &decoded{name: fileName(c.codes, ".qweight"), rows: c.outputs, cols: c.inputs, dtype: c.dtype, together: 128,
		fill: func(dst []float32, from, to int) {
			for w := range c.inputs / inWord {
				for o := from; o < to; o++ {
					bitsOf := word(c.codes, w*c.outputs+o)
					row := dst[(o-from)*c.inputs+w*inWord:][:inWord]
					for i := range row {
						at := group[w*inWord+i]*c.outputs + o
						row[i] = float32(int(bitsOf>>(i*bits)&most)-zero[at]) * c.scales[at]
					}
				}
			}
		}}
}

// awqOrder is the output, of the eight in a word, that each four bits belong to, from the low bits up.
var awqOrder = [8]int{0, 2, 4, 6, 1, 3, 5, 7}

// awqPlace is the inverse of awqOrder.
var awqPlace = [8]int{0, 4, 1, 5, 2, 6, 3, 7}

// awq reads a weight of AWQ's gemm layout: words hold numbers of eight outputs of one input.
func (f *finder) awq() *decoded {
	c, ok := f.columns(func(t weights.Tensor) (int, int) { return t.Shape[0], t.Shape[1] * 8 }, 8)
	if !ok {
		return nil
	}
	size := c.inputs / c.count
	zero := make([]int, len(c.scales))
	for i := range zero {
		g, o := i/c.outputs, i%c.outputs
		zero[i] = int(word(c.zeros, g*c.zeros.Shape[1]+o/8) >> (4 * awqPlace[o%8]) & 15)
	}
	return &decoded{name: fileName(c.codes, ".qweight"), rows: c.outputs, cols: c.inputs, dtype: c.dtype, together: 128,
		fill: func(dst []float32, from, to int) {
			for k := range c.inputs {
				g := k / size * c.outputs
				for w := from / 8; w*8 < to; w++ {
					codes := word(c.codes, k*c.outputs/8+w)
					for i, order := range awqOrder {
						if o := w*8 + order; o >= from && o < to {
							dst[(o-from)*c.inputs+k] = float32(int(codes>>(4*i)&15)-zero[g+o]) * c.scales[g+o]
						}
					}
				}
			}
		}}
}
