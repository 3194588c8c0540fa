//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
	"github.com/tierlora/tierlora/quant"
)

// The first constants on the device: NF4's codes, then the table of 8-bit scales.
const (
	nf4CodeBytes  = 256 // 16 fp32, padded
	nf4TableBytes = nf4CodeBytes + 256*4
)

func uploadNF4Tables(to gpu.Ptr) error {
	if err := gpu.Upload(to, quant.Schemes["nf4"].Table()); err != nil {
		return err
	}
	return gpu.Upload(to.Add(nf4CodeBytes), quant.NestedTable[:])
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

// weightBytes is the scratch for the weight, dequantised to the type of x.
func (k MatMulNF4) weightBytes(x Type) int64 {
	return (int64(k.N)*int64(k.K)*int64(x.DType.Size()) + 255) &^ 255
}

func (k MatMulNF4) ScratchGPU(in, out []Type, sm int) int64 {
	return k.weightBytes(in[0]) + k.op(in[0], out[0], 0).scratch(sm)
}

func (k MatMulNF4) op(x, out Type, beta float32) gemmOp {
	p := gemmOp{m: out.Shape[0], n: k.N, k: k.K, transB: true, alpha: 1, beta: beta, operand: x.DType, out: out.DType}
	if k.Transposed {
		p.n, p.k, p.transB = k.K, k.N, false
	}
	return p
}

func (k MatMulNF4) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0)
}

// bindGPU dequantises the weight into scratch memory and multiplies by it.
func (k MatMulNF4) bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error) {
	n := int64(k.N) * int64(k.K)
	entry, args := "nf4_dequantise", []any{g.Scratch, in[1].Ptr, g.Constants, in[2].Ptr, n}
	if k.Nested {
		entry, args = "nf4_dequantise_nested", []any{g.Scratch, in[1].Ptr, g.Constants, in[2].Ptr, g.Constants.Add(nf4CodeBytes), in[3].Ptr, in[4].Ptr, n}
	}
	dequantise, err := g.Launch(cuda.NF4Dequantise(entry, n), args...)
	if err != nil {
		return nil, err
	}
	mul, err := k.op(in[0].Type, out[0].Type, beta).bind(g, out[0].Ptr, in[0].Ptr, g.Scratch, g.Scratch.Add(k.weightBytes(in[0].Type)))
	if err != nil {
		return nil, err
	}
	g.Prologue = Prologue{dequantise, k.weightBytes(in[0].Type)}
	return mul, nil
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
