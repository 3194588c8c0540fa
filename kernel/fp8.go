package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/gemm"
	"github.com/tierlora/tierlora/quant"
)

// e4m3Max is the largest number of the 8-bit float e4m3.
const e4m3Max = 448

// ToE4M3 rounds to the nearest 8-bit float of 4 exponent and 3 mantissa bits, ties to even. Numbers beyond 448 and
// infinities become 448 with their sign; a NaN stays one.
func ToE4M3(x float32) uint8 {
	bits := math.Float32bits(x)
	sign, magnitude := uint8(bits>>24)&0x80, bits&0x7fffffff
	switch abs := math.Float32frombits(magnitude); {
	case abs != abs:
		return sign | 0x7f
	case abs >= e4m3Max:
		return sign | 0x7e
	case abs < 1.0/64: // below the normal numbers, which are 1/512 apart there
		return sign | uint8(math.RoundToEven(float64(abs)*512))
	}
	rounded := (magnitude+0x7ffff+magnitude>>20&1)>>20 - 120<<3
	return sign | uint8(min(rounded, 0x7e))
}

// FromE4M3 returns the value of an 8-bit float of 4 exponent and 3 mantissa bits.
func FromE4M3(code uint8) float32 { return quant.E4M3(code) }

// e4m3Least is the least largest magnitude whose numbers are kept: below it the factor would overflow.
const e4m3Least = 0x1p-100

// e4m3Scale returns the scale of numbers whose largest magnitude is given, and the factor that brings them to e4m3's
// range. Both are zero where all numbers are as good as zero.
func e4m3Scale(largest float32) (scale, factor float32) {
	if largest < e4m3Least {
		return 0, 0
	}
	scale = largest * (1.0 / e4m3Max)
	return scale, 1 / scale
}

// QuantiseRows stores each row of a matrix as 8-bit floats (e4m3) with a scale of its own, which is the row's largest
// magnitude over 448. A NaN or an infinity in a row makes every product with the row NaN. Rows whose largest
// magnitude is below 2^-100 become zeros.
//
//	x f[M,K] -> codes u8[M,K], scales f32[M]; x is about codes times scales
type QuantiseRows struct{}

// Name returns "fp8_rows".
func (QuantiseRows) Name() string { return "fp8_rows" }

// Shape returns the types of codes and scales.
func (QuantiseRows) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,K]")
	if err != nil {
		return nil, err
	}
	return []Type{T(U8, d.At('M'), d.At('K')), T(F32, d.At('M'))}, nil
}

// CPU binds the float64 or the float32 body. Both round a number to float32 before they scale it.
func (QuantiseRows) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], quantiseRows[float32], quantiseRows[float64])(c, in, out)
}

func quantiseRows[F Float](c *CPU, in, out []Tensor) func() {
	x, codes, scales := Floats[F](in[0]), out[0].Bytes(), out[1].F32()
	K := in[0].Shape[1]
	return c.Range(len(scales), rowGrain(K), func(lo, hi int) {
		for m := lo; m < hi; m++ {
			row, largest := x[m*K:(m+1)*K], float32(0)
			for _, v := range row {
				largest = max(largest, float32(math.Abs(float64(v)))) // a NaN makes it NaN
			}
			scale, factor := e4m3Scale(largest)
			scales[m] = scale
			for k, v := range row {
				codes[m*K+k] = ToE4M3(float32(v) * factor)
			}
		}
	})
}

// Cost counts two operations for each number.
func (QuantiseRows) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 2) }

// Stored reads activations and writes codes and scales.
func (QuantiseRows) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType}, []DType{U8, F32}
}

// MatMulFP8 is the GEMM of MatMulNF4 in 8-bit floats: a GPU multiplies e4m3 by e4m3 and sums in fp32.
//
//	codes u8[M,K], scales f32[M], the weight's parts -> y f[M,N], or of [M,N] to f[M,K] where Weight is Transposed
//
// The rows are those that QuantiseRows wrote. The weight [N,K], rounded to e4m3 with one scale for the whole matrix, is
// made for each call in scratch memory, in the order that the direction needs. A float keeps its relative precision over
// 2^15, so that one scale serves a matrix whose small weights matter too.
type MatMulFP8 struct {
	Weight MatMulNF4 // its FP32Out and RowsApart are false
	Float  DType     // F32 or F64: the type of y
}

// Name returns "fp8".
func (MatMulFP8) Name() string { return "fp8" }

// Shape returns the type of y.
func (k MatMulFP8) Shape(in []Type) ([]Type, error) {
	if len(in) < 2 || len(in[0].Shape) != 2 {
		return nil, fmt.Errorf("takes codes [M,K], scales [M] and the parts of a weight, got %d inputs", len(in))
	}
	if k.Float != F32 && k.Float != F64 {
		return nil, fmt.Errorf("attribute Float is %v, want f32 or f64", k.Float)
	}
	if _, err := Want(in[:2], "u8[M,K]", "f32[M]"); err != nil {
		return nil, err
	}
	return k.Weight.Shape(append([]Type{T(k.Float, in[0].Shape...)}, in[2:]...))
}

