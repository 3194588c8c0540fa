//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU binds a launch.
func (ReLU2) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(in[0].Elems())
	return g.Launch(cuda.Flat("relu2", "relu2_forward", (n+7)/8), out[0].Ptr, in[0].Ptr, n)
}

// GPU binds a launch.
func (ReLU2Grad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(in[0].Elems())
	return g.Launch(cuda.Flat("relu2", "relu2_grad", (n+7)/8), out[0].Ptr, in[0].Ptr, in[1].Ptr, n)
}
