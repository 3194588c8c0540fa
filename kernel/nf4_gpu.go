//go:build gpu

package kernel

import (
	"errors"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
	"github.com/tierlora/tierlora/quant"
)

func uploadNF4Tables(to gpu.Ptr) error {
	return errors.Join(
		gpu.Upload(to, quant.Schemes["nf4"].(quant.Tabled).Table()),
		gpu.Upload(to.Add(fp4CodeOffset), quant.Schemes["fp4"].(quant.Tabled).Table()),
		gpu.Upload(to.Add(nf4CodeBytes), quant.MapCPU.Table()),
		gpu.Upload(to.Add(nf4CodeBytes+nestedBytes), quant.MapCUDA.Table()))
}

// nf4Codes and nf4Map are where a weight's tables lie.
func (g *GPU) nf4Codes(fp4 bool) gpu.Ptr {
	if fp4 {
		return g.Constants.Add(fp4CodeOffset)
	}
	return g.Constants
}

func (g *GPU) nf4Map(m quant.NestedMap) gpu.Ptr {
	return g.Constants.Add(nf4CodeBytes + int64(m)*nestedBytes)
}

func (k MatMulNF4) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0)
}

func (k MatMulNF4) bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error) {
	n := int64(k.N) * int64(k.K)
	codes := g.nf4Codes(k.FP4)
	if k.skinny(in[0].Type, out[0].Type) {
		kind, args := "skinny_nf4", []any{out[0].Ptr, in[0].Ptr, in[1].Ptr, codes, in[2].Ptr}
		if k.Nested {
			kind, args = "skinny_nf4_nested", append(args, g.nf4Map(k.Map), in[3].Ptr, in[4].Ptr)
		}
		M := in[0].Shape[0]
		return g.Launch(cuda.Skinny(kind, M, k.N), append(args, int32(M), int32(k.N), int32(k.K), float32(1), beta, isFP32(out[0].DType))...)
	}
	entry, args := "nf4_dequantise", []any{g.Scratch, in[1].Ptr, codes, in[2].Ptr, n}
	if k.Nested {
		entry, args = "nf4_dequantise_nested", []any{g.Scratch, in[1].Ptr, codes, in[2].Ptr, g.nf4Map(k.Map), in[3].Ptr, in[4].Ptr, n}
	}
	return bindPackedGPU(g, in[0], out[0], k.N, k.K, k.Transposed, k.RowsApart, beta, cuda.NF4Dequantise(entry, n), args...)
}

func (k MatMulNF4To) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return MatMulNF4(k).bindGPU(g, in, out, 1)
}
