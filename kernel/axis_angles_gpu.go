//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU gives each frequency of a token a thread.
func (o AxisAngles) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, R := out[0].Shape[0], out[0].Shape[1]
	return g.Launch(cuda.Flat("axis_angles", "axis_angles_take", int64(M)*int64(R/2)), out[0].Ptr, in[0].Ptr, in[1].Ptr,
		int32(in[0].Shape[0]), int32(M), int32(R), int32(o.Rows), int32(o.Columns))
}
