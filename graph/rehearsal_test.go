package graph

import "github.com/tierlora/tierlora/kernel"

// Rehearsal compiles a computation as for a GPU, with all that is merged and kept wider there, and runs it on the
// CPU's bodies in the CPU's types.
type Rehearsal struct{ *CPU }

// NewRehearsal is of an H100 in bf16.
func NewRehearsal(workers int) Rehearsal { return Rehearsal{NewCPU(workers)} }

func (r Rehearsal) Compile(b *Builder, outputs ...*Value) (*Plan, error) {
	return b.compile(rehearsed{gpuTarget{kernel.PrecisionBF16}, hostTarget{r.Workers()}}, false, outputs)
}

// rehearsed has a GPU's passes and the CPU's memory.
type rehearsed struct {
	gpuTarget
	host hostTarget
}

func (r rehearsed) stored(k kernel.Kernel, in, declared []kernel.DType) (want, out []kernel.DType, err error) {
	return r.host.stored(k, in, declared)
}

func (r rehearsed) scratch(k kernel.Kernel, in, out []kernel.Type) int64 {
	return r.host.scratch(k, in, out)
}

func (rehearsed) prologue(kernel.Kernel) bool { return false }

func (rehearsed) constants() int64 { return 0 }

// Merged counts a plan's calls that a GPU's plan alone has.
func Merged(p *Plan) int {
	n := 0
	for _, c := range p.calls {
		switch c.kernel.(type) {
		case kernel.AddRMSNorm, kernel.AddLowBits, kernel.RMSNormLowBits, kernel.RMSNormGradTo, kernel.RMSNormRoPE,
			kernel.RMSNormRoPEGrad, kernel.ExpertUpdate:
			n++
		}
	}
	return n
}

// CallsNamed counts a plan's calls of a kernel.
func CallsNamed(p *Plan, name string) int {
	n := 0
	for _, c := range p.calls {
		if c.kernel.Name() == name {
			n++
		}
	}
	return n
}
