//go:build gpu

package kernel

func (k MatMul) Stored([]DType) (want, out []DType) {
	want, out = []DType{ComputeType, ComputeType}, []DType{ComputeType}
	if k.FP32Out {
		out[0] = F32
	}
	return want, out
}

func (k MatMul) ScratchGPU(in, out []Type, sm int) int64 { return k.op(in, out, 0).scratch(sm) }

func (k MatMul) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.op(typesOf(in), typesOf(out), 0).bind(g, out[0].Ptr, in[0].Ptr, in[1].Ptr, g.Scratch)
}

// Stored: the addend is fp32 where gradients of parameters add up, else ComputeType.
func (k MatMulTo) Stored(in []DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, in[2]}, []DType{in[2]}
}

func (k MatMulTo) ScratchGPU(in, out []Type, sm int) int64 { return MatMul(k).ScratchGPU(in, out, sm) }

func (k MatMulTo) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return MatMul(k).op(typesOf(in), typesOf(out), 1).bind(g, out[0].Ptr, in[0].Ptr, in[1].Ptr, g.Scratch)
}

func typesOf(t []DeviceTensor) []Type {
	types := make([]Type, len(t))
	for i := range t {
		types[i] = t[i].Type
	}
	return types
}
