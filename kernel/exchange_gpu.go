//go:build gpu

package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// place returns this rank's among the ranks that a plan is for.
func (g *GPU) place(world int) (rank int, err error) {
	if g.Comm == nil && world == 1 {
		return 0, nil
	}
	if g.Comm == nil || g.Comm.World != world {
		return 0, fmt.Errorf("the plan is for %d ranks, and %s has not joined them", world, g.Device.Name)
	}
	return g.Comm.Rank, nil
}

func (k Exchange) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	rank, err := g.place(k.World)
	if err != nil {
		return nil, err
	}
	n, row := in[0].Elems(), out[0].Bytes()/int64(k.World)
	slice := func(r int) (at gpu.Ptr, bytes int64) {
		from, to := SliceOf(n, r, k.World)
		return in[0].Ptr.Add(4 * int64(from)), 4 * int64(to-from)
	}
	var parts []gpu.Part
	own, length := slice(rank)
	for r := range k.World {
		if r == rank {
			continue
		}
		at, bytes := slice(r)
		parts = append(parts, gpu.Part{At: at, Bytes: bytes, Peer: r})
		for _, number := range in[1:] {
			parts = append(parts, gpu.Part{At: number.Ptr, Bytes: 4, Peer: r})
		}
		parts = append(parts, gpu.Part{At: out[0].Ptr.Add(int64(r) * row), Bytes: length, Peer: r, Receive: true})
		for _, numbers := range out[1:] {
			parts = append(parts, gpu.Part{At: numbers.Ptr.Add(4 * int64(r)), Bytes: 4, Peer: r, Receive: true})
		}
	}
	s := g.Stream
	keep := func(out, in gpu.Ptr, bytes int64) func() error {
		return func() error {
			if bytes == 0 {
				return nil
			}
			return s.Copy(out, in, bytes)
		}
	}
	work := []func() error{keep(out[0].Ptr.Add(int64(rank)*row), own, length)}
	for i, number := range in[1:] {
		work = append(work, keep(out[1+i].Ptr.Add(4*int64(rank)), number.Ptr, 4))
	}
	if g.Comm != nil {
		move := g.Comm.Exchange(parts)
		work = append(work, func() error { return move.Run(s) })
	}
	return inOrder(work...), nil
}

func (k AddInOrder) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	world := in[1].Shape[0]
	at, from, to := out[0].Ptr, 0, out[0].Elems()
	if k.Slice {
		rank, err := g.place(world)
		if err != nil {
			return nil, err
		}
		from, to = SliceOf(to, rank, world)
	}
	if from == to {
		return func() error { return nil }, nil
	}
	return g.Launch(cuda.InOrder(int64(to-from)), at.Add(4*int64(from)), in[1].Ptr, int64(to-from),
		int64(in[1].Elems()/world), int32(world))
}

func (k GatherSlices) GPU(g *GPU, _, out []DeviceTensor) (func() error, error) {
	rank, err := g.place(k.World)
	if err != nil {
		return nil, err
	}
	if g.Comm == nil {
		return func() error { return nil }, nil
	}
	part := func(of, peer int, receive bool) gpu.Part {
		from, to := SliceOf(out[0].Elems(), of, k.World)
		return gpu.Part{At: out[0].Ptr.Add(4 * int64(from)), Bytes: 4 * int64(to-from), Peer: peer, Receive: receive}
	}
	var parts []gpu.Part
	for r := range k.World {
		if r != rank {
			parts = append(parts, part(rank, r, false), part(r, r, true))
		}
	}
	move, s := g.Comm.Exchange(parts), g.Stream
	return func() error { return move.Run(s) }, nil
}

// Join makes the device one of a group's ranks: it opens NCCL, which takes memory of its own, and moves a number
// between every two ranks, so that links and buffers are there before the first step is captured.
func (g *GPU) Join(group Group) error {
	lib, err := gpu.OpenNCCL("")
	if err != nil {
		return fmt.Errorf("training on several GPUs needs NCCL: %w; TRAINER_NCCL names the folder that has libnccl.so.2", err)
	}
	var mine []byte
	if group.Rank() == 0 {
		if mine, err = lib.UniqueID(); err != nil {
			return err
		}
	}
	all, err := group.Gather("NCCL's id", append([]byte(fmt.Sprintf("%-16s", lib.Version)), mine...))
	if err != nil {
		return err
	}
	for r, theirs := range all {
		if len(theirs) < 16 || string(theirs[:16]) != string(all[0][:min(16, len(all[0]))]) {
			return fmt.Errorf("rank %d has NCCL %s and rank 0 another version: give all of them one (TRAINER_NCCL)", r,
				theirs[:min(16, len(theirs))])
		}
	}
	if g.Comm, err = lib.Join(g.Device, all[0][16:], group.Rank(), group.World(), group.Lost()); err != nil {
		return err
	}
	g.joined.Store(g.Comm)
	select {
	case <-group.Lost(): // before there was anything to abandon
		g.Comm.Abandon()
	default:
	}
	return g.greet()
}

