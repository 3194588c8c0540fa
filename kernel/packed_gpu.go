//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// bindPackedGPU dequantises a weight [n,k] into scratch memory by a launch and multiplies by it.
func bindPackedGPU(g *GPU, x, out DeviceTensor, n, k int, transposed, apart bool, beta float32, at cuda.Geometry,
	args ...any) (func() error, error) {
	dequantise, err := g.Launch(at, args...)
	if err != nil {
		return nil, err
	}
	bytes := dequantisedBytes(x.Type, n, k)
	mul, err := packedOp(x.Type, out.Type, n, k, transposed, apart, beta).bind(g, out.Ptr, x.Ptr, g.Scratch,
		g.Scratch.Add(bytes))
	if err != nil {
		return nil, err
	}
	g.Prologue = Prologue{dequantise, bytes}
	return mul, nil
}
