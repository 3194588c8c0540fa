package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
)

// What a plan for a GPU asks of kernels is in every build, so that one without GPU support plans for GPUs too. The bodies
// that run there have the build tag gpu.

// StoredOnGPU is a kernel that has a body for GPUs. A graph's real numbers are one type; on the device each value is stored
// as its kernels need it: activations and operands of GEMMs as ComputeType, the type of the plan's Precision, statistics and
// what is summed up as fp32.
type StoredOnGPU interface {
	Kernel
	// Stored is the element type in device memory of each input and output. in holds what is decided
	// already: fp32 for parameters and what they add up to, the stored type of computed values, 0 where the
	// kernel may choose, which it may for frozen weights. A parameter wanted as ComputeType is read from its copy
	// where that is not fp32.
	Stored(in []DType) (want, out []DType)
}

// CheckedOnGPU is a kernel whose GPU body does not serve every size that its Shape accepts, or not on every GPU: the error,
// at planning, names what is served. Types are as stored; sm is the device's compute capability, 10 major + minor.
type CheckedOnGPU interface {
	CheckGPU(in, out []Type, sm int) error
}

// SlowOnGPU is a kernel with a faster GPU body for some sizes than for others on the same device. SlowGPU says which of
// them it leaves, what that costs and what would help; its What is "" where it does not. Types as of CheckedOnGPU.
type SlowOnGPU interface {
	SlowGPU(in, out []Type, sm int) SlowPath
}

// ScratchOnGPU is a kernel whose GPU body needs working memory: bytes. sm is the
// device's compute capability, 10 major + minor.
type ScratchOnGPU interface {
	ScratchGPU(in, out []Type, sm int) int64
}

// PrologueOnGPU is a kernel whose GPU body leaves a Prologue if PrologueGPU returns true.
type PrologueOnGPU interface{ PrologueGPU() bool }

// ReleasedFor names the form of a released program's kernels that a device of compute capability sm runs, sm_90a or
// compute_90; jit tells that the driver compiles it on the machine.
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

// SlowPath is a fast path that a run leaves. Its numbers are right, but it takes longer than another run would.
type SlowPath struct {
	What   string `json:"what"`
	Cost   string `json:"cost"`   // as measured, with the device and where it is written, or NotMeasured
	Remedy string `json:"remedy"` // what takes the fast path, or what asks for the slow one
}

// NotMeasured is the cost of a slow path that nobody has timed.
const NotMeasured = "not measured"

func (s SlowPath) String() string { return s.What + "; cost: " + s.Cost + "; remedy: " + s.Remedy }
