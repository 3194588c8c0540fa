//go:build gpu

package graph

// slow: what is missing beside the device, and kernels that are not compiled for it.
func (g *GPU) slow() []SlowPath {
	all := slowKernels(g.gpu.Device.SM())
	if g.gpu.BLAS == nil {
		all = append(all, slowLibrary(g.gpu.Device.SM(), g.gpu.Precision, g.noBLAS))
	}
	return all
}
