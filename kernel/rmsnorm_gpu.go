//go:build gpu

package kernel

import (
	"errors"
	"slices"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

func (RMSNorm) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType, F32}
}

func (o RMSNorm) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.RMSNorm("rmsnorm_forward", M, C), out[0].Ptr, out[1].Ptr, in[0].Ptr, gpu.Ptr(0), in[1].Ptr, int32(C), float32(o.Eps))
}

// RMSNormLowBits is RMSNorm of a sum that has a tail (AddLowBits), for plans of a GPU.
//
//	x f[M,C], w w[C], tail u8[M,C] -> y f[M,C], rstd f[M]
type RMSNormLowBits struct{ Eps float64 }

// Cheap: its output costs less to make again than to keep.
func (RMSNormLowBits) Cheap() {}

func (RMSNormLowBits) Name() string { return "rmsnorm" }

func (o RMSNormLowBits) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,C]", "w[C]", "u8[M,C]"); err != nil {
		return nil, err
	}
	return RMSNorm(o).Shape(in[:2])
}

func (o RMSNormLowBits) CPU(c *CPU, in, out []Tensor) func() { return RMSNorm(o).CPU(c, in[:2], out) }

func (RMSNormLowBits) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, U8}, []DType{ComputeType, F32}
}

func (o RMSNormLowBits) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.RMSNorm("rmsnorm_forward", M, C), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[2].Ptr, in[1].Ptr, int32(C), float32(o.Eps))
}

// AddRMSNorm is a residual sum and the norm of it in one kernel, for plans of a GPU. Tail: the sum gets one, as that of
// AddLowBits; Carried: x has one. r may be stored as fp32.
//
//	x, r f[M,C], w w[C], tail u8[M,C] if Carried -> sum f[M,C] = x + r, its tail u8[M,C] if Tail, y f[M,C], rstd f[M]
type AddRMSNorm struct {
	Eps           float64
	Tail, Carried bool
}

func (AddRMSNorm) Name() string { return "rmsnorm" }

// add is the sum alone.
func (o AddRMSNorm) add() Kernel {
	if o.Tail {
		return AddLowBits{o.Carried}
	}
	return Add{}
}

func (o AddRMSNorm) Shape(in []Type) ([]Type, error) {
	terms := slices.Clone(in)
	if len(in) > 2 {
		terms = slices.Delete(terms, 2, 3)
	}
	sum, err := o.add().Shape(terms)
	if err != nil {
		return nil, err
	}
	if len(in) < 3 {
		return nil, errors.New("takes a weight besides the sum's terms")
	}
	norm, err := RMSNorm{o.Eps}.Shape([]Type{in[0], in[2]})
	return append(sum, norm...), err
}

func (o AddRMSNorm) InPlace() []Alias {
	at := []Alias{{0, 0}, {0, 1}}
	if o.Carried {
		at = append(at, Alias{1, 3})
	}
	return at
}

func (o AddRMSNorm) CPU(c *CPU, in, out []Tensor) func() {
	n := len(out) - 2
	add, norm := o.add().CPU(c, in[:2], out[:n]), RMSNorm{o.Eps}.CPU(c, []Tensor{out[0], in[2]}, out[n:])
	return func() { add(); norm() }
}

func (o AddRMSNorm) Stored(in []DType) (want, out []DType) {
	want, out = []DType{ComputeType, term(in[1]), ComputeType}, []DType{ComputeType}
	if o.Carried {
		want = append(want, U8)
	}
	if o.Tail {
		out = append(out, U8)
	}
	return want, append(out, ComputeType, F32)
}

func (o AddRMSNorm) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	y, rstd := out[len(out)-2], out[len(out)-1]
	var from, to gpu.Ptr
	if o.Carried {
		from = in[3].Ptr
	}
	if o.Tail {
		to = out[1].Ptr
	}
	entry := "rmsnorm_add_forward"
	if in[1].DType == F32 {
		entry = "rmsnorm_add_wide_forward"
	}
	return g.Launch(cuda.RMSNorm(entry, M, C), y.Ptr, out[0].Ptr, to, rstd.Ptr, in[0].Ptr, from, in[1].Ptr, in[2].Ptr, int32(C), float32(o.Eps))
}

func (RMSNormGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, F32, ComputeType}, []DType{ComputeType}
}

func (RMSNormGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return rmsnormBackward(g, in, out, 0)
}

func (RMSNormGrad) AccumulateGPU() (Kernel, bool) { return RMSNormGradTo{}, true }

// RMSNormGradTo adds RMSNormGrad's result for its first four inputs to the fifth, in that one's memory, for
// plans of a GPU: the gradient that arrives by the residual.
type RMSNormGradTo struct{}

func (RMSNormGradTo) Name() string { return "rmsnorm_grad" }

func (RMSNormGradTo) Shape(in []Type) ([]Type, error) { return onto(RMSNormGrad{}, in, 4) }

func (RMSNormGradTo) Overwrites() []Alias { return []Alias{{0, 4}} }

// Scratch holds the gradient before it is added.
func (RMSNormGradTo) Scratch(in []Type, _ int) int64 { return in[0].Bytes() }

func (RMSNormGradTo) CPU(c *CPU, in, out []Tensor) func() {
	dx := NewTensor(in[0].Type, c.Scratch)
	grad, add := RMSNormGrad{}.CPU(c, in[:4], []Tensor{dx}), Add{}.CPU(c, []Tensor{in[4], dx}, out)
	return func() { grad(); add() }
}

func (RMSNormGradTo) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, F32, ComputeType, ComputeType}, []DType{ComputeType}
}

func (RMSNormGradTo) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return rmsnormBackward(g, in, out, in[4].Ptr)
}

func rmsnormBackward(g *GPU, in, out []DeviceTensor, add gpu.Ptr) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.RMSNorm("rmsnorm_backward", M, C), out[0].Ptr, in[3].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, add, int32(C))
}
