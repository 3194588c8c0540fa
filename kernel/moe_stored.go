package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (RouteExperts) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType}, []DType{F32, I32}
}

func (RouteExpertsGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32, F32}, []DType{ComputeType}
}

// Stored: a number of each expert costs nothing to keep as it is.
func (WeighExperts) Stored([]DType) (want, out []DType) {
	return []DType{F32, I32, F32}, []DType{F32}
}

func (o SortByExpert) Stored([]DType) (want, out []DType) {
	want = []DType{I32}
	if o.Real {
		want = append(want, I32)
	}
	return want, []DType{I32, I32, I32}
}

// ScratchGPU is a count of each expert for each piece of the slots.
func (o SortByExpert) ScratchGPU(in, _ []Type, _ int) int64 {
	return int64(cuda.MoEPieces(in[0].Elems())) * int64(o.Experts) * 4
}

func (GatherTokens) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32, I32}, []DType{ComputeType}
}

func (SumTokens) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32, I32}, []DType{ComputeType}
}

func (ScaleSlots) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, F32, I32, I32}, []DType{ComputeType}
}

func (ScaleSlotsGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32, I32}, []DType{F32}
}

func (o BalanceLoss) Stored([]DType) (want, out []DType) {
	want = []DType{F32, I32, F32, I32}
	if o.Scaled {
		want = append(want, F32)
	}
	out = []DType{F32}
	for range o.Layers {
		want, out = append(want, ComputeType), append(out, ComputeType)
	}
	return want, out
}

// partBytes are those of the parts of all layers' sums, before each expert's share.
func (o BalanceLoss) partBytes(E int) int64 {
	return AlignUp(int64(o.Layers) * cuda.MoEBalanceBlocks * 2 * int64(E) * 4)
}

func (o BalanceLoss) ScratchGPU(in, _ []Type, _ int) int64 {
	E := in[o.logits()].Shape[1]
	return o.partBytes(E) + 4*int64(E+1)
}
