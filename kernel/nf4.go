package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/quant"
)

// MatMulNF4 is the GEMM with a frozen weight W [N,K] that stays packed: 4-bit NormalFloat codes in blocks
// of 64 along the flattened matrix (Dettmers et al. 2023), or FP4 codes, dequantised block by block while they are
// multiplied.
//
//	y = x Wᵀ   // x f[M,K] -> f[M,N]
//	y = x W    // Transposed: x f[M,N] -> f[M,K]
//
// Inputs after x: codes u8[N*K/2 rounded up], two a byte, the first in the high nibble; then the scale of
// each block: absmax f32[blocks], or, Nested, absmax u8[blocks] (codes into the table of Map),
// absmax2 f32[a value for 256 blocks] and offset f32[1].
//
// A GPU stores y as activations are, or with FP32Out as fp32.
type MatMulNF4 struct {
	N, K       int
	Nested     bool
	Transposed bool
	FP32Out    bool
	Map        quant.NestedMap
	FP4        bool
	RowsApart  bool // see RowsApart
}

// nf4Block is the number of weights that share a scale.
const nf4Block = 64

func (MatMulNF4) Name() string { return "nf4" }

// scheme returns how the weight is stored.
func (k MatMulNF4) scheme() quant.Config { return fourBitScheme(k.FP4, k.Nested, k.Map) }

func fourBitScheme(fp4, nested bool, m quant.NestedMap) quant.Config {
	c := quant.Config{Bits: 4, Type: "nf4", BlockSize: nf4Block, DoubleQuant: nested, Map: m}
	if fp4 {
		c.Type = "fp4"
	}
	return c
}

func (k MatMulNF4) Shape(in []Type) ([]Type, error) {
	return packedShape(in, k.N, k.K, k.Transposed, k.scheme())
}

// inputs returns how many inputs there are besides an addend.
func (k MatMulNF4) inputs() int {
	if k.Nested {
		return 5
	}
	return 3
}

func (k MatMulNF4) Grads() Backward {
	other := k
	other.Transposed, other.FP32Out = !k.Transposed, false
	return packedGrads(other, k.inputs()-1)
}

func (k MatMulNF4) Accumulate() (Kernel, bool) { return Onto[MatMulNF4]{k}, true }

func (k MatMulNF4) WithFP32Out() (Kernel, bool) {
	k.FP32Out = true
	return k, true
}

func (k MatMulNF4) WithRowsApart() Kernel {
	k.RowsApart = true
	return k
}

func (k MatMulNF4) Scratch(in []Type, _ int) int64 { return packedScratch(in[0].DType, k.N, k.K) }

func (k MatMulNF4) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

func (k MatMulNF4) accumulation() accumulation {
	return accumulation{inputs: k.inputs(), results: 1, anyType: true}
}

func (k MatMulNF4) bind(c *CPU, in, out []Tensor, beta float64) func() {
	w, load := bindFourBits(k.scheme(), k.N, k.K, in[1:])
	return bindPacked(c, in[0], out[0], w, k.N, k.K, k.Transposed, beta, load)
}

// bindFourBits is the weight whose parts lie in memory, and what reads of them what may arrive after binding.
func bindFourBits(s quant.Config, n, k int, parts []Tensor) (*packedRows, func()) {
	scheme := quant.Schemes[s.Type].(quant.Tabled)
	w := &quant.Packed{Scheme: scheme, Rows: n, Cols: k, BlockSize: s.BlockSize, Codes: parts[0].Bytes()}
	load := func() {}
	if s.DoubleQuant {
		w.AbsmaxU8, w.Absmax2, w.Table2 = parts[1].Bytes(), parts[2].F32(), s.Map.Table()
		offset := parts[3].F32()
		load = func() { w.Offset = offset[0] }
	} else {
		w.Absmax = parts[1].F32()
	}
	return &packedRows{w, scheme.Table()}, load
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

func (MatMulNF4) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], out[0].Shape[1], in[0].Shape[1])
}

func (k MatMulNF4) Stored(in []DType) (want, out []DType) {
	want = []DType{ComputeType, U8, F32}
	if k.Nested {
		want = []DType{ComputeType, U8, U8, F32, F32}
	}
	if k.FP32Out {
		return want, []DType{F32}
	}
	return want, []DType{ComputeType}
}

func (k MatMulNF4) ScratchGPU(in, out []Type, sm int) int64 {
	if k.skinny(in[0], out[0]) {
		return 0
	}
	return packedScratchGPU(in[0], out[0], k.N, k.K, k.Transposed, k.RowsApart, sm)
}

// skinny tells whether the weight is read packed by skinny.cu.
func (k MatMulNF4) skinny(x, out Type) bool {
	return k.RowsApart && !k.Transposed && x.DType != F32 && cuda.FitsSkinny(x.Shape[0], k.K, true)
}

// PrologueGPU marks the dequantising of the weight, which waits for no activation.
func (MatMulNF4) PrologueGPU() bool { return true }

// DequantiseNF4 is the weight that a packed one stands for, in numbers.
//
//	codes u8[N*K/2 rounded up], absmax f32[blocks] -> w [N,K] of type Float
//
// Nested, Map, FP4: as in MatMulNF4.
type DequantiseNF4 struct {
	N, K   int
	Nested bool
	Float  DType // F32 or F64
	Map    quant.NestedMap
	FP4    bool
}

func (DequantiseNF4) Name() string { return "nf4_dequantise" }

func (k DequantiseNF4) scheme() quant.Config { return fourBitScheme(k.FP4, k.Nested, k.Map) }

func (k DequantiseNF4) Shape(in []Type) ([]Type, error) {
	return dequantisedShape(in, k.N, k.K, k.Float, k.scheme())
}

func (k DequantiseNF4) CPU(c *CPU, in, out []Tensor) func() {
	w, load := bindFourBits(k.scheme(), k.N, k.K, in)
	return bindDequantise(c, out[0], w, k.N, k.K, load)
}

func (DequantiseNF4) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

func (k DequantiseNF4) Stored([]DType) (want, out []DType) {
	if k.Nested {
		return []DType{U8, U8, F32, F32}, []DType{ComputeType}
	}
	return []DType{U8, F32}, []DType{ComputeType}
}
