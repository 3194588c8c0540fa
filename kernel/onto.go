package kernel

import "fmt"

// Onto adds the results of a kernel to addends, in the addends' memory. Its inputs are those of the kernel and then one
// addend for each output.
type Onto[K accumulates] struct{ Of K }

// accumulates is a kernel whose bodies can add to what is in their outputs' memory.
type accumulates interface {
	Costed
	StoredOnGPU
	// accumulation describes the form that adds to addends.
	accumulation() accumulation
	// bind binds the CPU body out = result + beta out; beta is 0 or 1.
	bind(c *CPU, in, out []Tensor, beta float64) func()
}

// accumulation describes a kernel's form that adds to addends.
type accumulation struct {
	inputs, results int // of the kernel itself
	// anyType says that an addend keeps its stored type on a GPU, such as fp32 where gradients of parameters add up.
	// Otherwise it has the stored type of the kernel's result.
	anyType bool
}

// Name returns the kernel's own name.
func (o Onto[K]) Name() string { return o.Of.Name() }

// Shape checks the kernel's inputs and that every addend has the type of its result.
func (o Onto[K]) Shape(in []Type) ([]Type, error) {
	a := o.Of.accumulation()
	return ontoShape(o.Of, in, a.inputs, a.results)
}

// ontoShape returns the shape of a form that adds the results of k, which takes some inputs, to addends.
func ontoShape(k Kernel, in []Type, inputs, results int) ([]Type, error) {
	if results < 1 || len(in) != inputs+results {
		return nil, fmt.Errorf("takes %d inputs and an addend for each of %d results, got %d inputs", inputs, results,
			len(in))
	}
	out, err := k.Shape(in[:inputs])
	if err != nil {
		return nil, err
	}
	for i, t := range out {
		if !in[inputs+i].Equal(t) {
			return nil, fmt.Errorf("the addend, input %d, is %v, the result is %v", inputs+i, in[inputs+i], t)
		}
	}
	return out, nil
}

// Overwrites pairs every output with its addend.
func (o Onto[K]) Overwrites() []Alias {
	a := o.Of.accumulation()
	all := make([]Alias, a.results)
	for i := range all {
		all[i] = Alias{Out: i, In: a.inputs + i}
	}
	return all
}

// Scratch returns the kernel's own.
func (o Onto[K]) Scratch(in []Type, workers int) int64 {
	if s, ok := any(o.Of).(Scratch); ok {
		return s.Scratch(in, workers)
	}
	return 0
}

// CPU binds the kernel's body so that it adds.
func (o Onto[K]) CPU(c *CPU, in, out []Tensor) func() { return o.Of.bind(c, in, out, 1) }

// Cost returns the kernel's own; the addends, which are read and written, count twice.
func (o Onto[K]) Cost(in, out []Type, c Content) Cost { return o.Of.Cost(in, out, c) }

// WithFP32Out returns the kernel unchanged, and whether its operand has a form with an fp32 output.
func (o Onto[K]) WithFP32Out() (Kernel, bool) {
	_, ok := any(o.Of).(FP32Output)
	return o, ok
}

// Stored returns the kernel's own stored types, and those of the addends for the outputs.
func (o Onto[K]) Stored(in []DType) (want, out []DType) {
	a := o.Of.accumulation()
	want, out = o.Of.Stored(in[:a.inputs])
	if a.anyType {
		out = in[a.inputs:]
	}
	return append(want, out...), append([]DType(nil), out...)
}

// ScratchGPU returns the kernel's own.
func (o Onto[K]) ScratchGPU(in, out []Type, sm int) int64 {
	if s, ok := any(o.Of).(ScratchOnGPU); ok {
		return s.ScratchGPU(in, out, sm)
	}
	return 0
}

// PrologueGPU tells whether the kernel leaves a Prologue.
func (o Onto[K]) PrologueGPU() bool {
	p, ok := any(o.Of).(PrologueOnGPU)
	return ok && p.PrologueGPU()
}

// SlowGPU returns the kernel's own slow path.
func (o Onto[K]) SlowGPU(in, out []Type, sm int) SlowPath {
	if s, ok := any(o.Of).(SlowOnGPU); ok {
		return s.SlowGPU(in, out, sm)
	}
	return SlowPath{}
}
