package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/simd"
)

// SoftCap bounds numbers smoothly, as Gemma 2 does its logits.
//
//	x f[M,V] -> y f[M,V] = Cap*tanh(x/Cap)
type SoftCap struct{ Cap float64 }

func (SoftCap) Name() string { return "softcap" }

func (o SoftCap) Shape(in []Type) ([]Type, error) {
	t, err := sameFloats(in, 1)
	if err != nil {
		return nil, err
	}
	if !(o.Cap > 0) || math.IsInf(o.Cap, 0) {
		return nil, fmt.Errorf("attribute Cap is %v, want a number above zero", o.Cap)
	}
	return []Type{t}, nil
}

func (SoftCap) InPlace() []Alias { return []Alias{{0, 0}} }

func (o SoftCap) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], softCap[float32], softCap[float64])(c, o, in, out)
}

func softCap[F Float](c *CPU, o SoftCap, in, out []Tensor) func() {
	x, y, l := Floats[F](in[0]), Floats[F](out[0]), simd.Best[F]()
	return c.Range(len(y), 1<<12, func(lo, hi int) { l.SoftCap(y[lo:hi], x[lo:hi], F(o.Cap)) })
}

func (SoftCap) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 3) }

func (SoftCap) Stored([]DType) (want, out []DType) { return []DType{F32}, []DType{F32} }
