//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (o Scale) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(out[0].Elems())
	return g.Launch(cuda.Elementwise("elementwise_scale", n), out[0].Ptr, in[0].Ptr, float32(o.By), n)
}
