//go:build gpu

package kernel

// accumulatesOnGPU is a kernel whose GPU body can add to what is in its outputs' memory.
type accumulatesOnGPU interface {
	// bindGPU binds the body out = result + beta out; beta is 0 or 1.
	bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error)
}

// GPU binds the kernel's body so that it adds.
func (o Onto[K]) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return any(o.Of).(accumulatesOnGPU).bindGPU(g, in, out, 1)
}
