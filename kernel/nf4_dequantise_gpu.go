//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (k DequantiseNF4) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(k.N) * int64(k.K)
	codes := g.nf4Codes(k.FP4)
	if k.Nested {
		return g.Launch(cuda.NF4Dequantise("nf4_dequantise_nested", n), out[0].Ptr, in[0].Ptr, codes, in[1].Ptr, g.nf4Map(k.Map), in[2].Ptr, in[3].Ptr, n)
	}
	return g.Launch(cuda.NF4Dequantise("nf4_dequantise", n), out[0].Ptr, in[0].Ptr, codes, in[1].Ptr, n)
}
