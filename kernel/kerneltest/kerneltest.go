// Package kerneltest is the one suite that every kernel passes. A test names a kernel and its inputs; the
// suite checks everything that the contract of kernel.Kernel promises:
//
//	shape       Shape accepts the case, refuses a wrong number of inputs and wrong element types; whatever
//	            else it accepts, the body can run
//	gradient    float64: Backward against central differences
//	precision   the float32 result against the float64 result of the same kernel
//	sentinel    nothing outside the outputs is written, no input changes that is not overwritten
//	unwritten   the result does not depend on what outputs and scratch held before
//	repeat      the same bits when run again, and with 1, 2, 3 and 4 workers
//	in place    every allowed aliasing gives the bits of the plain form
//	accumulate  Accumulate is the kernel and then a sum
//	allocation  a run allocates nothing
//	cost        Cost has bytes, no more than those of all inputs and outputs, and no FLOPs below zero
package kerneltest

import (
	"fmt"
	"hash/fnv"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// Case is one kernel with inputs.
type Case struct {
	Name   string
	Kernel kernel.Kernel
	In     []Input

	// At makes the kernel for a run in f32 or f64, for kernels whose attributes say which; else nil.
	At func(float kernel.DType) kernel.Kernel

	// Bound is the largest allowed difference between the float32 and the float64 result, relative to
	// the largest magnitude of the output; 0 means equal. Set it to about twice what was measured: Run
	// logs the measurement.
	Bound float64

	// Step is the distance of the central differences; 0 means 1e-3, right for inputs of magnitude 1.
	Step float64

	// AnyType says that the kernel takes inputs of every element type.
	AnyType bool

	// Rejects are lists of input types that Shape must refuse, by what is wrong with them.
	Rejects map[string][]kernel.Type
}

// Run checks every case in a subtest of its name.
func Run(t *testing.T, cases ...Case) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			faults, measured := check(c)
			for _, f := range faults {
				t.Error(f)
			}
			t.Log(measured)
		})
	}
}

type fault struct {
	kind string
	err  error
}

func (f fault) String() string { return fmt.Sprintf("%s: %v", f.kind, f.err) }

// checker gathers the faults of one case.
type checker struct {
	Case
	faults   []fault
	measured string
}

func check(c Case) ([]fault, string) {
	k := &checker{Case: c}
	if c.Kernel == nil && c.At != nil {
		k.Kernel = c.At(kernel.F32)
	}
	if !k.guard("panic", k.shape) {
		return k.faults, k.measured
	}
	k.guard("panic", k.sentinels)
	if len(k.faults) == 0 {
		k.guard("panic", k.precision)
		k.guard("panic", k.gradient)
		k.guard("panic", k.repeat)
		k.guard("panic", k.inPlace)
		k.guard("panic", k.accumulate)
		k.guard("panic", k.allocation)
		k.guard("panic", k.cost)
	}
	return k.faults, k.measured
}

// guard turns a panic of f into a fault and tells whether there were no faults.
func (c *checker) guard(kind string, f func()) bool {
	before := len(c.faults)
	if p := recovered(f); p != nil {
		c.fail(kind, "%v", p)
	}
	return len(c.faults) == before
}

func recovered(f func()) (p any) {
	defer func() { p = recover() }()
	f()
	return nil
}

func (c *checker) fail(kind, format string, args ...any) {
	c.faults = append(c.faults, fault{kind, fmt.Errorf(format, args...)})
}

// at returns the kernel for a run in float.
func (c *checker) at(float kernel.DType) kernel.Kernel {
	if c.At != nil {
		return c.At(float)
	}
	return c.Kernel
}

func (c *checker) types(float kernel.DType) []kernel.Type {
	types := make([]kernel.Type, len(c.In))
	for i, in := range c.In {
		types[i] = in.typ(float)
	}
	return types
}

// inputs returns fresh buffers with the case's values.
func (c *checker) inputs(float kernel.DType) []*buffer {
	in := make([]*buffer, len(c.In))
	for i, x := range c.In {
		in[i] = newBuffer(x.typ(float))
		x.fill(in[i], c.seed(i))
	}
	return in
}

func (c *checker) seed(i int) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", c.Name, i)
	return h.Sum64()
}

var floats = []kernel.DType{kernel.F32, kernel.F64}
