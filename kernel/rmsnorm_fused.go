package kernel

import (
	"errors"
	"slices"
)

// RMSNormLowBits is RMSNorm of a sum that has low bits (AddLowBits), for plans of a GPU.
//
//	x f[M,C], w w[C], low bits u8[M,C] -> y f[M,C], rstd f[M]
type RMSNormLowBits struct {
	Eps     float64
	PlusOne bool // as in RMSNorm
}

// Cheap: its output costs less to recompute than to keep.
func (RMSNormLowBits) Cheap() {}

func (RMSNormLowBits) Name() string { return "rmsnorm" }

func (o RMSNormLowBits) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,C]", "w[C]", "u8[M,C]"); err != nil {
		return nil, err
	}
	return RMSNorm{Eps: o.Eps, PlusOne: o.PlusOne}.Shape(in[:2])
}

func (o RMSNormLowBits) CPU(c *CPU, in, out []Tensor) func() {
	return RMSNorm{Eps: o.Eps, PlusOne: o.PlusOne}.CPU(c, in[:2], out)
}

// AddRMSNorm is a residual sum and the norm of it in one kernel, for plans of a GPU. LowBits: the sum gets
// them, as that of AddLowBits; Carried: x has them. r may be stored as fp32.
//
//	x, r f[M,C], w w[C], low bits of x u8[M,C] if Carried -> sum f[M,C] = x + r, its low bits u8[M,C] if LowBits, y f[M,C], rstd f[M]
type AddRMSNorm struct {
	Eps              float64
	PlusOne          bool // as in RMSNorm
	LowBits, Carried bool
}

func (AddRMSNorm) Name() string { return "rmsnorm" }

// add is the sum alone.
func (o AddRMSNorm) add() Kernel {
	if o.LowBits {
		return AddLowBits{o.Carried}
	}
	return Add{}
}

// norm is the norm alone.
func (o AddRMSNorm) norm() RMSNorm { return RMSNorm{Eps: o.Eps, PlusOne: o.PlusOne} }

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
	norm, err := o.norm().Shape([]Type{in[0], in[2]})
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
	add, norm := o.add().CPU(c, in[:2], out[:n]), o.norm().CPU(c, []Tensor{out[0], in[2]}, out[n:])
	return func() { add(); norm() }
}

func (o RMSNormGrad) AccumulateGPU() (Kernel, bool) { return RMSNormGradTo(o), true }

// RMSNormGradTo adds RMSNormGrad's result for its first four inputs to the fifth, in that one's memory, for
// plans of a GPU: the gradient that arrives by the residual.
type RMSNormGradTo struct {
	Heads   int
	PlusOne bool
}

func (RMSNormGradTo) Name() string { return "rmsnorm_grad" }

func (o RMSNormGradTo) Shape(in []Type) ([]Type, error) { return onto(RMSNormGrad(o), in, 4) }

func (RMSNormGradTo) Overwrites() []Alias { return []Alias{{0, 4}} }

// Scratch holds the gradient before it is added.
func (RMSNormGradTo) Scratch(in []Type, _ int) int64 { return in[0].Bytes() }

func (o RMSNormGradTo) CPU(c *CPU, in, out []Tensor) func() {
	dx := NewTensor(in[0].Type, c.Scratch)
	grad, add := RMSNormGrad(o).CPU(c, in[:4], []Tensor{dx}), Add{}.CPU(c, []Tensor{in[4], dx}, out)
	return func() { grad(); add() }
}

func (RMSNormLowBits) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 4) }

func (AddRMSNorm) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 5) }

func (RMSNormGradTo) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 8) }
