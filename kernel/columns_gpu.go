//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (o Columns) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	x := in[0].Ptr.Add(int64(o.From * in[0].DType.Size()))
	return g.Launch(cuda.Columns(M, o.Width), out[0].Ptr, x, int32(C), int32(o.Width))
}
