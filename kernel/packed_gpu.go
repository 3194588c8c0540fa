//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// dequantisedBytes is the scratch for a packed weight [n,k], dequantised to the type of x.
func dequantisedBytes(x Type, n, k int) int64 {
	return (int64(n)*int64(k)*int64(x.DType.Size()) + 255) &^ 255
}

// packedScratchGPU is the scratch of a GEMM with a packed weight [n,k].
func packedScratchGPU(x, out Type, n, k int, transposed, apart bool, sm int) int64 {
	return dequantisedBytes(x, n, k) + packedOp(x, out, n, k, transposed, apart, 0).scratch(sm)
}

func packedOp(x, out Type, n, k int, transposed, apart bool, beta float32) gemmOp {
	p := gemmOp{m: out.Shape[0], n: n, k: k, transB: true, alpha: 1, beta: beta, operand: x.DType, out: out.DType, rowsApart: apart}
	if transposed {
		p.n, p.k, p.transB = k, n, false
	}
	return p
}

// bindPackedGPU dequantises a weight [n,k] into scratch memory by a launch and multiplies by it.
func bindPackedGPU(g *GPU, x, out DeviceTensor, n, k int, transposed, apart bool, beta float32, at cuda.Geometry, args ...any) (func() error, error) {
	dequantise, err := g.Launch(at, args...)
	if err != nil {
		return nil, err
	}
	bytes := dequantisedBytes(x.Type, n, k)
	mul, err := packedOp(x.Type, out.Type, n, k, transposed, apart, beta).bind(g, out.Ptr, x.Ptr, g.Scratch, g.Scratch.Add(bytes))
	if err != nil {
		return nil, err
	}
	g.Prologue = Prologue{dequantise, bytes}
	return mul, nil
}
