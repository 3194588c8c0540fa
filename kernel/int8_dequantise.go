package kernel

// DequantiseInt8 is the weight that one in 8 bits stands for, in numbers, as in MatMulInt8.
//
//	codes u8[N*K], scale f32[N] -> w [N,K] of type Float
type DequantiseInt8 struct {
	N, K  int
	Float DType // F32 or F64
}

func (DequantiseInt8) Name() string { return "int8_dequantise" }

func (k DequantiseInt8) Shape(in []Type) ([]Type, error) {
	return dequantisedShape(in, k.N, k.K, k.Float, int8Scheme)
}

func (k DequantiseInt8) CPU(c *CPU, in, out []Tensor) func() {
	return bindDequantise(c, out[0], bindInt8(k.N, k.K, in), k.N, k.K, func() {})
}

func (DequantiseInt8) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

func (DequantiseInt8) Stored([]DType) (want, out []DType) {
	return []DType{U8, F32}, []DType{ComputeType}
}
