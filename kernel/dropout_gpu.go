//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (k Dropout) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	place, err := g.share(k.Ranks)
	if err != nil {
		return nil, err
	}
	n := int64(out[0].Elems())
	return g.Launch(cuda.Flat("dropout", "dropout_apply", (n+7)/8), out[0].Ptr, in[0].Ptr, in[1].Ptr, int64(k.Stream),
		k.Threshold(), float32(1/(1-k.P)), n, int64(place)*n)
}

func (k DropSlots) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	place, err := g.share(k.Ranks)
	if err != nil {
		return nil, err
	}
	S, C := out[0].Shape[0], out[0].Shape[1]
	return g.Launch(cuda.DropoutSlots(S, C), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, int64(k.Stream),
		Dropout(k).Threshold(), float32(1/(1-k.P)), int32(S), int32(C), int64(place)*int64(out[0].Elems()))
}
