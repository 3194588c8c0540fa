//go:build gpu

package graph

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// GPU is one device. Its goroutine holds the OS thread until Close.
type GPU struct {
	gpu     *kernel.GPU
	workers int
	noBLAS  error // why there is no cuBLASLt; nil = it is there
}

// NewGPU opens a device for plans of a precision; 0 is the device's own. workers is the number of host threads
// for loading; 0 means one for each core.
func NewGPU(index, workers int, precision kernel.Precision) (Machine, error) {
	if err := startRanges(); err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	d, err := gpu.Open(index)
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	s, err := d.NewStream()
	if err != nil {
		runtime.UnlockOSThread()
		return nil, errors.Join(err, d.Close())
	}
	if precision == 0 {
		precision = kernel.PrecisionOf(d.SM())
	}
	if err := precision.CheckDevice(d.SM()); err != nil {
		runtime.UnlockOSThread()
		return nil, errors.Join(err, s.Close(), d.Close())
	}
	if workers == 0 {
		workers = runtime.NumCPU()
	}
	g := &GPU{gpu: &kernel.GPU{Device: d, Stream: s, Precision: precision}, workers: workers}
	b, err := gpu.OpenBLAS("")
	if g.noBLAS = err; err == nil {
		g.gpu.BLAS = b
		if g.gpu.Algorithms, err = gpu.OpenAlgorithms(cacheFolder(), d.Name, b.Version); err != nil {
			return nil, errors.Join(err, g.Close())
		}
	}
	return g, nil
}

