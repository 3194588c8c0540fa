//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU converts eight numbers a thread.
func (WidenBF16) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(out[0].Elems())
	return g.Launch(cuda.Flat("convert", "convert_bf16_to_f32", (n+7)/8), out[0].Ptr, in[0].Ptr, n)
}

// GPU rounds eight numbers, one draw of the generator, a thread.
func (k RoundStochastic) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(out[0].Elems())
	return g.Launch(cuda.Flat("stochastic", "stochastic_round", (n+7)/8), out[0].Ptr, in[1].Ptr, in[2].Ptr,
		int64(k.Stream), n)
}
