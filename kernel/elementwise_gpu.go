//go:build gpu

package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

func (Add) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(out[0].Elems())
	if out[0].DType == F32 && g.Precision.Stored(ComputeType) != F32 {
		return addFP32(g, in[0], in[1], out[0])
	}
	return g.Launch(cuda.Elementwise("elementwise_add", n), out[0].Ptr, in[0].Ptr, in[1].Ptr, n)
}

// addFP32 adds numbers in fp32 where activations are stored in fewer bits. The output may lie in either input's memory.
func addFP32(g *GPU, a, b, out DeviceTensor) (func() error, error) {
	if out.Ptr == b.Ptr {
		a, b = b, a
	}
	n := int64(out.Elems())
	add, err := g.Launch(cuda.Elementwise("elementwise_axpy_f32", n), out.Ptr, b.Ptr, float32(1), n)
	if err != nil || out.Ptr == a.Ptr {
		return add, err
	}
	s, to, from, bytes := g.Stream, out.Ptr, a.Ptr, out.Bytes()
	return inOrder(func() error { return s.Copy(to, from, bytes) }, add), nil
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
	return nil, fmt.Errorf("add to %v: f32 and %v are supported on the GPU with precision %v", out[0].Type,
		g.Precision.Stored(ComputeType), g.Precision)
}

func (AddBias) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, N := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.Flat("bias", "bias_add", (int64(M)*int64(N)+7)/8), out[0].Ptr, in[0].Ptr, in[1].Ptr, int32(M),
		int32(N))
}

func (o Scale) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(out[0].Elems())
	return g.Launch(cuda.Elementwise("elementwise_scale", n), out[0].Ptr, in[0].Ptr, float32(o.By), n)
}

func (ScaleBy) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(out[0].Elems())
	return g.Launch(cuda.Elementwise("elementwise_scale_by", n), out[0].Ptr, in[0].Ptr, in[1].Ptr, n)
}

func (RowFactors) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.RowFactors(M, C), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, int32(in[2].Shape[0]), int32(C))
}

func (o SoftCap) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(in[0].Elems())
	return g.Launch(cuda.Flat("softcap", "softcap_apply", n), out[0].Ptr, in[0].Ptr, float32(o.Cap), n)
}

func (Zero) GPU(g *GPU, _, out []DeviceTensor) (func() error, error) {
	s, p, n := g.Stream, out[0].Ptr, out[0].Bytes()
	return func() error { return s.Fill(p, 0, n) }, nil
}

// GPU sums parts of the rows, and then the parts.
func (BiasGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	parts, err := g.Launch(cuda.ColumnSums("column_sums_bias", M, C), g.Scratch, in[0].Ptr, int64(M), int32(C),
		int32(cuda.ColumnParts(M)))
	if err != nil {
		return nil, err
	}
	return sumParts(g, out[0], M, parts)
}

// sumParts adds up the parts of sums over M rows, which first leaves in the scratch memory.
func sumParts(g *GPU, out DeviceTensor, M int, first func() error) (func() error, error) {
	n := int64(out.Elems())
	sum, err := g.Launch(cuda.Flat("reduce", "reduce_splits", n), out.Ptr, g.Scratch, int32(cuda.ColumnParts(M)), n,
		float32(1), float32(0))
	if err != nil {
		return nil, err
	}
	return inOrder(first, sum), nil
}
