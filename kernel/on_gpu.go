package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
)

// Every build holds what plans for GPUs ask of kernels, so that a build without GPU support plans for GPUs too. The GPU
// bodies have the build tag gpu.

// StoredOnGPU is a kernel that has a body for GPUs. All real numbers of a graph have one type; on the device each value
// is stored as its kernels need it: activations and operands of GEMMs as ComputeType, the type of the plan's Precision,
// statistics and sums as fp32.
type StoredOnGPU interface {
	Kernel
	// Stored returns the element type in device memory of each input and output. in holds the types that are already
	// decided: fp32 for parameters and their gradients' sums, the stored type of computed values, and 0 for frozen
	// weights, whose type the kernel chooses. A parameter wanted as ComputeType is read from its 16-bit copy unless
	// that type is fp32.
	Stored(in []DType) (want, out []DType)
}

// CheckedOnGPU is a kernel whose GPU body does not support every size that its Shape accepts, or not on every GPU.
// CheckGPU's error, which planning reports, names what is supported. Types are as stored; sm is the device's compute
// capability, 10 major + minor.
type CheckedOnGPU interface {
	CheckGPU(in, out []Type, sm int) error
}

// SlowOnGPU is a kernel whose GPU body is faster for some sizes than for others on the same device. SlowGPU returns
// which fast path these sizes miss, what that costs and what would help; its What is "" if they miss none. Types are as
// of CheckedOnGPU.
type SlowOnGPU interface {
	SlowGPU(in, out []Type, sm int) SlowPath
}

// ScratchOnGPU is a kernel whose GPU body needs working memory. ScratchGPU returns it in bytes; sm is the device's
// compute capability, 10 major + minor.
type ScratchOnGPU interface {
	ScratchGPU(in, out []Type, sm int) int64
}

// PrologueOnGPU is a kernel whose GPU body leaves a Prologue if PrologueGPU returns true.
type PrologueOnGPU interface{ PrologueGPU() bool }

// ReleasedFor returns the form of a released program's kernels that a device of compute capability sm runs, such as
// sm_90a or compute_90; jit says that the driver compiles it on the machine.
func ReleasedFor(sm int) (form string, jit bool, err error) {
	c, ok := cuda.ReleasedFor(sm)
	if !ok {
		return "", false, fmt.Errorf("released programs hold no kernels for compute capability %d.%d", sm/10, sm%10)
	}
	return c.String(), c.PTX, nil
}

// Constants on the device: the tables of storage schemes, sets of counters, then
// space for the orders in which attention takes its tiles, which the first attention of a run works out.
const (
	counterOffset = nf4TableBytes
	counterBytes  = cuda.LowRankCounters * 4
	counterSets   = 32
	orderOffset   = counterOffset + counterSets*counterBytes
	orderBytes    = 64<<10 - nestedBytes
	ConstantBytes = orderOffset + orderBytes
)

// The first constants on the device: NF4's and FP4's codes, then the tables of 8-bit scales.
const (
	fp4CodeOffset = 128 // of 16 fp32
	nf4CodeBytes  = 256
	nestedBytes   = 256 * 4
	nf4TableBytes = nf4CodeBytes + 2*nestedBytes
)

// SlowPath describes a fast path that a run misses. Its results are right, but it takes longer than it could.
type SlowPath struct {
	What   string `json:"what"`
	Cost   string `json:"cost"`   // the measured cost, with the device and the report, or NotMeasured
	Remedy string `json:"remedy"` // what to change to take the fast path
}

// NotMeasured is the cost of a slow path that nobody has timed.
const NotMeasured = "not measured"

func (s SlowPath) String() string { return s.What + "; cost: " + s.Cost + "; remedy: " + s.Remedy }
