package kernel

import "github.com/tierlora/tierlora/quant"

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
