//go:build gpu

package kernel

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// OnGPU is a kernel with a GPU body.
type OnGPU interface {
	StoredOnGPU
	// GPU binds the operation to device memory and returns the work that queues it. The work allocates nothing and can
	// be captured. It accesses no memory except in, out, Scratch, Copy and what it lists in Accesses: the order of
	// calls follows from those.
	GPU(g *GPU, in, out []DeviceTensor) (func() error, error)
}

// DeviceTensor is a Type, its element type as stored, at a device address.
type DeviceTensor struct {
	Type
	Ptr gpu.Ptr
}

// CompiledDigest returns the SHA-256 of the compiled GPU kernels in this program, in hexadecimal.
func CompiledDigest() string { return cuda.Digest() }

// CompiledFor returns the form of the compiled kernels that a device of compute capability sm runs, such as sm_90a or
// compute_90; jit says that the driver compiles it on the machine.
func CompiledFor(sm int) (form string, jit bool, err error) {
	c, err := cuda.CodeFor(sm)
	return c.String(), c.PTX, err
}

// GPU holds what GPU bodies are bound with.
type GPU struct {
	Precision  Precision
	Device     *gpu.Device
	Stream     *gpu.Stream
	BLAS       *gpu.BLAS // cuBLASLt; nil = GEMMs run on this program's own kernels
	Comm       *gpu.Comm // connects the ranks of a run; nil = a single rank
	Algorithms *gpu.Algorithms
	Trials     *Trials // nil = the heuristics' first choice runs
	Scratch    gpu.Ptr // scratch memory of the call that is being bound
	Copy       gpu.Ptr // the 16-bit copy of the call's first input, a span of parameters; 0 = none
	Constants  gpu.Ptr // ConstantBytes, filled by Start
	// Prologue and Accesses are further results of a body. Prologue runs before the body's work and may begin as soon
	// as the scratch that it fills is free, because it reads frozen values only.
	Prologue Prologue
	Accesses []Access // to orders of attention tiles and to counters, in the constants

	joined     atomic.Pointer[gpu.Comm] // Comm, for Abandon
	side       *gpu.Stream              // of Beside
	fork, join *gpu.Event
	code       *code
	orders     map[order]gpu.Ptr
	ordered    int64 // bytes of orders in use
	counted    int   // sets of counters handed out
}

// code is the kernels in device memory, which streams of several goroutines share.
type code struct {
	mu        sync.Mutex
	functions map[string]*gpu.Function
	modules   map[string]*gpu.Module
}

func newCode() *code {
	return &code{functions: map[string]*gpu.Function{}, modules: map[string]*gpu.Module{}}
}

// order is an order of attention tiles: of one batch, by the rows of a tile.
type order struct {
	cu           gpu.Ptr
	rows, window int
	byKeys       bool
}

// Prologue is work that fills the first Bytes of a call's scratch; a nil Work stands for no prologue.
type Prologue struct {
	Work  func() error
	Bytes int64
}

// Access is memory in the constants that a call reads or writes: an order of tiles, kept for the calls behind the one
// that made it, or a set of counters.
type Access struct {
	At    gpu.Ptr
	Bytes int64
	Write bool
}

// Begin forgets what bodies of another plan or segment shared.
func (g *GPU) Begin() { g.orders, g.ordered, g.counted = map[order]gpu.Ptr{}, 0, 0 }

// tileOrder is where a batch's order of tiles lies, and the work that puts it there the first time it is
// asked for; 0, the natural order, where there is no space left.
func (g *GPU) tileOrder(o cuda.Order, M, B, window int, cu gpu.Ptr) (gpu.Ptr, func() error, error) {
	none := func() error { return nil }
	key := order{cu, o.Rows, window, o.ByKeys}
	n := (int64(o.Tiles)*4 + 255) &^ 255
	if at, ok := g.orders[key]; ok {
		g.Accesses = append(g.Accesses, Access{At: at, Bytes: n})
		return at, none, nil
	}
	if g.orders == nil || g.ordered+n > orderBytes || o.Geometry.Shared > 48<<10 {
		return 0, none, nil
	}
	at := g.Constants.Add(orderOffset + g.ordered)
	by := int32(0)
	if o.ByKeys {
		by = 1
	}
	work, err := g.Launch(o.Geometry, at, cu, int32(M), int32(B), int32(o.Rows), int32(window), by)
	if err != nil {
		return 0, nil, err
	}
	g.orders[key], g.ordered = at, g.ordered+n
	g.Accesses = append(g.Accesses, Access{At: at, Bytes: n, Write: true})
	return at, work, nil
}

