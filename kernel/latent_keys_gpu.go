//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (o LatentKeys) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, R := in[0].Shape[0], in[1].Shape[1]
	at, unit := cuda.LatentKeys("latent_keys_forward", int64(M)*int64(o.Heads), o.Of, o.Own, R)
	return g.Launch(at, out[0].Ptr, in[0].Ptr, in[1].Ptr, uint32(M)*uint32(o.Heads), uint32(o.Heads), int32(o.Of),
		int32(o.Own), int32(R), int32(unit))
}

func (o LatentKeysGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, R := in[0].Shape[0], out[1].Shape[1]
	at, unit := cuda.LatentKeys("latent_keys_own", int64(M)*int64(o.Heads), o.Of, o.Own, R)
	own, err := g.Launch(at, out[0].Ptr, in[0].Ptr, uint32(M)*uint32(o.Heads), int32(o.Of), int32(o.Own), int32(R),
		int32(unit))
	if err != nil {
		return nil, err
	}
	shared, err := g.Launch(cuda.Flat("latent_keys", "latent_keys_shared", int64(M)*int64(R)), out[1].Ptr, in[0].Ptr,
		uint32(M), int32(o.Heads), int32(o.Own), int32(R))
	return inOrder(own, shared), err
}
