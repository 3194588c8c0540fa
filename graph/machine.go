package graph

import (
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/kernel"
)

// Machine compiles plans and runs them. It belongs to one goroutine; a GPU's machine also locks its OS thread.
type Machine interface {
	// Name returns "cpu", or the device's name.
	Name() string
	// Workers returns the number of CPU threads.
	Workers() int
	// Precision returns how its plans store and multiply numbers: fp32 on the CPU, whatever a graph is typed as.
	Precision() kernel.Precision
	// Capabilities returns what a layout may rely on.
	Capabilities() Capabilities
	// Software returns what else decides the last bits of its results.
	Software() Software
	// FreeMemory returns the bytes that plans may allocate; known is false where the system does not say.
	FreeMemory() (bytes int64, known bool, err error)
	// Compile returns a plan for the machine; see Builder.Compile.
	Compile(b *Builder, outputs ...*Value) (*Plan, error)
	// NewStore allocates all memory that the plans need when they share it.
	NewStore(plans ...*Plan) (Store, error)
	// Bind gives a plan its memory.
	Bind(p *Plan, s Store) (Runner, error)
	Close() error
}

// Software describes what a machine computes with. Equal programs on equal machines with equal software give equal
// bits.
type Software struct {
	// SHA-256 of the compiled GPU kernels; on a CPU the instruction set
	Kernels    string   `json:"kernels,omitempty"`
	Driver     string   `json:"driver,omitempty"`            // version of the GPU's driver
	Libraries  []string `json:"libraries,omitempty"`         // name and version of those in use
	Algorithms string   `json:"algorithms_sha256,omitempty"` // of those that libraries chose for the shapes used so far
}

// Capabilities describes what a layout may rely on.
type Capabilities struct {
	// SeparateHost says that host memory is not the machine's own, so that values can be offloaded to it.
	SeparateHost bool
	// Async says that calls return once the work is queued.
	Async bool
	// Overlap says that calls that do not depend on one another run at the same time.
	Overlap bool
	// KeepDequantised says that dequantised copies of quantised weights save enough time to be worth their memory.
	KeepDequantised bool
	// Halves says that frozen matrices may stay the 16-bit floats of a checkpoint, for GEMMs of few rows, which are
	// bound by reading them. A machine that chooses the type of its operands itself ignores it.
	Halves bool
	// LogitRows is how many rows of logits, computed together, fill the machine.
	LogitRows int
	// CapturedCall is the driver's memory for one call of a captured graph, in bytes, beside the plan's own; 0 = none.
	CapturedCall int64
}

// Store is the memory that plans run in. On a GPU, Tensor returns host memory: Put sends what the host wrote there to
// the device, and Get fetches what the device wrote. On the CPU both are the same memory. A Put of a value of the batch
// sends the others of the batch too.
type Store interface {
	Tensor(name string) (kernel.Tensor, error)
	Put(names ...string) error
	Get(names ...string) error
	// Forget frees the host memory of State that is not read again soon; Tensor and Get allocate it again.
	Forget(names ...string)
	// Clear zeroes a group of State, behind the work that is queued.
	Clear(group string) error
	Bytes() Bytes
	Close() error
}

// Runner is a plan bound to memory.
type Runner interface {
	// Prepare allocates what Run of these segments needs. Run does so itself where Prepare was not called.
	Prepare(segments ...string) error
	// Run runs segments one after the other. On a GPU they are one captured graph, and it returns when the
	// work is queued.
	Run(segments ...string) error
	// Read waits for the work and returns an output that Compile was given.
	Read(v *Value) (kernel.Tensor, error)
	// Reader returns a reader for outputs that the host reads while later work runs.
	Reader(outputs ...*Value) (Reader, error)
}

// Reader copies outputs to the host as they are at one point of the queued work, without delaying the work behind it.
type Reader interface {
	// Queue requests the outputs as the work queued so far leaves them. At most two requests can be pending.
	Queue() error
	// Next waits for the oldest request. The tensors are valid until the next call.
	Next() ([]kernel.Tensor, error)
}

// readsAhead is how many times outputs may be asked for before they are read.
const readsAhead = 2

// readQueue is the ring of outputs asked for and not read yet.
type readQueue struct{ asked, read int }

func (t *readQueue) ask() (slot int, err error) {
	if t.asked-t.read == readsAhead {
		return 0, fmt.Errorf("outputs were asked for %d times and not read", readsAhead)
	}
	t.asked++
	return (t.asked - 1) % readsAhead, nil
}

