package kernel

func (o AttentionSinks) Stored(in []DType) (want, out []DType) {
	want, out = o.Attention.Stored(in)
	return append(want, ComputeType), out
}

func (o AttentionSinks) ScratchGPU(in, out []Type, sm int) int64 {
	return o.Attention.ScratchGPU(in[:len(in)-1], out, sm)
}

func (ExpertBias) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32}, []DType{ComputeType}
}

func (ClampedSwiGLU) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType}, []DType{ComputeType}
}

func (ClampedSwiGLUGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType}
}
