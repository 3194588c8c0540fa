//go:build gpu

package graph

// UseNativeGEMM makes plans that are bound from now on multiply by our own kernels; it reports whether cuBLASLt
// served until now.
func (g *GPU) UseNativeGEMM() (library bool) {
	library = g.gpu.BLAS != nil
	g.gpu.BLAS = nil
	return library
}
