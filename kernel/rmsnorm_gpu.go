//go:build gpu

package kernel

import (
	"errors"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

func (RMSNorm) Stored([]DType) (want, out []DType) {
	return []DType{Narrow, Narrow}, []DType{Narrow, F32}
}

func (o RMSNorm) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.RMSNorm("rmsnorm_forward", M, C), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, int32(C), float32(o.Eps))
}

// AddRMSNorm is a residual sum and the norm of it in one kernel, for plans of a GPU.
//
//	x, r f[M,C], w w[C] -> sum f[M,C] = x + r, y f[M,C], rstd f[M]
type AddRMSNorm struct{ Eps float64 }

func (AddRMSNorm) Name() string { return "rmsnorm" }

func (o AddRMSNorm) Shape(in []Type) ([]Type, error) {
	if len(in) != 3 {
		return nil, errors.New("takes two terms and a weight")
	}
	sum, err := Add{}.Shape(in[:2])
	if err != nil {
		return nil, err
	}
	norm, err := RMSNorm(o).Shape([]Type{in[0], in[2]})
	return append(sum, norm...), err
}

func (AddRMSNorm) InPlace() []Alias { return []Alias{{0, 0}, {0, 1}} }

func (o AddRMSNorm) CPU(c *CPU, in, out []Tensor) func() {
	add, norm := Add{}.CPU(c, in[:2], out[:1]), RMSNorm(o).CPU(c, []Tensor{out[0], in[2]}, out[1:])
	return func() { add(); norm() }
}

func (AddRMSNorm) Stored([]DType) (want, out []DType) {
	return []DType{Narrow, Narrow, Narrow}, []DType{Narrow, Narrow, F32}
}

func (o AddRMSNorm) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.RMSNorm("rmsnorm_add_forward", M, C), out[1].Ptr, out[0].Ptr, out[2].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, int32(C), float32(o.Eps))
}

func (RMSNormGrad) Stored([]DType) (want, out []DType) {
	return []DType{Narrow, Narrow, F32, Narrow}, []DType{Narrow}
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
	return []DType{Narrow, Narrow, F32, Narrow, Narrow}, []DType{Narrow}
}

func (RMSNormGradTo) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return rmsnormBackward(g, in, out, in[4].Ptr)
}

func rmsnormBackward(g *GPU, in, out []DeviceTensor, add gpu.Ptr) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.RMSNorm("rmsnorm_backward", M, C), out[0].Ptr, in[3].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, add, int32(C))
}
