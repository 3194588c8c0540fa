package graph

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel"
)

// target is the machine as the passes see it.
type target interface {
	// passes are what Compile does for it.
	passes() []pass
	// stored is the element type of each input and output of a kernel in memory. in is what is storedAs, 0
	// where a frozen value's is open; want may differ from it for a frozen value or a parameter.
	stored(k kernel.Kernel, in, declared []kernel.DType) (want, out []kernel.DType, err error)
	scratch(k kernel.Kernel, in, out []kernel.Type) int64
	// serves is nil where there is a body for a call of these types, as stored, else an error that names what is
	// served.
	serves(k kernel.Kernel, in, out []kernel.Type) error
	// slow is the fast path that such a call leaves; its What is "" where it leaves none.
	slow(k kernel.Kernel, in, out []kernel.Type) kernel.SlowPath
	// accumulate is the form of a kernel that adds to memory, if it has one here.
	accumulate(k kernel.Kernel) (kernel.Kernel, bool)
	// lowBits tells whether residual sums have more bits than values are stored with.
	lowBits() bool
	// fp8 tells whether large GEMMs with frozen weights multiply 8-bit floats.
	fp8() bool
	// groups tells whether n GEMMs k, whose operands and result are of the given types, are worth one call.
	groups(k kernel.MatMul, in []kernel.Type, out kernel.Type, n int) bool
	// pairs tells whether both gradients of a low-rank GEMM, dy b and dyᵀ t, are worth one call.
	pairs(dy, b kernel.Type) bool
	// prologue tells whether a kernel fills its scratch before its inputs are there.
	prologue(k kernel.Kernel) bool
	// sameSum is the bytes, as typed, up to which either term of a sum may as well be computed first.
	sameSum() int64
	// constants are bytes of tables that kernels read.
	constants() int64
}

// hostTarget stores every value as it is typed.
type hostTarget struct{ workers int }

func (hostTarget) passes() []pass { return passesOn(onCPU) }

func (hostTarget) stored(_ kernel.Kernel, in, declared []kernel.DType) (want, out []kernel.DType, err error) {
	return in, declared, nil
}

func (hostTarget) accumulate(k kernel.Kernel) (kernel.Kernel, bool) {
	if a, ok := k.(kernel.Accumulating); ok {
		return a.Accumulate()
	}
	return nil, false
}

func (hostTarget) serves(kernel.Kernel, []kernel.Type, []kernel.Type) error { return nil }

func (hostTarget) slow(kernel.Kernel, []kernel.Type, []kernel.Type) kernel.SlowPath {
	return kernel.SlowPath{}
}

func (hostTarget) lowBits() bool { return false }

func (hostTarget) fp8() bool { return false }

func (hostTarget) groups(kernel.MatMul, []kernel.Type, kernel.Type, int) bool { return false }

func (hostTarget) pairs(dy, b kernel.Type) bool { return false }

func (hostTarget) prologue(kernel.Kernel) bool { return false }

func (hostTarget) sameSum() int64 { return 0 }

func (hostTarget) constants() int64 { return 0 }

func (h hostTarget) scratch(k kernel.Kernel, in, _ []kernel.Type) int64 {
	if s, ok := k.(kernel.Scratch); ok {
		return s.Scratch(in, h.workers)
	}
	return 0
}

// gpuTarget is what the passes ask of every GPU. It needs no device and none of the kernels' GPU bodies.
type gpuTarget struct{ precision kernel.Precision }

func (gpuTarget) passes() []pass { return passesOn(onGPU) }

func (gpuTarget) accumulate(k kernel.Kernel) (kernel.Kernel, bool) {
	if a, ok := k.(kernel.AccumulatingOnGPU); ok {
		return a.AccumulateGPU()
	}
	return hostTarget{}.accumulate(k)
}

func (gpuTarget) serves(kernel.Kernel, []kernel.Type, []kernel.Type) error { return nil }

func (gpuTarget) slow(kernel.Kernel, []kernel.Type, []kernel.Type) kernel.SlowPath {
	return kernel.SlowPath{}
}

func (t gpuTarget) lowBits() bool { return t.precision.Stored(kernel.ComputeType) != kernel.F32 }

func (t gpuTarget) fp8() bool { return t.precision.FrozenFP8() }

func (gpuTarget) groups(k kernel.MatMul, in []kernel.Type, out kernel.Type, n int) bool {
	return kernel.FitsGroupedMatMul(k, in, out, n)
}

// pairs: what kernels of compute capability 9.0 do.
func (gpuTarget) pairs(dy, b kernel.Type) bool { return kernel.FitsMatMulGrads(dy, b, 90) }

// sameSum: about what stays in the second-level cache, as bf16, between two calls.
func (gpuTarget) sameSum() int64 { return 32 << 20 }

// deviceTarget stores values as their kernels' GPU bodies ask.
type deviceTarget struct {
	gpuTarget
	sm int
}

func newDeviceTarget(sm int, p kernel.Precision) deviceTarget { return deviceTarget{gpuTarget{p}, sm} }

func (t deviceTarget) stored(k kernel.Kernel, in, _ []kernel.DType) (want, out []kernel.DType, err error) {
	body, ok := k.(kernel.StoredOnGPU)
	if !ok {
		return nil, nil, fmt.Errorf("%s has no GPU body: this run needs device: cpu", k.Name())
	}
	want, out = body.Stored(in)
	for _, types := range [][]kernel.DType{want, out} {
		for i, d := range types {
			types[i] = t.precision.Stored(d)
		}
	}
	return want, out, nil
}

func (t deviceTarget) pairs(dy, b kernel.Type) bool {
	return t.lowBits() && kernel.FitsMatMulGrads(dy, b, t.sm)
}

func (t deviceTarget) scratch(k kernel.Kernel, in, out []kernel.Type) int64 {
	if s, ok := k.(kernel.ScratchOnGPU); ok {
		return s.ScratchGPU(in, out, t.sm)
	}
	return 0
}

func (t deviceTarget) serves(k kernel.Kernel, in, out []kernel.Type) error {
	if c, ok := k.(kernel.CheckedOnGPU); ok {
		return c.CheckGPU(in, out, t.sm)
	}
	return nil
}

func (t deviceTarget) slow(k kernel.Kernel, in, out []kernel.Type) kernel.SlowPath {
	if s, ok := k.(kernel.SlowOnGPU); ok {
		return s.SlowGPU(in, out, t.sm)
	}
	return kernel.SlowPath{}
}

func (deviceTarget) prologue(k kernel.Kernel) bool {
	p, ok := k.(kernel.PrologueOnGPU)
	return ok && p.PrologueGPU()
}

func (deviceTarget) constants() int64 { return kernel.ConstantBytes }
