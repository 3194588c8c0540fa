//go:build gpu

package kernel

import (
	"errors"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
	"github.com/tierlora/tierlora/quant"
)

// The first constants on the device: NF4's and FP4's codes, then the tables of 8-bit scales.
const (
	fp4CodeOffset = 128 // of 16 fp32
	nf4CodeBytes  = 256
	nestedBytes   = 256 * 4
	nf4TableBytes = nf4CodeBytes + 2*nestedBytes
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

func (k MatMulNF4) Stored(in []DType) (want, out []DType) {
	want = []DType{ComputeType, U8, F32}
	if k.Nested {
		want = []DType{ComputeType, U8, U8, F32, F32}
	}
	if k.FP32Out {
		return want, []DType{F32}
	}
	return want, []DType{ComputeType}
}

func (k MatMulNF4) ScratchGPU(in, out []Type, sm int) int64 {
	if k.skinny(in[0], out[0]) {
		return 0
	}
	return packedScratchGPU(in[0], out[0], k.N, k.K, k.Transposed, k.RowsApart, sm)
}

// skinny tells whether the weight is read packed by skinny.cu.
func (k MatMulNF4) skinny(x, out Type) bool {
	return k.RowsApart && !k.Transposed && x.DType != F32 && cuda.FitsSkinny(x.Shape[0], k.K, true)
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

// PrologueGPU marks the dequantising of the weight, which waits for no activation.
func (MatMulNF4) PrologueGPU() {}

func (k MatMulNF4To) Stored(in []DType) (want, out []DType) {
	want, _ = MatMulNF4(k).Stored(in)
	addend := in[MatMulNF4(k).inputs()]
	return append(want, addend), []DType{addend}
}

func (k MatMulNF4To) ScratchGPU(in, out []Type, sm int) int64 {
	return MatMulNF4(k).ScratchGPU(in, out, sm)
}

func (MatMulNF4To) PrologueGPU() {}

func (k MatMulNF4To) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return MatMulNF4(k).bindGPU(g, in, out, 1)
}
