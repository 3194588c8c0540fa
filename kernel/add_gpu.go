//go:build gpu

package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
)

func (Add) Stored([]DType) (want, out []DType) { return []DType{Narrow, Narrow}, []DType{Narrow} }

func (Add) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(out[0].Elems())
	return g.Launch(cuda.Elementwise("elementwise_add", n), out[0].Ptr, in[0].Ptr, in[1].Ptr, n)
}

func (AddTo) Stored(in []DType) (want, out []DType) {
	return []DType{in[0], in[0]}, []DType{in[0]}
}

func (AddTo) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(out[0].Elems())
	switch out[0].DType {
	case F32:
		return g.Launch(cuda.Elementwise("elementwise_axpy_f32", n), out[0].Ptr, in[1].Ptr, float32(1), n)
	case g.Precision.Stored(Narrow):
		return g.Launch(cuda.Elementwise("elementwise_axpy", n), out[0].Ptr, in[1].Ptr, float32(1), n)
	}
	return nil, fmt.Errorf("add to %v: f32 and %v are supported on the GPU with precision %v", out[0].Type, g.Precision.Stored(Narrow), g.Precision)
}
