package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/quant"
)

// DequantiseNF4 is the weight that a packed one stands for, in numbers.
//
//	codes u8[N*K/2 rounded up], absmax f32[blocks] -> w [N,K] of type Float
//
// Nested: the scales as in MatMulNF4.
type DequantiseNF4 struct {
	N, K   int
	Nested bool
	Float  DType // F32 or F64
}

func (DequantiseNF4) Name() string { return "nf4_dequantise" }

func (k DequantiseNF4) Shape(in []Type) ([]Type, error) {
	if k.Float != F32 && k.Float != F64 {
		return nil, fmt.Errorf("attribute Float is %v, want f32 or f64", k.Float)
	}
	if k.N <= 0 || k.K <= 0 || k.N > 1<<40/k.K {
		return nil, fmt.Errorf("a weight [%d,%d] can't be dequantised: both sizes must be positive and their product at most 2^40", k.N, k.K)
	}
	var want []string
	for _, p := range (quant.Config{Bits: 4, Type: "nf4", BlockSize: nf4Block, DoubleQuant: k.Nested}).Parts(k.N, k.K) {
		d := U8
		if p.Floats != nil {
			d = F32
		}
		want = append(want, fmt.Sprintf("%v[%d]", d, p.Len))
	}
	if _, err := Want(in, want...); err != nil {
		return nil, err
	}
	return []Type{T(k.Float, k.N, k.K)}, nil
}

func (k DequantiseNF4) CPU(c *CPU, in, out []Tensor) func() {
	w := &quant.Packed{Scheme: quant.Schemes["nf4"], Rows: k.N, Cols: k.K, BlockSize: nf4Block, Codes: in[0].Bytes()}
	load := func() {}
	if k.Nested {
		w.AbsmaxU8, w.Absmax2, w.Table2 = in[1].Bytes(), in[2].F32(), quant.NestedTable[:]
		offset := in[3].F32() // data: it may arrive after binding
		load = func() { w.Offset = offset[0] }
	} else {
		w.Absmax = in[1].F32()
	}
	rows := &packedRows{w, w.Scheme.Table()}
	row := func(i int) {}
	if k.Float == F32 {
		y := out[0].F32()
		row = func(i int) { rows.DequantiseRange(y[i*k.K:(i+1)*k.K], i*k.K, (i+1)*k.K) }
	} else {
		// A row's float32 values fit in its second half, and widen from the front without meeting one unread.
		y, half := out[0].F64(), NewTensor(T(F32, 2*k.N*k.K), out[0].Bytes()).F32()
		row = func(i int) {
			from := half[(2*i+1)*k.K : (2*i+2)*k.K]
			rows.DequantiseRange(from, i*k.K, (i+1)*k.K)
			for j, to := 0, y[i*k.K:(i+1)*k.K]; j < k.K; j++ {
				to[j] = float64(from[j])
			}
		}
	}
	work := c.Range(k.N, rowGrain(k.K), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			row(i)
		}
	})
	return func() { load(); work() }
}
