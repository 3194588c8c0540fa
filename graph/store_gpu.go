//go:build gpu

package graph

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// batchSlots is how many batches may be on their way to the device at the same time.
const batchSlots = 4

// deviceStore is device memory in four allocations, all made at once: activations, batch, frozen weights,
// state.
type deviceStore struct {
	g         *kernel.GPU
	rank      int // of those that hold slices of frozen values
	layout    *inputLayout
	arena     *gpu.Arena
	batch     *gpu.Arena
	frozen    *gpu.Arena
	state     *gpu.Arena
	group     map[string]int64 // offset of a group in state
	constants gpu.Ptr

	hostMemory *gpu.Pinned      // of values that wait on the host; nil without
	hostState  *gpu.Pinned      // of State in host memory, which kernels read and write there; nil without
	hostGroup  map[string]int64 // offset of a group in hostState
	batchHost  []byte           // the batch region as the host sees it
	slots      [batchSlots]*gpu.Pinned
	sent       [batchSlots]*gpu.Event
	next       int

	mu   sync.Mutex // host, for weights that load at the same time
	host map[string]kernel.Tensor
	runs []*deviceRun
}

// NewStore takes the memory of plans that share it.
func (g *GPU) NewStore(plans ...*Plan) (Store, error) {
	l, err := layoutInputs(plans)
	if err != nil {
		return nil, err
	}
	rank, world := 0, 1
	if c := g.gpu.Comm; c != nil {
		rank, world = c.Rank, c.World
	}
	if rank, err = rankAmong(l.ranks, rank, world); err != nil {
		return nil, err
	}
	s := &deviceStore{g: g.gpu, rank: rank, layout: l, host: map[string]kernel.Tensor{}, group: map[string]int64{},
		hostGroup: map[string]int64{}}
	var state int64
	for _, name := range l.bytes.Groups() {
		s.group[name] = state
		state += l.bytes.State[name]
	}
	for _, a := range []struct {
		to    **gpu.Arena
		name  string
		bytes int64
	}{{&s.frozen, "frozen weights", l.bytes.Frozen}, {&s.state, "state", state}, {&s.batch, "batch", l.bytes.Batch},
		{&s.arena, "activations", l.bytes.Arena}} {
		if a.bytes == 0 {
			*a.to = &gpu.Arena{Name: a.name}
			continue
		}
		if *a.to, err = g.gpu.Device.NewArena(a.name, a.bytes); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start zeroes the memory, fills the constants and pins the batch's slots.
func (s *deviceStore) start() error {
	for _, a := range []*gpu.Arena{s.frozen, s.state, s.batch, s.arena} {
		if a.Bytes > 0 {
			if err := s.g.Stream.Fill(a.Base, 0, a.Bytes); err != nil {
				return err
			}
		}
	}
	if err := s.g.Stream.Synchronize(); err != nil {
		return err
	}
	if at, ok := s.group["constants"]; ok {
		s.constants = s.state.Base.Add(at)
		s.g.Constants = s.constants
		if err := s.g.Start(); err != nil {
			return err
		}
	}
	if n := s.layout.bytes.Host; n > 0 {
		var err error
		if s.hostMemory, err = s.g.Device.NewPinned(int(n)); err != nil {
			return err
		}
	}
	if err := s.pinStates(); err != nil {
		return err
	}
	s.batchHost = kernel.Alloc(s.batch.Bytes)
	for i := range s.slots {
		var err error
		if s.slots[i], err = s.g.Device.NewPinned(int(max(s.batch.Bytes, 1))); err != nil {
			return err
		}
		if s.sent[i], err = s.g.Device.NewEvent(); err != nil {
			return err
		}
	}
	for _, name := range s.layout.names {
		if s.layout.kind[name] == Batch {
			s.host[name] = kernel.NewTensor(s.layout.typ[name], s.batchHost[s.layout.offset[name]:])
		}
	}
	return nil
}

// pinStates allocates the states in host memory, zeroed. Page-locked memory has the same address on the device.
func (s *deviceStore) pinStates() error {
	var bytes int64
	for _, group := range slices.Sorted(maps.Keys(s.layout.bytes.HostState)) {
		s.hostGroup[group] = bytes
		bytes += s.layout.bytes.HostState[group]
	}
	if bytes == 0 {
		return nil
	}
	var err error
	if s.hostState, err = s.g.Device.NewPinned(int(bytes)); err != nil {
		return fmt.Errorf("optimizer states in host memory: %w", err)
	}
	clear(s.hostState.Bytes)
	return nil
}

// inHost returns the memory of a state that lies in host memory.
func (s *deviceStore) inHost(name string) (memory []byte, ok bool) {
	at, ok := s.hostGroup[s.layout.region[name]]
	if !ok || s.layout.kind[name] != State {
		return nil, false
	}
	return s.hostState.Bytes[at+s.layout.offset[name]:], true
}

// Bytes returns what the allocations hold.
func (s *deviceStore) Bytes() Bytes { return s.layout.bytes }

// device returns the place of an input.
func (s *deviceStore) device(name string) (kernel.DeviceTensor, error) {
	l := s.layout
	t, ok := l.typ[name]
	if !ok {
		return kernel.DeviceTensor{}, fmt.Errorf("no plan uses a tensor named %q", name)
	}
	t.DType = l.stored[name]
	if memory, ok := s.inHost(name); ok {
		return kernel.DeviceTensor{Type: t, Ptr: gpu.HostPtr(memory)}, nil
	}
	var base gpu.Ptr
	switch l.kind[name] {
	case Batch:
		base = s.batch.Base
	case Frozen:
		base = s.frozen.Base
	default:
		base = s.state.Base.Add(s.group[l.region[name]])
		if at, ok := l.lent[l.region[name]]; ok {
			base = s.arena.Base.Add(at)
		}
	}
	return kernel.DeviceTensor{Type: t, Ptr: base.Add(l.offset[name])}, nil
}

// computeType returns the type of activations, operands of GEMMs and copies of parameters.
func (s *deviceStore) computeType() kernel.DType { return s.g.Precision.Stored(kernel.ComputeType) }

// copy returns the place of a parameter's, or a span's, copy in 16 bits.
func (s *deviceStore) copy(v *Value) (gpu.Ptr, error) {
	at, ok := s.group[copyOf(v.group, s.layout.copied[v.group])]
	if !ok {
		return 0, fmt.Errorf("%s has no copy in 16 bits", v.Name)
	}
	return s.state.Base.Add(at + s.layout.offset[v.Name]/2), nil
}

// Tensor returns a host view of an input, as the computation types it.
func (s *deviceStore) Tensor(name string) (kernel.Tensor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.host[name]; ok {
		return t, nil
	}
	t, ok := s.layout.typ[name]
	if sl, sliced := s.layout.sliced[name]; sliced {
		t, ok = sl.typ, true
	}
	if !ok {
		return kernel.Tensor{}, fmt.Errorf("no plan uses a tensor named %q", name)
	}
	if memory, ok := s.inHost(name); ok {
		return kernel.NewTensor(t, memory), nil
	}
	s.host[name] = kernel.NewTensor(t, kernel.Alloc(t.Bytes()))
	return s.host[name], nil
}

// Put sends host views to the device. Frozen ones are forgotten on the host then.
func (s *deviceStore) Put(names ...string) error {
	batch := false
	for _, name := range names {
		if s.layout.kind[name] == Batch {
			batch = true
			continue
		}
		if err := s.put(name); err != nil {
			return fmt.Errorf("send %s: %w", name, err)
		}
	}
	if batch {
		return s.sendBatch()
	}
	return nil
}

// sendBatch queues a copy of the whole batch region, by way of pinned memory that is not in use.
func (s *deviceStore) sendBatch() error {
	i := s.next % batchSlots
	if s.next >= batchSlots {
		if err := s.sent[i].Synchronize(); err != nil {
			return err
		}
	}
	s.next++
	copy(s.slots[i].Bytes, s.batchHost)
	if err := s.g.Stream.CopyIn(s.batch.Base, s.slots[i], 0, s.batch.Bytes); err != nil {
		return err
	}
	return s.sent[i].Record(s.g.Stream)
}

func (s *deviceStore) put(name string) error {
	if _, ok := s.inHost(name); ok { // Tensor returns the memory itself
		return nil
	}
	s.mu.Lock()
	t, ok := s.host[name]
	sl, isSliced := s.layout.sliced[name]
	if s.layout.kind[name] == Frozen || isSliced {
		delete(s.host, name)
	}
	s.mu.Unlock()
	if !ok {
		return fmt.Errorf("no plan uses a tensor named %q, or nothing was written to it", name)
	}
	runtime.LockOSThread() // the context is the thread's
	defer runtime.UnlockOSThread()
	if err := s.g.Device.Use(); err != nil {
		return err
	}
	if isSliced {
		return s.sendPart(sl, t)
	}
	d, err := s.device(name)
	if err != nil {
		return err
	}
	if err := send(d, t); err != nil {
		return err
	}
	if s.layout.kind[name] == State && d.DType == t.DType && s.layout.copied[s.layout.region[name]] != 0 {
		v := &Value{Name: name, group: s.layout.region[name]}
		at, err := s.copy(v)
		if err != nil {
			return err
		}
		return send(kernel.DeviceTensor{Type: kernel.Type{DType: s.computeType(), Shape: t.Shape}, Ptr: at}, t)
	}
	return nil
}

// Get fetches State.
func (s *deviceStore) Get(names ...string) error {
	if err := s.g.Stream.Synchronize(); err != nil {
		return err
	}
	for _, name := range names {
		if _, ok := s.inHost(name); ok { // Tensor returns the memory itself
			continue
		}
		t, err := s.Tensor(name)
		if err != nil {
			return err
		}
		d, err := s.device(name)
		if err != nil {
			return err
		}
		if err := fetch(t, d); err != nil {
			return fmt.Errorf("fetch %s: %w", name, err)
		}
	}
	return nil
}

// Clear zeroes a group of State, behind the work that is queued.
func (s *deviceStore) Clear(group string) error {
	for name, g := range s.layout.region {
		if g != group || s.layout.kind[name] != State {
			continue
		}
		d, err := s.device(name)
		if err != nil {
			return err
		}
		if err := s.g.Stream.Fill(d.Ptr, 0, d.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// Forget drops host views of State.
func (s *deviceStore) Forget(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if s.layout.kind[name] == State {
			delete(s.host, name)
		}
	}
}

// Numbers stored in 16 bits.
var (
	round16 = map[kernel.DType]func(float32) uint16{kernel.BF16: kernel.ToBF16, kernel.F16: kernel.ToF16}
	exact32 = map[kernel.DType]func(uint16) float32{kernel.BF16: kernel.FromBF16, kernel.F16: kernel.FromF16}
)

// sendChunk bounds the converted copy of a tensor on its way, in elements.
const sendChunk = 4 << 20

// send copies host numbers to the device as they are stored there.
func send(d kernel.DeviceTensor, t kernel.Tensor) error {
	if d.DType == t.DType {
		return gpu.Upload(d.Ptr, t.Bytes())
	}
	round := round16[d.DType]
	if round == nil || t.DType != kernel.F32 {
		return fmt.Errorf("%v cannot be stored as %v", t.Type, d.DType)
	}
	from := t.F32()
	buf := make([]uint16, min(sendChunk, len(from)))
	for at := 0; at < len(from); at += len(buf) {
		part := from[at:min(at+len(buf), len(from))]
		for i, x := range part {
			buf[i] = round(x)
		}
		if err := gpu.Upload(d.Ptr.Add(int64(at)*2), buf[:len(part)]); err != nil {
			return err
		}
	}
	return nil
}

// fetch copies device memory to the host as the computation types it.
func fetch(t kernel.Tensor, d kernel.DeviceTensor) error {
	if d.DType == t.DType {
		return gpu.Download(t.Bytes(), d.Ptr)
	}
	exact := exact32[d.DType]
	if exact == nil || t.DType != kernel.F32 {
		return fmt.Errorf("%v is stored as %v", t.Type, d.DType)
	}
	buf := make([]uint16, t.Elems())
	if err := gpu.Download(buf, d.Ptr); err != nil {
		return err
	}
	for i, x := range buf {
		t.F32()[i] = exact(x)
	}
	return nil
}

// Close gives all memory back, after the work that is queued.
func (s *deviceStore) Close() error {
	err := s.g.Stream.Synchronize()
	for _, r := range s.runs {
		err = errors.Join(err, r.close())
	}
	s.runs = nil
	for i := range s.slots {
		if s.slots[i] != nil {
			err = errors.Join(err, s.slots[i].Free())
		}
		if s.sent[i] != nil {
			err = errors.Join(err, s.sent[i].Close())
			s.sent[i] = nil
		}
	}
	err = errors.Join(err, s.hostMemory.Free(), s.hostState.Free())
	for _, a := range []*gpu.Arena{s.arena, s.batch, s.frozen, s.state} {
		err = errors.Join(err, a.Free())
	}
	return err
}
