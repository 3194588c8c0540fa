//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU launches head_parts_split or head_parts_join.
func (o HeadParts) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, w := in[0].Shape[0], o.Widths
	at, unit := cuda.HeadParts(M, o.Heads, w, o.Back)
	return g.Launch(at, out[0].Ptr, in[0].Ptr, uint32(M), int32(o.Heads), int32(w[0]), int32(w[1]), int32(w[2]),
		int32(w[3]), int32(unit))
}