// Abandon ends operations that wait for other ranks. It may be called from any goroutine.
func (g *GPU) Abandon() {
	if c := g.joined.Load(); c != nil {
		c.Abandon()
	}
}

// greet sends every rank this one's number and looks at what comes back.
func (g *GPU) greet() error {
	c := g.Comm
	memory, err := g.Device.NewArena("greetings of ranks", int64(4*(c.World+1)))
	if err != nil {
		return err
	}
	defer memory.Free() //nolint:errcheck // of a few bytes
	numbers := make([]uint32, c.World+1)
	numbers[c.World] = uint32(c.Rank) + 1
	if err := gpu.Upload(memory.Base, numbers); err != nil {
		return err
	}
	var parts []gpu.Part
	for r := range c.World {
		if r != c.Rank {
			parts = append(parts, gpu.Part{At: memory.Base.Add(int64(4 * c.World)), Bytes: 4, Peer: r},
				gpu.Part{At: memory.Base.Add(int64(4 * r)), Bytes: 4, Peer: r, Receive: true})
		}
	}
	if err := c.Exchange(parts).Run(g.Stream); err != nil {
		return err
	}
	if err := g.Stream.Synchronize(); err != nil {
		return err
	}
	if err := gpu.Download(numbers, memory.Base); err != nil {
		return err
	}
	for r, n := range numbers[:c.World] {
		if r != c.Rank && n != uint32(r)+1 {
			return fmt.Errorf("rank %d sent %d over NCCL, want %d: another rank was lost, or the link between the GPUs is faulty", r, n, r+1)
		}
	}
	return nil
}

// GPU receives every slice where the parts lie, which have one buffer for all slices.
func (k AllGather) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	rank, err := g.place(k.World)
	if err != nil {
		return nil, err
	}
	all := gpu.Ptr(uint64(out[0].Ptr) - uint64(k.At[0]))
	for i, o := range out {
		if o.Ptr != all.Add(k.At[i]) {
			return nil, fmt.Errorf("part %d is not %d bytes behind the first slice", i, k.At[i])
		}
	}
	slice, s := in[0].Bytes(), g.Stream
	at := func(r int) gpu.Ptr { return all.Add(int64(r) * slice) }
	var parts []gpu.Part
	for r := range k.World {
		if r != rank {
			parts = append(parts, gpu.Part{At: in[0].Ptr, Bytes: slice, Peer: r},
				gpu.Part{At: at(r), Bytes: slice, Peer: r, Receive: true})
		}
	}
	work := []func() error{func() error { return s.Copy(at(rank), in[0].Ptr, slice) }}
	if g.Comm != nil {
		move := g.Comm.Exchange(parts)
		work = append(work, func() error { return move.Run(s) })
	}
	return inOrder(work...), nil
}

// share returns this rank's place among so many neighbours that have a share of the tokens each.
func (g *GPU) share(ranks int) (place int, err error) {
	switch {
	case ranks < 2:
		return 0, nil
	case g.Comm == nil || g.Comm.World%ranks != 0:
		return 0, fmt.Errorf("the plan is for ranks in groups of %d, and %s has not joined such", ranks, g.Device.Name)
	}
	return g.Comm.Rank % ranks, nil
}

// turn is where each exchange of a plan notes that it writes: so they are queued one behind the other, on all ranks in
// one order, as NCCL asks. No memory lies there.
var turn = Access{At: 1, Bytes: 1, Write: true}

func (k AllToAll) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	place, err := g.share(k.Ranks)
	if err != nil {
		return nil, err
	}
	block := in[0].Bytes() / int64(k.Ranks)
	s, own := g.Stream, int64(place)*block
	keep := func() error {
		if block == 0 {
			return nil
		}
		return s.Copy(out[0].Ptr.Add(own), in[0].Ptr.Add(own), block)
	}
	if k.Ranks < 2 {
		return keep, nil
	}
	first := g.Comm.Rank - place
	var parts []gpu.Part
	for r := range k.Ranks {
		if r != place {
			at := int64(r) * block
			parts = append(parts, gpu.Part{At: in[0].Ptr.Add(at), Bytes: block, Peer: first + r},
				gpu.Part{At: out[0].Ptr.Add(at), Bytes: block, Peer: first + r, Receive: true})
		}
	}
	g.Accesses = append(g.Accesses, turn)
	move := g.Comm.Exchange(parts)
	return inOrder(keep, func() error { return move.Run(s) }), nil
}
