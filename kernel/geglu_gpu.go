//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (k GeGLU) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, F, entry := in[0].Shape[0], in[0].Shape[1], "geglu_forward"
	if k.Erf {
		entry += "_erf"
	}
	return g.Launch(cuda.Flat("geglu", entry, (int64(M)*int64(F)+7)/8), out[0].Ptr, in[0].Ptr, in[1].Ptr, int32(M),
		int32(F), int32(F))
}

func (k GeGLUGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n, entry := int64(in[0].Elems()), "geglu_grad"
	if k.Erf {
		entry += "_erf"
	}
	return g.Launch(cuda.Flat("geglu_grad", entry, (n+7)/8), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, n)
}
