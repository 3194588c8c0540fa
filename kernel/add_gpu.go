//go:build gpu

package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

func (Add) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(out[0].Elems())
	return g.Launch(cuda.Elementwise("elementwise_add", n), out[0].Ptr, in[0].Ptr, in[1].Ptr, n)
}

func (o AddLowBits) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n, low := int64(out[0].Elems()), gpu.Ptr(0)
	if o.Carried {
		low = in[2].Ptr
	}
	entry := "elementwise_add_tail"
	if in[1].DType == F32 {
		entry = "elementwise_add_wide_tail"
	}
	return g.Launch(cuda.Elementwise(entry, n), out[0].Ptr, out[1].Ptr, in[0].Ptr, low, in[1].Ptr, n)
}

func (AddTo) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(out[0].Elems())
	switch out[0].DType {
	case F32:
		return g.Launch(cuda.Elementwise("elementwise_axpy_f32", n), out[0].Ptr, in[1].Ptr, float32(1), n)
	case g.Precision.Stored(ComputeType):
		return g.Launch(cuda.Elementwise("elementwise_axpy", n), out[0].Ptr, in[1].Ptr, float32(1), n)
	}
	return nil, fmt.Errorf("add to %v: f32 and %v are supported on the GPU with precision %v", out[0].Type, g.Precision.Stored(ComputeType), g.Precision)
}
