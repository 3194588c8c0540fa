//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (o SoftCap) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(in[0].Elems())
	return g.Launch(cuda.Flat("softcap", "softcap_apply", n), out[0].Ptr, in[0].Ptr, float32(o.Cap), n)
}