// counters returns what the blocks of a launch count one another by, zero between launches. Calls that take the same
// ones wait for one another.
func (g *GPU) counters() gpu.Ptr {
	at := g.Constants.Add(counterOffset + int64(g.counted%counterSets)*counterBytes)
	g.counted++
	g.Accesses = append(g.Accesses, Access{At: at, Bytes: counterBytes, Write: true})
	return at
}

// Start fills the constants.
func (g *GPU) Start() error {
	if err := uploadNF4Tables(g.Constants); err != nil {
		return err
	}
	return gpu.Upload(g.Constants.Add(counterOffset), make([]uint32, counterSets*cuda.LowRankCounters))
}

// Close unloads the modules.
func (g *GPU) Close() error {
	comm := g.Comm.Close()
	return errors.Join(comm, g.close())
}

func (g *GPU) close() error {
	if g.code != nil {
		for _, m := range g.code.modules {
			if err := m.Unload(); err != nil {
				return err
			}
		}
		g.code = nil
	}
	if g.side == nil {
		return nil
	}
	err := errors.Join(g.fork.Close(), g.join.Close(), g.side.Close())
	g.side = nil
	return err
}

// Launch binds a launch of one of our kernels.
func (g *GPU) Launch(at cuda.Geometry, args ...any) (func() error, error) {
	f, err := g.function(at.Stem, at.Entry)
	if err != nil {
		return nil, err
	}
	l, err := f.Prepare(at.Grid, at.Block, at.Shared, args...)
	if err != nil {
		return nil, err
	}
	if cuda.WaitsItself(at.Stem, at.Entry) {
		l.BeginsEarly()
	}
	s := g.Stream
	return func() error { return l.Run(s) }, nil
}

func (g *GPU) function(stem, entry string) (*gpu.Function, error) {
	if g.code == nil {
		g.code = newCode()
	}
	return g.code.function(g.Device, stem, g.Precision.Stored(ComputeType).String(), entry)
}

// function finds a kernel in the form for an element type.
func (c *code) function(d *gpu.Device, stem, elem, entry string) (*gpu.Function, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.functions[entry]; f != nil {
		return f, nil
	}
	m := c.modules[stem]
	if m == nil {
		image, err := cuda.Image(stem, elem)
		if err != nil {
			return nil, err
		}
		if m, err = d.Load(stem, image); err != nil {
			return nil, err
		}
		c.modules[stem] = m
	}
	f, err := m.Function(entry)
	if err != nil {
		return nil, err
	}
	c.functions[entry] = f
	return f, nil
}

// Beside returns work that queues bind's work on a second stream while other runs on the first; both finish before
// later work. bind binds its work to g's stream, which is the second one during the call.
func (g *GPU) Beside(other func() error, bind func() (func() error, error)) (func() error, error) {
	if g.side == nil {
		var err error
		if g.side, err = g.Device.NewStream(); err != nil {
			return nil, err
		}
		if g.fork, err = g.Device.NewEvent(); err != nil {
			return nil, err
		}
		if g.join, err = g.Device.NewEvent(); err != nil {
			return nil, err
		}
	}
	main, side, fork, join := g.Stream, g.side, g.fork, g.join
	g.Stream = side
	work, err := bind()
	g.Stream = main
	if err != nil {
		return nil, err
	}
	return func() error {
		return errors.Join(fork.Record(main), side.Wait(fork), work(), join.Record(side), other(), main.Wait(join))
	}, nil
}

// inOrder queues several pieces of work one after the other.
func inOrder(work ...func() error) func() error {
	return func() error {
		for _, w := range work {
			if err := w(); err != nil {
				return err
			}
		}
		return nil
	}
}
