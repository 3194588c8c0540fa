//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU writes each row from where it comes.
func (o ReplaceRows) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C, K := in[0].Shape[0], in[0].Shape[1], in[1].Shape[0]
	scale := float32(1)
	if o.Scale != 0 {
		scale = roundedTo(g.Precision.Stored(ComputeType), o.Scale)
	}
	return g.Launch(cuda.ReplaceRows(M, C), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, int32(K), int32(C), scale)
}

// GPU adds up the places of a row in one block for 1024 columns.
func (o ReplaceRowsGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	K, C, M := in[0].Shape[0], in[0].Shape[1], in[2].Shape[0]
	scale := float32(1)
	if o.Scale != 0 {
		scale = roundedTo(g.Precision.Stored(ComputeType), o.Scale)
	}
	entry := "replace_rows_grad"
	if in[2].DType == F32 && g.Precision.Stored(ComputeType) != F32 {
		entry = "replace_rows_grad_wide"
	}
	return g.Launch(cuda.ReplaceRowsGrad(entry, K, C), out[0].Ptr, in[2].Ptr, in[1].Ptr, int32(M), int32(C), scale)
}

// GPU looks up a place a thread.
func (Lookup) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, V := in[0].Shape[0], in[1].Shape[0]
	return g.Launch(cuda.Flat("replace_rows", "replace_rows_lookup", int64(M)), out[0].Ptr, in[0].Ptr, in[1].Ptr,
		int32(M), int32(V))
}
