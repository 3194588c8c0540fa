// Package kernel defines the operations that a training step consists of.
//
// An operation is one type. One file holds it, with the operations that belong to it: rmsnorm.go defines shapes,
// gradient and CPU body, rmsnorm_gpu.go the GPU body, cuda/rmsnorm.cu the device code, and rmsnorm_test.go tests them.
// Operations need no registration: a layer that uses one names its type.
package kernel

// Kernel is one operation. Its exported fields are its attributes; two kernels with different attributes are different
// operations.
type Kernel interface {
	// Name returns the operation's stem, which its CUDA symbols begin with.
	Name() string

	// Shape checks the inputs' types and returns the outputs' types. It checks every requirement on an input and names
	// it in the error, so that bodies need no checks.
	Shape(in []Type) ([]Type, error)

	// CPU binds the operation to memory: it reads shapes, takes views and returns the work of a run. The work allocates
	// nothing. This body defines the operation; every other body must match it.
	CPU(c *CPU, in, out []Tensor) func()
}

// Differentiable is a kernel with a gradient.
type Differentiable interface {
	Kernel
	Grads() Backward
}

// Backward says how the gradients of a kernel's inputs are computed: which kernels run, and exactly which values they
// read. A value that is not named here does not outlive the forward pass.
type Backward struct {
	Calls []Call // run in order
	Grads []Ref  // one per input; the zero Ref where an input has no gradient
}

// Call applies a kernel to values named by reference.
type Call struct {
	Kernel Kernel
	In     []Ref
}

// Ref names a value around a kernel: one of its inputs, one of its outputs, the upstream gradient of its first output,
// or an output of an earlier Call of the same Backward. The zero Ref names nothing.
type Ref struct {
	kind  refKind
	Call  int // for FromCall
	Index int
}

type refKind uint8

const (
	RefNone refKind = iota
	RefIn
	RefOut
	RefUpstream
	RefCall
)

// Kind returns what the reference points at.
func (r Ref) Kind() refKind { return r.kind }

// In refers to the kernel's i-th input.
func In(i int) Ref { return Ref{kind: RefIn, Index: i} }

// Out refers to the kernel's i-th output.
func Out(i int) Ref { return Ref{kind: RefOut, Index: i} }

// Upstream refers to the gradient of the loss with respect to the kernel's first output.
func Upstream() Ref { return Ref{kind: RefUpstream} }

// FromCall refers to output i of the Backward's call c.
func FromCall(c, i int) Ref { return Ref{kind: RefCall, Call: c, Index: i} }

// Terminal marks a kernel that can only be the end of a graph: its gradients assume an upstream gradient of one for its
// first output. The graph refuses to differentiate it anywhere else.
type Terminal interface {
	Differentiable
	Terminal()
}

// HeldConstant marks a kernel whose outputs the backward pass holds constant, though its inputs depend on parameters. Any
// other kernel that passes no gradient to such an input is refused where a loss depends on it.
type HeldConstant interface {
	Kernel
	HeldConstant()
}

// InPlace is a kernel whose output may take the memory of an input that no later call reads. Output and input have the same
// type, and the body never reads the input's element i after it has written the output's element i.
type InPlace interface {
	InPlace() []Alias
}

// Overwriting is a kernel that updates inputs: each listed output always is the memory of its input.
type Overwriting interface {
	Overwrites() []Alias
}

// Alias pairs an output with an input.
type Alias struct{ Out, In int }

// Accumulating is a kernel with a form that adds its only output to an addend in the addend's memory. Accumulate
// returns that form, which takes the kernel's inputs and then the addend, and overwrites the addend. The graph uses it
// where the operand of a sum is computed for that sum alone.
type Accumulating interface {
	Accumulate() (Kernel, bool)
}

// AccumulatingOnGPU is Accumulating for kernels that have such a form in GPU plans alone.
type AccumulatingOnGPU interface {
	AccumulateGPU() (Kernel, bool)
}

// FP32Output is a kernel with a form whose only output a GPU stores as fp32; ok is false where there is no such form. A
// kernel that adds to an addend returns itself: the addend's stored type decides.
type FP32Output interface{ WithFP32Out() (k Kernel, ok bool) }

// RowsApart is a kernel with a form for few rows in which, on a GPU, the result for a row does not depend on the rest
// of the batch: a sequence gets the same bits whatever it shares a batch with.
type RowsApart interface{ WithRowsApart() Kernel }

// Scratch is a kernel that needs working memory during a run. The plan reserves it in the arena for the time of the
// call; the body finds it in CPU.Scratch.
type Scratch interface {
	// Scratch returns the bytes that a run with that many workers needs.
	Scratch(in []Type, workers int) int64
}
