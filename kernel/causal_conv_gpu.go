//go:build gpu

package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
)

func (CausalConv) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32}, []DType{ComputeType}
}

func (CausalConv) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C, K, S := convSizes(in)
	at, rows := cuda.CausalConv(M, C, K, false)
	return g.Launch(at, out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, int32(M), int32(C), int32(S), int32(rows), int32(K))
}

// convSizes are the rows, columns and taps of a convolution over S sequences.
func convSizes(in []DeviceTensor) (M, C, K, S int) {
	return in[0].Shape[0], in[0].Shape[1], in[1].Shape[1], in[2].Shape[0] - 1
}

func (CausalConvGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32, ComputeType}, []DType{ComputeType}
}

// ScratchGPU: the device works s out again in registers.
func (CausalConvGrad) ScratchGPU([]Type, []Type, int) int64 { return 0 }

func (CausalConvGrad) CheckGPU(in, _ []Type, _ int) error {
	if K := in[1].Shape[1]; K > cuda.ConvTaps {
		return fmt.Errorf("the gradient of a filter of %d taps is not supported on the GPU; up to %d are, and device: cpu takes any", K, cuda.ConvTaps)
	}
	return nil
}

func (CausalConvGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C, K, S := convSizes(in)
	at, rows := cuda.CausalConv(M, C, K, true)
	return g.Launch(at, out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr, int32(M), int32(C), int32(S), int32(rows), int32(K))
}

// Stored: a slot holds rows of x as they are.
func (CausalConvCached) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32, I32, ComputeType}, []DType{ComputeType, ComputeType}
}

func (o CausalConvCached) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C, K, S := convSizes(in)
	at, rows := cuda.CausalConvCached(M, C, K, S)
	return g.Launch(at, out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr,
		int32(M), int32(C), int32(S), int32(in[4].Shape[0]), int32(o.Tokens), int32(rows), int32(K))
}
