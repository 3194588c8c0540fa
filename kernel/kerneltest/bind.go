package kerneltest

import (
	"fmt"
	"sync"

	"github.com/tierlora/tierlora/kernel"
)

// maxWorkers is the largest number of threads that results are compared over.
const maxWorkers = 4

var cpus = sync.OnceValue(func() (c [maxWorkers + 1]*kernel.CPU) {
	for n := 1; n <= maxWorkers; n++ {
		c[n] = kernel.NewCPU(n)
	}
	return c
})

// bound is a kernel with memory.
type bound struct {
	in, out []*buffer
	scratch *buffer
	run     func()
}

// Two values that outputs and scratch hold before a run; both are NaN in every float type.
const (
	poison      = 0xff
	otherPoison = 0x7f
)

// bind gives a kernel memory. share maps outputs to the inputs whose memory they take, besides those that
// the kernel overwrites.
func bind(k kernel.Kernel, workers int, in []*buffer, share map[int]int, poison byte) (*bound, error) {
	types := make([]kernel.Type, len(in))
	tensors := make([]kernel.Tensor, len(in))
	for i, b := range in {
		types[i], tensors[i] = b.Type, b.Tensor
	}
	outTypes, err := k.Shape(types)
	if err != nil {
		return nil, err
	}
	b := &bound{in: in}
	forced := map[int]int{}
	for o, i := range share {
		forced[o] = i
	}
	for _, a := range overwrites(k) {
		forced[a.Out] = a.In
	}
	outs := make([]kernel.Tensor, len(outTypes))
	for i, t := range outTypes {
		if from, ok := forced[i]; ok {
			if t.DType != in[from].DType || t.Elems() != in[from].Elems() {
				return nil, fmt.Errorf("output %d is %v, input %d that it shares memory with is %v", i, t, from,
					in[from].Type)
			}
			shared := in[from]
			shared.Type = t
			b.out = append(b.out, shared)
		} else {
			b.out = append(b.out, newBuffer(t))
			b.out[i].poison(poison)
		}
		outs[i] = b.out[i].Tensor
	}
	cpu := kernel.CPU{Pool: cpus()[workers].Pool}
	if s, ok := k.(kernel.Scratch); ok {
		if n := s.Scratch(types, workers); n > 0 {
			b.scratch = newBuffer(kernel.T(kernel.U8, int(n)))
			b.scratch.poison(poison)
			cpu.Scratch = b.scratch.Bytes()
		}
	}
	b.run = k.CPU(&cpu, tensors, outs)
	// What follows the call in a plan has scratch of its own: the body must have kept its own view.
	cpu.Scratch = nil
	return b, nil
}

func overwrites(k kernel.Kernel) []kernel.Alias {
	if o, ok := k.(kernel.Overwriting); ok {
		return o.Overwrites()
	}
	return nil
}

// overwritten tells which inputs the kernel may change.
func overwritten(k kernel.Kernel) map[int]bool {
	w := map[int]bool{}
	for _, a := range overwrites(k) {
		w[a.In] = true
	}
	return w
}

// result runs a kernel once on fresh memory.
func result(k kernel.Kernel, workers int, in []*buffer, poison byte) ([]*buffer, error) {
	b, err := bind(k, workers, in, nil, poison)
	if err != nil {
		return nil, err
	}
	b.run()
	return b.out, nil
}
