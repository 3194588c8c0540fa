//go:build gpu

package kernel

// expertsOnGPU is a GEMM of experts whose GPU body takes a low-rank update of the same rows along.
type expertsOnGPU interface {
	OnGPU
	bindGPU(g *GPU, in, out []DeviceTensor, beta float32, low expertLow) (func() error, error)
}

func (k ExpertUpdate) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	base, _, low := splitUpdate(k, in)
	beta := float32(0)
	if k.Onto {
		beta = 1
	}
	return k.Base.(expertsOnGPU).bindGPU(g, base, out, beta, expertLow{low[0].Ptr, low[1].Ptr, low[0].Shape[1], k.Low.TransB, float32(MatMul{Alpha: k.Low.Alpha}.alpha())})
}
