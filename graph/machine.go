package graph

import (
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/kernel"
)

// Machine is what plans are compiled for and run on. It belongs to one goroutine; a GPU's also holds its OS
// thread.
type Machine interface {
	// Name is "cpu", or the device's.
	Name() string
	// Workers is the number of CPU threads.
	Workers() int
	// Precision is how its plans store and multiply numbers: fp32 on the CPU, whatever a graph is typed as.
	Precision() kernel.Precision
	// Capabilities are what a layout may count on.
	Capabilities() Capabilities
	// Software is what else decides the last bits of its numbers.
	Software() Software
	// FreeMemory is what plans may take; known is false where the system does not say.
	FreeMemory() (bytes int64, known bool, err error)
	// Compile makes a plan laid out for the machine; see Builder.Compile.
	Compile(b *Builder, outputs ...*Value) (*Plan, error)
	// NewStore takes the memory that plans need when they share it, all of it at once.
	NewStore(plans ...*Plan) (Store, error)
	// Bind gives a plan its memory.
	Bind(p *Plan, s Store) (Runner, error)
	Close() error
}

// Software is what a machine computes with. Equal programs on equal machines with equal software give equal bits.
type Software struct {
	Kernels    string   `json:"kernels,omitempty"`           // SHA-256 of the compiled GPU kernels; on a CPU the instruction set
	Driver     string   `json:"driver,omitempty"`            // version of the GPU's driver
	Libraries  []string `json:"libraries,omitempty"`         // name and version of those in use
	Algorithms string   `json:"algorithms_sha256,omitempty"` // of those that libraries chose for the shapes used so far
}

// Capabilities are what a layout may count on.
type Capabilities struct {
	// SeparateHost: host memory is not the machine's own, so that values can be offloaded there.
	SeparateHost bool
	// Async: work goes on after it is queued.
	Async bool
	// Overlap: calls that do not depend on one another run at the same time.
	Overlap bool
	// KeepDequantised: quantised weights kept as the numbers they stand for save enough time to be worth their memory.
	KeepDequantised bool
	// Halves: frozen matrices may be kept in memory as the 16-bit floats of a checkpoint, for GEMMs of few rows, which are bound by
	// reading them. A machine that chooses the type of its operands itself needs no such word.
	Halves bool
	// LogitRows is how many rows of logits, computed together, fill the machine.
	LogitRows int
	// CapturedCall is the bytes that the driver holds for a call of a captured graph, beside the plan's; 0 = none.
	CapturedCall int64
}

// Store is the memory that plans run in. On a GPU, Tensor is host memory: what the host writes there is sent
// by Put, and what the device wrote is fetched by Get. On the CPU they are one and the same.
type Store interface {
	Tensor(name string) (kernel.Tensor, error)
	Put(names ...string) error
	Get(names ...string) error
	// Forget gives back the host memory of State that will not be looked at again soon; Tensor and Get take it anew.
	Forget(names ...string)
	Bytes() Bytes
	Close() error
}

// Runner is a plan bound to memory.
type Runner interface {
	// Prepare takes what Run of these segments needs. Run does it where that was left out.
	Prepare(segments ...string) error
	// Run runs segments one after the other. On a GPU they are one captured graph, and it returns when the
	// work is queued.
	Run(segments ...string) error
	// Read waits for the work and returns an output that Compile was given.
	Read(v *Value) (kernel.Tensor, error)
	// Reader is for outputs that are read while later work is under way.
	Reader(outputs ...*Value) (Reader, error)
}

// Reader brings outputs to the host as they are at one place in the work, without holding up what follows.
type Reader interface {
	// Queue asks for the outputs as the work that is queued already leaves them. Two may be asked for at a time.
	Queue() error
	// Next waits for the oldest that were asked for. The tensors hold until the next call.
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

// Joiner is a machine that trains with others: plans of more than one rank are bound after it has joined them.
type Joiner interface {
	// Join makes the machine one of a group's ranks. All of them call it at the same time.
	Join(g kernel.Group) error
	// Abandon ends collective operations that wait for a rank which is lost. It may be called from any goroutine, and what
	// the machine computes from then on has no meaning.
	Abandon()
}

// CPU is the machine this program runs on.
type CPU struct{ cpu *kernel.CPU }

// NewCPU starts worker threads; 0 means one for each core.
func NewCPU(workers int) *CPU { return &CPU{kernel.NewCPU(workers)} }

func (*CPU) Name() string { return "cpu" }

func (c *CPU) Workers() int { return c.cpu.Workers() }

func (*CPU) Precision() kernel.Precision { return kernel.PrecisionFP32 }

// Capabilities of a CPU: what is on the host is all there is, and each call uses all cores.
// Software names the instructions that GEMMs use.
func (*CPU) Software() Software { return Software{Kernels: kernel.Instructions()} }

func (*CPU) Capabilities() Capabilities { return Capabilities{LogitRows: 256, Halves: true} }

// FreeMemory is what Linux says is available without swapping, and no more than its control groups leave.
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

// Read is the memory of an input, or of an output that Compile was given.
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
