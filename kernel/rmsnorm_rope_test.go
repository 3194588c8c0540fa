package kernel_test

import (
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// angles is a table of cosines and sines for positions [0,p) of heads of d, and a position for each of m rows.
func angles(m, p, d int) (table, positions kerneltest.Input) {
	v, at := make([]float64, p*d), make([]int32, m)
	for i := range p {
		for j := range d / 2 {
			v[i*d+d/2+j], v[i*d+j] = math.Sincos(float64(i) / float64(1+j))
		}
	}
	for i := range at {
		at[i] = int32((5*i + 1) % p)
	}
	return kerneltest.Values(v, p, d), kerneltest.Ints(at, m)
}

// TestRMSNormRoPE: what a GPU's plan has in place of a norm of heads and their rotation keeps the contract of kernels.
func TestRMSNormRoPE(t *testing.T) {
	for _, c := range []struct{ rows, heads, size int }{{5, 3, 16}, {1, 1, 2}, {9, 4, 128}, {6, 2, 12}} {
		m, h, d := c.rows, c.heads, c.size
		table, positions := angles(m, 7, d)
		name := kernel.T(kernel.F32, m, h, d).String()
		kerneltest.Run(t,
			kerneltest.Case{Name: name, Kernel: kernel.RMSNormRoPE{Norm: kernel.RMSNorm{Eps: 1e-5, Heads: h}, Rotate: kernel.RoPE{Heads: h}}, In: []kerneltest.Input{
				kerneltest.Normal(m, h*d), kerneltest.Normal(d), table, positions}, Bound: 1e-6},
			kerneltest.Case{Name: name + " gradient", Kernel: kernel.RMSNormRoPEGrad{Norm: kernel.RMSNormGrad{Heads: h}, Rotate: kernel.RoPE{Heads: h, Inverse: true}}, In: []kerneltest.Input{
				kerneltest.Normal(m, h*d), kerneltest.Normal(d), kerneltest.Uniform(0.5, 2, m*h), kerneltest.Normal(m, h*d), table, positions}, Bound: 1e-6},
		)
	}
}