func (t *readQueue) next() (slot int, err error) {
	if t.read == t.asked {
		return 0, errors.New("outputs are read that nobody asked for")
	}
	t.read++
	return (t.read - 1) % readsAhead, nil
}

// hostReader copies when asked: the work is done by then.
type hostReader struct {
	readQueue
	from  []kernel.Tensor
	slots [readsAhead][]kernel.Tensor
}

func (r *hostReader) Queue() error {
	slot, err := r.ask()
	if err != nil {
		return err
	}
	for i, t := range r.from {
		copy(r.slots[slot][i].Bytes(), t.Bytes())
	}
	return nil
}

func (r *hostReader) Next() ([]kernel.Tensor, error) {
	slot, err := r.next()
	if err != nil {
		return nil, err
	}
	return r.slots[slot], nil
}

// Joiner is a machine that trains together with others. Plans of more than one rank are bound after Join.
type Joiner interface {
	// Join makes the machine one of a group's ranks. All of them call it at the same time.
	Join(g kernel.Group) error
	// Abandon ends collective operations that wait for a lost rank. Any goroutine may call it; results computed
	// afterwards are meaningless.
	Abandon()
}

// CPU is the machine of the computer's own processor.
type CPU struct{ cpu *kernel.CPU }

// NewCPU starts worker threads; 0 means one for each core.
func NewCPU(workers int) *CPU { return &CPU{kernel.NewCPU(workers)} }

func (*CPU) Name() string { return "cpu" }

func (c *CPU) Workers() int { return c.cpu.Workers() }

func (*CPU) Precision() kernel.Precision { return kernel.PrecisionFP32 }

// Software names the instructions that GEMMs use.
func (*CPU) Software() Software { return Software{Kernels: kernel.Instructions()} }

// Capabilities says that host memory is all the memory and that each call uses all cores.
func (*CPU) Capabilities() Capabilities { return Capabilities{LogitRows: 256, Halves: true} }

// FreeMemory returns what Linux reports as available without swapping, limited by the process's control groups.
func (c *CPU) FreeMemory() (bytes int64, known bool, err error) {
	bytes, known = availableMemory("/")
	return bytes, known, nil
}

func (c *CPU) Compile(b *Builder, outputs ...*Value) (*Plan, error) {
	return b.Compile(c.cpu.Workers(), outputs...)
}

func (c *CPU) NewStore(plans ...*Plan) (Store, error) {
	m, err := NewMemory(plans...)
	if err != nil {
		return nil, err
	}
	rank, world := 0, 1
	if g := c.cpu.Group; g != nil {
		rank, world = g.Rank(), g.World()
	}
	if m.rank, err = rankAmong(m.ranks, rank, world); err != nil {
		return nil, err
	}
	return m, nil
}

func (c *CPU) Bind(p *Plan, s Store) (Runner, error) {
	m, ok := s.(*Memory)
	if !ok {
		return nil, fmt.Errorf("the plan is for the CPU, its memory is a %T", s)
	}
	return p.Bind(m, c.cpu)
}

// Join makes the CPU one of a group's ranks: collective operations go over the group's Gather.
func (c *CPU) Join(g kernel.Group) error {
	c.cpu.Group = g
	return nil
}

// Abandon does nothing: a group's Gather ends by itself where a rank is lost.
func (*CPU) Abandon() {}

// Close ends the threads.
func (c *CPU) Close() error {
	c.cpu.Pool.Close()
	return nil
}

// Get does nothing: the tensors are the memory.
func (m *Memory) Get(...string) error { return nil }

// Forget does nothing: the tensors are the memory.
func (m *Memory) Forget(...string) {}

// Close does nothing: the memory goes with the last reference to it.
func (m *Memory) Close() error { return nil }

// Read returns the memory of an input, or of an output that Compile was given.
func (r *Run) Read(v *Value) (kernel.Tensor, error) { return r.values[v], nil }

// Prepare does nothing: bound kernels are all that a run needs.
func (r *Run) Prepare(...string) error { return nil }

// Reader is for outputs that Compile was given.
func (r *Run) Reader(outputs ...*Value) (Reader, error) {
	h := &hostReader{}
	for _, v := range outputs {
		t, ok := r.values[v]
		if !ok {
			return nil, fmt.Errorf("%s is no output of the plan", v.Name)
		}
		h.from = append(h.from, t)
		for i := range h.slots {
			h.slots[i] = append(h.slots[i], kernel.NewTensor(t.Type, kernel.Alloc(t.Type.Bytes())))
		}
	}
	return h, nil
}
