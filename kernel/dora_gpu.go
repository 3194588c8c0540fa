//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU gives a warp to each row.
func (o DoRANorm) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	N, R := in[3].Shape[0], in[3].Shape[1]
	return g.Launch(cuda.DoRANorm(N), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr, int32(N), int32(R),
		float32(o.Scale))
}

// GPU scales eight values a thread.
func (DoRAScale) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, N := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.DoRAScale(M, N), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, int64(M), int32(N))
}

// GPU sums slices of rows, and then the slices in their order.
func (DoRAScaleGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, N := in[0].Shape[0], in[0].Shape[1]
	slices := (M + doraSlice - 1) / doraSlice
	rows, err := g.Launch(cuda.DoRAScaleGrad(M, N, doraSlice), out[0].Ptr, g.Scratch, in[0].Ptr, in[1].Ptr,
		in[2].Ptr, in[3].Ptr, int32(M), int32(N), int32(doraSlice))
	if err != nil {
		return nil, err
	}
	sum, err := g.Launch(cuda.DoRAMagnitude(N), out[1].Ptr, g.Scratch, in[2].Ptr, int32(slices), int32(N))
	return inOrder(rows, sum), err
}