// cacheFolder returns where the choice of the vendor's algorithms is kept: TRAINER_CACHE, or the user's cache
// folder. Where there is neither, nothing is kept.
func cacheFolder() string {
	if dir := os.Getenv("TRAINER_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "tierlora")
}

// Join makes the device one of a group's ranks, by NCCL, whose memory is taken here: FreeMemory does not count it as
// free from then on.
func (g *GPU) Join(group kernel.Group) error { return g.gpu.Join(group) }

// Abandon ends the exchange with ranks that do not come.
func (g *GPU) Abandon() { g.gpu.Abandon() }

// Name returns the device's name, such as "NVIDIA H200".
func (g *GPU) Name() string { return g.gpu.Device.Name }

func (g *GPU) Workers() int { return g.workers }

func (g *GPU) Precision() kernel.Precision { return g.gpu.Precision }

// Software returns the versions of the driver, the kernels and, where it is used, cuBLASLt.
func (g *GPU) Software() Software {
	s := Software{Kernels: kernel.CompiledDigest()}
	s.Driver, _ = gpu.Driver()
	if g.gpu.BLAS != nil {
		s.Libraries = []string{"cuBLASLt " + g.gpu.BLAS.Version}
		s.Algorithms = g.gpu.Algorithms.Digest()
	}
	if g.gpu.Comm != nil {
		s.Libraries = append(s.Libraries, "NCCL "+g.gpu.Comm.Version)
	}
	return s
}

func (g *GPU) Capabilities() Capabilities { return gpuCapabilities }

// FreeMemory returns what the driver reports as free, less a share for its own needs: modules, graphs, libraries.
func (g *GPU) FreeMemory() (bytes int64, known bool, err error) {
	free, total, err := g.gpu.Device.Free()
	return free - total/reservedShare, true, err
}

// TotalMemory returns the device's whole memory in bytes, used or free.
func (g *GPU) TotalMemory() (bytes int64, known bool) {
	_, total, err := g.gpu.Device.Free()
	return total, err == nil
}

// Waiting returns the oldest call that waits for a device.
func (g *GPU) Waiting() (Wait, bool) { return gpu.Waiting() }

func (g *GPU) Compile(b *Builder, outputs ...*Value) (*Plan, error) {
	return b.compile(newDeviceTarget(g.gpu.Device.SM(), g.gpu.Precision), true, outputs)
}

func (g *GPU) Close() error {
	defer runtime.UnlockOSThread()
	return errors.Join(g.gpu.Close(), g.gpu.Stream.Close(), g.gpu.Device.Close())
}

// trialTime is how long the algorithms of a plan's GEMMs are tried, at most. What remains is tried by the next run.
const trialTime = 2 * time.Second

// Bind binds every kernel's GPU body to device memory.
func (g *GPU) Bind(p *Plan, store Store) (Runner, error) {
	s, ok := store.(*deviceStore)
	if !ok {
		return nil, fmt.Errorf("the plan is for %s, its memory is a %T", g.Name(), store)
	}
	r := &deviceRun{store: s, stream: g.gpu.Stream, early: p.early, values: map[*Value]kernel.DeviceTensor{},
		host: map[*Value]kernel.Tensor{}, work: map[string][]deviceCall{}}
	g.gpu.Constants = s.constants
	for _, v := range p.inputs {
		t, err := s.device(v.Name)
		if err != nil {
			return nil, err
		}
		if t.Elems() < v.Type.Elems() {
			return nil, errShort(v, t.Type)
		}
		t.Shape = v.Type.Shape
		r.values[v] = t
	}
	if s.arena.Bytes > 0 { // no plan of the memory has run yet
		g.gpu.Trials = &kernel.Trials{At: s.arena.Base, Bytes: s.arena.Bytes, Left: trialTime}
		defer func() { g.gpu.Trials = nil }()
	}
	segment := -1
	for i, c := range p.calls {
		if c.segment != segment {
			g.gpu.Begin()
			segment = c.segment
		}
		if err := r.bind(g.gpu, p, c); err != nil {
			return nil, fmt.Errorf("%v: %w", c, err)
		}
		if i+1 == len(p.calls) || p.calls[i+1].segment != segment {
			r.joinGathered(p, p.segments[segment])
		}
	}
	s.runs = append(s.runs, r)
	if g.gpu.Algorithms != nil {
		// What cannot be kept is chosen again next time, the same way: no reason to end a run.
		g.gpu.Algorithms.Save() //nolint:errcheck
	}
	return r, nil
}

func (r *deviceRun) bind(g *kernel.GPU, p *Plan, c *call) error {
	want := p.store.inputs[c]
	in, out := make([]kernel.DeviceTensor, len(c.in)), make([]kernel.DeviceTensor, len(c.out))
	for i, v := range c.in {
		t, ok := r.values[v]
		if !ok {
			return fmt.Errorf("it reads %s before anything writes it", v.Name)
		}
		if want[i] != 0 && want[i] != t.DType {
			root := root(v)
			copied, err := r.store.copy(root)
			if err != nil {
				return err
			}
			t = kernel.DeviceTensor{Type: kernel.Type{DType: want[i], Shape: v.Type.Shape}, Ptr: copied}
		}
		in[i] = t
	}
	for i, v := range c.out {
		if root := root(v); root.kind != Computed || root.host && root != v {
			r.values[v] = r.values[root]
		} else if root.host {
			// an offset in pinned memory
			r.values[v] = kernel.DeviceTensor{Type: p.stored(v), Ptr: gpu.Ptr(p.place[v].offset)}
		} else {
			r.values[v] = kernel.DeviceTensor{Type: p.stored(v), Ptr: r.store.arena.Base.Add(p.place[v].offset)}
		}
		out[i] = r.values[v]
	}
	segment := p.segments[c.segment]
	d := deviceCall{name: c.String(), kernel: c.kernel, stream: r.stream,
		info: c.describe(segment, deviceTypes(in), deviceTypes(out))}
	if k, ok := c.kernel.(kernel.AllGather); ok {
		err := r.gather(g, k, c, &d, in, out)
		r.work[segment] = append(r.work[segment], d)
		return err
	}
	r.awaitGathered(c, &d)
	if isTransfer(c.kernel) {
		err := r.move(g, c, &d, in, out)
		r.work[segment] = append(r.work[segment], d)
		return err
	}
	accessTo := func(at gpu.Ptr, bytes int64, write bool) access {
		return access{uint64(at), uint64(at) + uint64(bytes), write}
	}
	for _, t := range in {
		d.accesses = append(d.accesses, accessTo(t.Ptr, t.Bytes(), false))
	}
	for _, t := range out {
		d.accesses = append(d.accesses, accessTo(t.Ptr, t.Bytes(), true))
	}
	g.Scratch, g.Copy, g.Prologue, g.Accesses = 0, 0, kernel.Prologue{}, g.Accesses[:0]
	if s, ok := p.scratch[c]; ok {
		g.Scratch = r.store.arena.Base.Add(s.offset)
		d.accesses = append(d.accesses, accessTo(g.Scratch, s.size, true))
	}
	if first := root(c.in[0]); first.span && r.store.layout.copied[first.group] != 0 {
		var err error
		if g.Copy, err = r.store.copy(first); err != nil {
			return err
		}
		d.accesses = append(d.accesses, accessTo(g.Copy, in[0].Bytes()/2, true))
	}
	var err error
	if d.queue, err = c.kernel.(kernel.OnGPU).GPU(g, in, out); err != nil {
		return err
	}
	for _, o := range g.Accesses {
		d.accesses = append(d.accesses, accessTo(o.At, o.Bytes, o.Write))
	}
	if g.Prologue.Work != nil {
		r.work[segment] = append(r.work[segment], d.prologue(g.Prologue, accessTo(g.Scratch, g.Prologue.Bytes, true)))
	}
	r.work[segment] = append(r.work[segment], d)
	return nil
}

// deviceTypes returns the types of values as they are stored.
func deviceTypes(list []kernel.DeviceTensor) []kernel.Type {
	types := make([]kernel.Type, len(list))
	for i, t := range list {
		types[i] = t.Type
	}
	return types
}

// prologue returns the part of a call that fills its scratch from frozen values.
func (d deviceCall) prologue(p kernel.Prologue, a access) deviceCall {
	first := d
	first.queue, first.name, first.accesses, first.kernel = p.Work, d.name+", prologue", []access{a}, nil
	first.info.Kernel += " prologue"
	first.info.Out = []kernel.Type{kernel.T(kernel.U8, int(p.Bytes))}
	first.info.Cost, first.info.Costed = kernel.Cost{Bytes: p.Bytes}, true
	for _, t := range d.info.In[1:] { // the weight's parts
		first.info.Cost.Bytes += t.Bytes()
	}
	return first
}

// move binds a copy to or from host memory, which runs on a stream of its own beside the kernels.
func (r *deviceRun) move(g *kernel.GPU, c *call, d *deviceCall, in, out []kernel.DeviceTensor) error {
	if r.side == nil {
		var err error
		if r.side, err = g.Device.NewStream(); err != nil {
			return err
		}
		r.done = map[*Value]*gpu.Event{}
	}
	main, side, host, n := r.stream, r.side, r.store.hostMemory, in[0].Bytes()
	switch c.kernel.(type) {
	case offloaded:
		done := r.done[root(c.in[1])]
		d.queue = func() error { return main.Wait(done) }
		return nil
	case prefetched:
		done := r.done[root(c.in[0])]
		d.queue = func() error { return main.Wait(done) }
		return nil
	}
	ready, err := g.Device.NewEvent()
	if err != nil {
		return err
	}
	done, err := g.Device.NewEvent()
	if err != nil {
		return err
	}
	r.events = append(r.events, ready, done)
	r.done[c.out[0]] = done
	from, to := in[0].Ptr, out[0].Ptr
	transfer := func() error { return side.CopyOut(host, int64(to), from, n) }
	if _, ok := c.kernel.(prefetchFrom); ok {
		transfer = func() error { return side.CopyIn(to, host, int64(from), n) }
	}
	d.stream, d.info.Stream = side, StreamCopy
	d.wait = func() error { return errors.Join(ready.Record(main), side.Wait(ready)) }
	d.queue = func() error { return errors.Join(transfer(), done.Record(side)) }
	return nil
}
