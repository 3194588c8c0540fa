//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
)

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

func (k MatMulNF4) FP32OutGPU() Kernel {
	k.FP32Out = true
	return k
}

// weightBytes is the scratch for the weight, decoded to the type of x.
func (k MatMulNF4) weightBytes(x Type) int64 {
	return (int64(k.N)*int64(k.K)*int64(x.DType.Size()) + 255) &^ 255
}

func (k MatMulNF4) ScratchGPU(in, out []Type, sm int) int64 {
	return k.weightBytes(in[0]) + k.product(in[0], out[0], 0).scratch(sm)
}

func (k MatMulNF4) product(x, out Type, beta float32) product {
	p := product{m: out.Shape[0], n: k.N, k: k.K, transB: true, alpha: 1, beta: beta, operand: x.DType, out: out.DType}
	if k.Transposed {
		p.n, p.k, p.transB = k.K, k.N, false
	}
	return p
}

func (k MatMulNF4) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0)
}

// bindGPU decodes the weight into scratch memory and multiplies by it.
func (k MatMulNF4) bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error) {
	n := int64(k.N) * int64(k.K)
	entry, args := "nf4_dequantise", []any{g.Scratch, in[1].Ptr, g.Constants, in[2].Ptr, n}
	if k.Nested {
		entry, args = "nf4_dequantise_nested", []any{g.Scratch, in[1].Ptr, g.Constants, in[2].Ptr, g.Constants.Add(codeTableBytes), in[3].Ptr, in[4].Ptr, n}
	}
	decode, err := g.Launch(cuda.NF4Dequantise(entry, n), args...)
	if err != nil {
		return nil, err
	}
	mul, err := k.product(in[0].Type, out[0].Type, beta).bind(g, out[0].Ptr, in[0].Ptr, g.Scratch, g.Scratch.Add(k.weightBytes(in[0].Type)))
	if err != nil {
		return nil, err
	}
	g.Prologue = Prologue{decode, k.weightBytes(in[0].Type)}
	return mul, nil
}

// PrologueGPU marks the decoding of the weight, which waits for no activation.
func (MatMulNF4) PrologueGPU() {}

func (k MatMulNF4To) Stored(in []DType) (want, out []DType) {
	want, _ = MatMulNF4(k).Stored(in)
	addend := in[MatMulNF4(k).inputs()]
	return append(want, addend), []DType{addend}
}

func (k MatMulNF4To) FP32OutGPU() Kernel { return k }

func (k MatMulNF4To) ScratchGPU(in, out []Type, sm int) int64 {
	return MatMulNF4(k).ScratchGPU(in, out, sm)
}

func (MatMulNF4To) PrologueGPU() {}

func (k MatMulNF4To) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return MatMulNF4(k).bindGPU(g, in, out, 1)
}
