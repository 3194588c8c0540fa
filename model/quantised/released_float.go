package quantised

import (
	"math"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
)

// Block lengths of 4-bit floats along a row.
const (
	nvfp4Block = 16
	mxfp4Group = quant.MXFP4Block
)

// grid is a table of scales [rows,cols] over a weight, each for a block of numbers.
type grid struct {
	values              []float32
	cols                int
	blockRows, blockCol int
}

func (g grid) row(r int) []float32 { return g.values[r/g.blockRows*g.cols:][:g.cols] }

// powersOfTwo returns the scales that E8M0 codes stand for. A code too large for a finite product gives NaN, which
// loading reports with its place.
func powersOfTwo(codes []byte) []float32 {
	scales := make([]float32, len(codes))
	for i, code := range codes {
		if scales[i] = quant.E8M0(code); code > quant.MXFP4MaxScale {
			scales[i] = float32(math.NaN())
		}
	}
	return scales
}

// scales reads a table of scales of any of the shapes that are in use: one number, one for each row, or one for each
// block of rows and columns.
func (f *finder) scales(suffix string, rows, cols int) (g grid, d weights.DType, ok bool) {
	t, ok := f.need(suffix, weights.F32, weights.BF16, weights.F16, weights.U8)
	if !ok {
		return g, 0, false
	}
	if d = t.DType; d == weights.U8 {
		g.values = powersOfTwo(t.Data)
	} else {
		g.values = f.numbers(t)
	}
	high, wide := 1, 1
	switch n := t.Len(); {
	case n == 1:
	case len(t.Shape) == 1 && n == rows:
		high = rows
	case len(t.Shape) == 2:
		high, wide = t.Shape[0], t.Shape[1]
	default:
		high = 0
	}
	g.cols = wide
	// The rows of a block are one, all, or what the configuration names; its columns may be any part of a row.
	named := f.released.BlockRows
	switch {
	case high == 1:
		g.blockRows = rows
	case high == rows:
		g.blockRows = 1
	case named > 0 && (rows+named-1)/named == high:
		g.blockRows = named
	}
	named = f.released.BlockCols
	switch {
	case named > 0 && (cols+named-1)/named == wide:
		g.blockCol = named
	case wide > 0 && cols%wide == 0:
		g.blockCol = cols / wide
	}
	if g.blockRows == 0 || g.blockCol == 0 || high*wide != t.Len() {
		f.fail("%s has the shape %v: it gives no scale for each block of a weight of %d x %d", f.module+suffix, t.Shape,
			rows, cols)
		return g, d, false
	}
	return g, d, true
}

// float8 reads a weight of 8-bit floats: its numbers are codes times scales.
func (f *finder) float8() *decoded {
	codes, ok := f.matrix(".weight", weights.F8E4M3)
	if !ok {
		return nil
	}
	rows, cols, suffix := codes.Shape[0], codes.Shape[1], ".weight_scale"
	if f.released.Layout == model.FineGrainedFP8 && has(f.src, f.module+".weight_scale_inv") {
		suffix = ".weight_scale_inv"
	}
	scales, d, ok := f.scales(suffix, rows, cols)
	if !ok {
		return nil
	}
	if d == weights.U8 || f.released.Layout != model.CompressedTensors {
		d = weights.BF16
	}
	return &decoded{name: codes.Name, rows: rows, cols: cols, dtype: d, together: 64, fill: func(dst []float32, from,
		to int) {
		for r := from; r < to; r++ {
			row, by := codes.Data[r*cols:][:cols], scales.row(r)
			for k, code := range row {
				dst[(r-from)*cols+k] = quant.E4M3(code) * by[k/scales.blockCol]
			}
		}
	}}
}

// float4 returns a weight of 4-bit floats, two in a byte, the first in the low bits. scale is the value of each block.
func (f *finder) float4(codes weights.Tensor, suffix string, scale []float32, length int) *decoded {
	rows, cols := codes.Shape[0], 2*codes.Shape[1]
	blocks := cols / length
	return &decoded{name: fileName(codes, suffix), rows: rows, cols: cols, dtype: weights.BF16, together: 64,
		fill: func(dst []float32, from, to int) {
			for r := from; r < to; r++ {
				row, by := codes.Data[r*cols/2:][:cols/2], scale[r*blocks:][:blocks]
				for k, pair := range row {
					s := by[2*k/length]
					at := (r-from)*cols + 2*k
					dst[at], dst[at+1] = quant.E2M1(pair)*s, quant.E2M1(pair>>4)*s
				}
			}
		}}
}

// blockScales reads a scale of one byte for each block of a row.
func (f *finder) blockScales(codes weights.Tensor, length int, d weights.DType) (weights.Tensor, bool) {
	t, ok := f.matrix(".weight_scale", d)
	if !ok {
		return t, false
	}
	if cols := 2 * codes.Shape[1]; cols%length != 0 || t.Shape[0] != codes.Shape[0] || t.Shape[1] != cols/length {
		f.fail("%s has the shape %v, not [%d %d]: a scale for each %d numbers of a row", f.module+".weight_scale",
			t.Shape,
			codes.Shape[0], cols/length, length)
		return t, false
	}
	return t, true
}

// second reads the one scale of a whole weight.
func (f *finder) second(suffix string) (float32, bool) {
	t, ok := f.need(suffix, weights.F32)
	if !ok {
		return 0, false
	}
	if t.Len() != 1 {
		f.fail("%s has %d elements, not 1", f.module+suffix, t.Len())
		return 0, false
	}
	return f.numbers(t)[0], true
}

// compressedFloat4 reads compressed-tensors' NVFP4, or its MXFP4, which has no global scale.
func (f *finder) compressedFloat4() *decoded {
	codes, ok := f.matrix(".weight_packed", weights.U8)
	if !ok {
		return nil
	}
	if !has(f.src, f.module+".weight_global_scale") {
		t, ok := f.blockScales(codes, mxfp4Group, weights.U8)
		if !ok {
			return nil
		}
		return f.float4(codes, ".weight_packed", powersOfTwo(t.Data), mxfp4Group)
	}
	t, ok := f.blockScales(codes, nvfp4Block, weights.F8E4M3)
	global, one := f.second(".weight_global_scale")
	if !ok || !one {
		return nil
	}
	scale := make([]float32, t.Len())
	for i, code := range t.Data {
		scale[i] = quant.E4M3(code) / global
	}
	return f.float4(codes, ".weight_packed", scale, nvfp4Block)
}

// modelOptFloat4 reads ModelOpt's NVFP4.
func (f *finder) modelOptFloat4() *decoded {
	codes, ok := f.matrix(".weight", weights.U8)
	if !ok {
		return nil
	}
	t, ok := f.blockScales(codes, nvfp4Block, weights.F8E4M3)
	second, one := f.second(".weight_scale_2")
	if !ok || !one {
		return nil
	}
	scale := make([]float32, t.Len())
	for i, code := range t.Data {
		scale[i] = quant.E4M3(code) * second
	}
	return f.float4(codes, ".weight", scale, nvfp4Block)
}
