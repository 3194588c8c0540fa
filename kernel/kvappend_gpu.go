//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (KVAppend) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	P, T, W := in[0].Shape[0], in[1].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.KVAppend(T, W), out[0].Ptr, in[1].Ptr, in[2].Ptr, int32(P), int32(W),
		int32(in[2].Shape[0]/max(1, T)))
}