// Accumulate returns the form that adds to an addend.
func (k MatMulFP8) Accumulate() (Kernel, bool) { return Onto[MatMulFP8]{k}, true }

func (k MatMulFP8) accumulation() accumulation {
	return accumulation{inputs: k.Weight.inputs() + 1, results: 1, anyType: true}
}

// Scratch returns memory for the rows as numbers and for what a GEMM with a packed weight takes.
func (k MatMulFP8) Scratch(in []Type, _ int) int64 {
	return T(k.Float, in[0].Shape...).Bytes() + packedScratch(k.Float, k.Weight.N, k.Weight.K)
}

// CPU binds the body that computes with the rounded numbers.
func (k MatMulFP8) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

func (k MatMulFP8) bind(c *CPU, in, out []Tensor, beta float64) func() {
	t := T(k.Float, in[0].Shape...)
	x, rest := NewTensor(t, c.Scratch[:t.Bytes()]), *c
	rest.Scratch = c.Scratch[t.Bytes():]
	widen := widenRows[float32]
	if k.Float == F64 {
		widen = widenRows[float64]
	}
	packed, load := bindFourBits(k.Weight.scheme(), k.Weight.N, k.Weight.K, in[2:])
	w := &e4m3Rows{of: packed}
	largest := k.largest(in[2:])
	rows := widen(c, in[0], in[1], x)
	multiply := bindPacked(&rest, x, out[0], w, k.Weight.N, k.Weight.K, k.Weight.Transposed, beta, func() {
		load()
		w.scale, w.factor = e4m3Scale(largest())
	})
	return func() { rows(); multiply() }
}

// largest returns what reads a bound of the weight's magnitudes from its parts: the largest scale of a block, or of
// nested scales what none can exceed.
func (k MatMulFP8) largest(parts []Tensor) func() float32 {
	if k.Weight.Nested {
		outer, offset := parts[2].F32(), parts[3].F32()
		return func() float32 { return largestOf(outer) + offset[0] }
	}
	absmax := parts[1].F32()
	return func() float32 { return largestOf(absmax) }
}

func largestOf(all []float32) float32 {
	largest := float32(0)
	for _, v := range all {
		largest = max(largest, v)
	}
	return largest
}

// widenRows binds the numbers that codes and scales stand for.
func widenRows[F Float](c *CPU, codes, scales, out Tensor) func() {
	from, by, to := codes.Bytes(), scales.F32(), Floats[F](out)
	K := codes.Shape[1]
	return c.Range(len(by), rowGrain(K), func(lo, hi int) {
		for m := lo; m < hi; m++ {
			for k, code := range from[m*K : (m+1)*K] {
				to[m*K+k] = F(FromE4M3(code)) * F(by[m])
			}
		}
	})
}

// e4m3Rows rounds a weight to e4m3 with one scale.
type e4m3Rows struct {
	of            gemm.Dequantiser
	scale, factor float32
}

// DequantiseRange fills dst with the weights [from,to) of the flattened matrix.
func (w *e4m3Rows) DequantiseRange(dst []float32, from, to int) {
	w.of.DequantiseRange(dst, from, to)
	for i, v := range dst[:to-from] {
		dst[i] = FromE4M3(ToE4M3(v*w.factor)) * w.scale
	}
}

// Cost counts the GEMM.
func (k MatMulFP8) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], out[0].Shape[1], in[0].Shape[1])
}

// Stored reads what QuantiseRows writes and writes activations.
func (k MatMulFP8) Stored(in []DType) (want, out []DType) {
	parts, out := k.Weight.Stored(in[1:])
	return append([]DType{U8, F32}, parts[1:]...), out
}

// FitsFP8 tells whether a GPU's GEMM of 8-bit floats takes rows x of a weight: cuBLASLt wants multiples of 16, and
// where one side has fewer than 1,024 columns rounding the rows costs more than the GEMM saves.
func (k MatMulNF4) FitsFP8(x Type) bool {
	return !k.FP32Out && !k.RowsApart && x.Shape[0] >= 256 && x.Shape[0]%16 == 0 && k.N >= 1024 && k.K >= 1024 &&
		k.N%128 == 0 && k.K%64 == 0
}

// fp8Scratch places what a GEMM of 8-bit floats makes: the weight, then its scale once for each column of the result.
func (k MatMulFP8) fp8Scratch() (scales, workspace int64) {
	scales = int64(k.Weight.N) * int64(k.Weight.K)
	return scales, scales + (4*int64(max(k.Weight.N, k.Weight.K))+255)&^255
}

// ScratchGPU returns the memory of the weight, its scales and the library's workspace.
func (k MatMulFP8) ScratchGPU(_, _ []Type, _ int) int64 {
	_, workspace := k.fp8Scratch()
	return workspace + blasWorkspace
}

// PrologueGPU marks the making of the weight, which waits for no activation.
func (MatMulFP8) PrologueGPU() bool { return true }
