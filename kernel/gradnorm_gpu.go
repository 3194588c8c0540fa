//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (k GradNorm) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	partial, err := g.Launch(cuda.Norm(), g.Scratch, in[0].Ptr, int64(in[0].Elems()))
	if err != nil {
		return nil, err
	}
	finish, err := g.Launch(cuda.NormFinish(), out[0].Ptr, g.Scratch, int32(cuda.NormBlocks), float32(k.MaxNorm),
		in[1].Ptr, scalingAt(k.Scaled, in))
	if err != nil {
		return nil, err
	}
	return inOrder(partial, finish), nil
}
