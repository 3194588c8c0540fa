package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/gemm"
	"github.com/tierlora/tierlora/quant"
)

// MatMulNF4 is the GEMM with a frozen weight W [N,K] that stays packed: 4-bit NormalFloat codes in blocks
// of 64 along the flattened matrix (Dettmers et al. 2023), dequantised block by block while they are multiplied.
//
//	y = x Wᵀ   // x f[M,K] -> f[M,N]
//	y = x W    // Transposed: x f[M,N] -> f[M,K]
//
// Inputs after x: codes u8[N*K/2 rounded up], two a byte, the first in the high nibble; then the scale of
// each block: absmax f32[blocks], or, Nested, absmax u8[blocks] (codes into quant.NestedTable),
// absmax2 f32[a value for 256 blocks] and offset f32[1].
//
// A GPU stores y as activations are, or with FP32Out as fp32.
type MatMulNF4 struct {
	N, K       int
	Nested     bool
	Transposed bool
	FP32Out    bool
}

// nf4Block is the number of weights that share a scale.
const nf4Block = 64

func (MatMulNF4) Name() string { return "nf4" }

func (k MatMulNF4) Shape(in []Type) ([]Type, error) {
	const most = 1 << 40
	if k.N <= 0 || k.K <= 0 || k.N > most/k.K {
		return nil, fmt.Errorf("a weight [%d,%d] cannot be multiplied by: both sizes must be positive and their product at most 2^40", k.N, k.K)
	}
	width, result := k.K, k.N
	if k.Transposed {
		width, result = k.N, k.K
	}
	blocks := (k.N*k.K + nf4Block - 1) / nf4Block
	want := []string{fmt.Sprintf("f[M,%d]", width), fmt.Sprintf("u8[%d]", (k.N*k.K+1)/2)}
	if k.Nested {
		want = append(want, fmt.Sprintf("u8[%d]", blocks), fmt.Sprintf("f32[%d]", (blocks+quant.NestedBlock-1)/quant.NestedBlock), "f32[1]")
	} else {
		want = append(want, fmt.Sprintf("f32[%d]", blocks))
	}
	d, err := Want(in, want...)
	if err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, d.At('M'), result)}, nil
}

// inputs is how many inputs there are besides an addend.
func (k MatMulNF4) inputs() int {
	if k.Nested {
		return 5
	}
	return 3
}

func (k MatMulNF4) Grads() Backward {
	other := k
	other.Transposed, other.FP32Out = !k.Transposed, false
	call := Call{Kernel: other, In: []Ref{Upstream()}}
	for i := 1; i < k.inputs(); i++ {
		call.In = append(call.In, In(i))
	}
	grads := make([]Ref, k.inputs())
	grads[0] = FromCall(0, 0)
	return Backward{Calls: []Call{call}, Grads: grads}
}

func (k MatMulNF4) Accumulate() (Kernel, bool) { return MatMulNF4To(k), true }

func (k MatMulNF4) WithFP32Out() Kernel {
	k.FP32Out = true
	return k
}

func (k MatMulNF4) Scratch(in []Type, _ int) int64 {
	return panelBytes(in[0].DType, T(F32, k.N, k.K)) + panelBytes(in[0].DType, T(F32, k.N, k.K))/2
}

func (k MatMulNF4) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

// MatMulNF4To adds MatMulNF4's result for its inputs to the last one, the addend, in the addend's memory.
type MatMulNF4To MatMulNF4

func (MatMulNF4To) Name() string { return "nf4" }

func (k MatMulNF4To) Shape(in []Type) ([]Type, error) {
	return onto(MatMulNF4(k), in, MatMulNF4(k).inputs())
}

func (k MatMulNF4To) Overwrites() []Alias { return []Alias{{0, MatMulNF4(k).inputs()}} }

func (k MatMulNF4To) WithFP32Out() Kernel { return k }

func (k MatMulNF4To) Scratch(in []Type, workers int) int64 { return MatMulNF4(k).Scratch(in, workers) }

func (k MatMulNF4To) CPU(c *CPU, in, out []Tensor) func() { return MatMulNF4(k).bind(c, in, out, 1) }

func (k MatMulNF4) bind(c *CPU, in, out []Tensor, beta float64) func() {
	w := &quant.Packed{Scheme: quant.Schemes["nf4"], Rows: k.N, Cols: k.K, BlockSize: nf4Block, Codes: in[1].Bytes()}
	load := func() {}
	if k.Nested {
		w.AbsmaxU8, w.Absmax2, w.Table2 = in[2].Bytes(), in[3].F32(), quant.NestedTable[:]
		// The offset is data: it may arrive after binding.
		offset := in[4].F32()
		load = func() { w.Offset = offset[0] }
	} else {
		w.Absmax = in[2].F32()
	}
	rows := &packedRows{w, w.Scheme.Table()}
	var multiply func()
	if in[0].DType == F64 {
		single := c.Scratch[panelBytes(F64, T(F32, k.N, k.K)):]
		row := NewTensor(T(F32, min(panelRows, k.N), k.K), single).F32()
		p := newPanels([]int{k.N, k.K}, c.Scratch, func(dst []float64, i int) {
			rows.DequantiseRange(row[:len(dst)], i, i+len(dst))
			convert(dst, row)
		})
		multiply = p.gemm(c, !k.Transposed, 1, in[0].F64(), beta, out[0])
	} else {
		x, y, pool := in[0].F32(), out[0].F32(), c.Pool
		m, n, depth := out[0].Shape[0], out[0].Shape[1], in[0].Shape[1]
		multiply = func() {
			gemm.GemmDequantised(pool, !k.Transposed, m, n, depth, 1, x, depth, rows, float32(beta), y, n)
		}
	}
	return func() { load(); multiply() }
}

// packedRows dequantises a packed weight from any place on, in the middle of a byte too, where a row of odd
// length starts.
type packedRows struct {
	w     *quant.Packed
	table []float32
}

func (p *packedRows) DequantiseRange(dst []float32, from, to int) {
	if from%2 == 1 && from < to {
		dst[0] = p.table[p.w.Codes[from/2]&15] * p.w.Scale(from/nf4Block)
		dst, from = dst[1:], from+1
	}
	p.w.DequantiseRange(dst, from, to)
}
