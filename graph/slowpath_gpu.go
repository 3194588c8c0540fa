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

// slow of a chip leaves libraries out: those of its machine are not known.
func (c *chip) slow() []SlowPath { return slowKernels(c.SM) }

func slowKernels(sm int) []SlowPath {
	if form, jit, err := kernelsFor(sm); err == nil && jit {
		return []SlowPath{slowCode(sm, form)}
	}
	return nil
}
