//go:build gpu

package graph

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
)

const (
	loadReaders = 8        // goroutines that read, at most; more of them slow each other down (decision 0021)
	loadPiece   = 2 << 20  // bytes of a piece on its way, at most
	loadLeast   = 64 << 10 // bytes of a piece that are worth another reader
	loadAlign   = 4 << 10  // bytes that a piece is a multiple of
)

// errUnread says that no plan reads a weight.
var errUnread = errors.New("no plan reads it")

// loading is weights on their way to the device: readers fill pinned memory with pieces, each piece is copied to
// the arena, which is idle before the first step, and packed or converted from there into its place. What packing
// needs of a whole weight, the scales before they are final, waits in the arena too; so weights go in rounds,
// each with one half of what is left of the arena.
type loading struct {
	ctx       context.Context
	store     *deviceStore
	pinned    *gpu.Pinned
	readers   []*reader
	piece     int64 // bytes
	checks    gpu.Ptr
	half      [2]gpu.Ptr
	halfBytes int64
}

// transfer is a weight that the device takes.
type transfer struct {
	WeightLoad
	index   int
	to      kernel.DeviceTensor // of a weight stored as numbers
	pack    *kernel.Packing     // nil = numbers as they are
	parts   *parts              // of a weight that is held in slices; nil = all of it is kept
	staging gpu.Ptr
	mu      sync.Mutex
	err     error // of the earliest piece that could not be read
	at      int
}

// reader is one goroutine's upload: a stream, two slots of pinned memory, of which one is filled while
// the other leaves, and the place in the arena where its pieces arrive.
type reader struct {
	g    *kernel.GPU
	slot [2]int64 // offsets in pinned
	sent [2]*gpu.Event
	used [2]bool
	next int
	at   gpu.Ptr
}

// Load fills weights; see Loader. The order in which pieces arrive decides nothing: each has its place.
func (s *deviceStore) Load(ctx context.Context, weights []WeightLoad, workers int) (each []error, err error) {
	each = make([]error, len(weights))
	l := &loading{ctx: ctx, store: s}
	defer func() {
		if closed := l.close(); err == nil {
			err = closed
		}
	}()
	ok, err := l.open(len(weights), workers)
	if err != nil {
		return each, err
	}
	var all []*transfer
	for i, w := range weights {
		each[i] = errors.ErrUnsupported
		if !ok {
			continue
		}
		a := &transfer{WeightLoad: w, index: i}
		if each[i] = l.accept(a); each[i] == nil {
			all = append(all, a)
		} else if errors.Is(each[i], errUnread) {
			each[i] = nil
		}
	}
	for half, rest := 0, all; len(rest) > 0; half = 1 - half {
		n := l.place(rest, half)
		if err := l.round(rest[:n]); err != nil {
			return each, err
		}
		rest = rest[n:]
	}
	return each, l.finish(all, each)
}

// open divides the arena and makes the readers; ok is false where the arena is too small to work in.
func (l *loading) open(weights, workers int) (ok bool, err error) {
	s := l.store
	if err := s.g.Device.Use(); err != nil {
		return false, err
	}
	checks := kernel.AlignUp(4 * int64(weights))
	left := s.layout.bytes.Arena - checks
	ring := left / 4
	n := min(int64(max(workers, 1)), loadReaders, max(ring/loadLeast, 1))
	l.piece = min(ring/n, loadPiece) &^ (loadAlign - 1)
	if l.piece <= 0 || s.constants == 0 {
		return false, nil
	}
	l.halfBytes = (left - n*l.piece) / 2 &^ (gpu.Align - 1)
	l.checks = s.arena.Base
	l.half[0] = l.checks.Add(checks + n*l.piece)
	l.half[1] = l.half[0].Add(l.halfBytes)
	if l.pinned, err = s.g.Device.NewPinned(int(2 * n * l.piece)); err != nil {
		return false, err
	}
	for i := range n {
		stream, err := s.g.Device.NewStream()
		if err != nil {
			return false, err
		}
		r := &reader{g: s.g.On(stream), slot: [2]int64{2 * i * l.piece, (2*i + 1) * l.piece},
			at: l.checks.Add(checks + i*l.piece)}
		r.g.Constants = s.constants
		l.readers = append(l.readers, r)
		for k := range r.sent {
			if r.sent[k], err = s.g.Device.NewEvent(); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// accept finds a weight's place and how it gets there; errors.ErrUnsupported where the host has to fill it.
func (l *loading) accept(a *transfer) error {
	if l.store.hasSliceOf(a.Into) {
		return l.acceptParts(a)
	}
	to := make([]kernel.DeviceTensor, len(a.Into))
	for i, name := range a.Into {
		var err error
		if to[i], err = l.store.device(name); err != nil {
			return errUnread
		}
		if a.Members > 1 {
			n := to[i].Elems() / a.Members
			at := int64(a.Member) * int64(n) * int64(to[i].DType.Size())
			if i == 0 && at%16 != 0 { // kernels read and write vectors of 16 bytes
				return errors.ErrUnsupported
			}
			to[i].Type, to[i].Ptr = kernel.T(to[i].DType, n), to[i].Ptr.Add(at)
		}
	}
	if a.Packed == nil {
		a.to = to[0]
		if a.DType == a.to.DType || kernel.Converts(a.DType, a.to.DType) {
			return nil
		}
		return errors.ErrUnsupported
	}
	if k, ok := a.Packed.(kernel.PacksOnGPU); ok {
		if p, ok := k.PackGPU(l.store.g, to, a.DType, a.Dequantised); ok && p.Staging <= l.halfBytes {
			a.pack = &p
			return nil
		}
	}
	return errors.ErrUnsupported
}

// place gives the first weights of rest their staging in a half of the arena and tells how many.
func (l *loading) place(rest []*transfer, half int) int {
	var used int64
	for i, a := range rest {
		if a.pack == nil {
			continue
		}
		staging := a.pack.Staging
		if a.parts != nil {
			staging = a.parts.staging
		}
		if used+staging > l.halfBytes {
			return i
		}
		a.staging = l.half[half].Add(used)
		if a.parts != nil {
			a.parts.place(l.store.g, a)
		}
		used += staging
	}
	return len(rest)
}

// round loads weights whose staging has its place. What it queues last may still run when it returns, beside the
// next round, which works in the other half.
func (l *loading) round(weights []*transfer) error {
	type piece struct {
		of      *transfer
		from, n int
	}
	var pieces []piece
	for _, a := range weights {
		n := int(l.piece) / a.DType.Size()
		if a.pack != nil {
			n -= n % a.pack.Block
		}
		for from := 0; from < a.Elems; from += n {
			pieces = append(pieces, piece{a, from, min(n, a.Elems-from)})
		}
	}
	err := l.share(len(pieces), true, func(r *reader, i int) error {
		return l.upload(r, pieces[i].of, pieces[i].from,
			pieces[i].n)
	})
	if err != nil {
		return err
	}
	return l.share(len(weights), false, func(r *reader, i int) error {
		a := weights[i]
		if a.pack == nil || a.err != nil {
			return nil
		}
		if err := a.pack.Finish(r.g, a.staging, l.check(a)); err != nil || a.parts == nil {
			return err
		}
		return a.parts.keep(r.g.Stream)
	})
}

// check returns where a weight's mark lies that says whether it is finite.
func (l *loading) check(a *transfer) gpu.Ptr { return l.checks.Add(4 * int64(a.index)) }

// share has the readers do n things, each as soon as it can, and wait for their streams if asked to. The first
// error ends it, as does the context's end.
func (l *loading) share(n int, wait bool, do func(r *reader, i int) error) error {
	var next atomic.Int64
	errs := make([]error, len(l.readers))
	var wg sync.WaitGroup
	for k, r := range l.readers {
		wg.Add(1)
		rescue.Go(func() {
			defer wg.Done()
			runtime.LockOSThread() // the context is the thread's
			defer runtime.UnlockOSThread()
			errs[k] = l.store.g.Device.Use()
			for errs[k] == nil {
				i := int(next.Add(1) - 1)
				if i >= n {
					break
				}
				if errs[k] = l.ctx.Err(); errs[k] == nil {
					errs[k] = rescue.Do(func() error { return do(r, i) }) // a mapped file may have been shortened
				}
			}
			if errs[k] != nil {
				next.Store(int64(n))
			} else if wait {
				errs[k] = r.g.Stream.Synchronize()
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// upload reads one piece and queues its copy into its place.
func (l *loading) upload(r *reader, a *transfer, from, n int) error {
	if a.failedBefore(from) {
		return nil
	}
	first := 0 // of the numbers that are kept
	if a.parts != nil && a.pack == nil {
		if first = a.parts.numbers.from; max(from, first) >= min(from+n, a.parts.numbers.to) {
			return nil
		}
		from, n = max(from, first), min(from+n, a.parts.numbers.to)-max(from, first)
	}
	k, size := r.next, int64(a.DType.Size())
	r.next = 1 - k
	if r.used[k] {
		if err := r.sent[k].Synchronize(); err != nil {
			return err
		}
	}
	bytes := int64(n) * size
	if err := a.Read(l.pinned.Bytes[r.slot[k]:r.slot[k]+bytes], from); err != nil {
		a.fail(from, err)
		return nil
	}
	direct := a.pack == nil && a.DType == a.to.DType
	at := r.at
	if direct {
		at = a.to.Ptr.Add(int64(from-first) * size)
	}
	if err := r.g.Stream.CopyIn(at, l.pinned, r.slot[k], bytes); err != nil {
		return err
	}
	r.used[k] = true
	if err := r.sent[k].Record(r.g.Stream); err != nil {
		return err
	}
	switch {
	case direct:
		return nil
	case a.pack != nil:
		return a.pack.Piece(r.g, a.staging, at, from, n)
	}
	return r.g.Convert(a.to.Ptr.Add(int64(from-first)*int64(a.to.DType.Size())), a.to.DType, at, a.DType, n)
}

func (a *transfer) failedBefore(from int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err != nil && a.at < from
}

// fail keeps the error of the earliest piece, whichever is seen first.
func (a *transfer) fail(from int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil || from < a.at {
		a.err, a.at = err, from
	}
}

// finish waits for everything and reads which weights are not finite.
func (l *loading) finish(all []*transfer, each []error) error {
	for _, r := range l.readers {
		if err := r.g.Stream.Synchronize(); err != nil {
			return err
		}
	}
	marks := make([]float32, len(each))
	if err := gpu.Download(marks, l.checks); err != nil {
		return err
	}
	for _, a := range all {
		each[a.index] = a.err
		if m := float64(marks[a.index]); a.pack != nil && a.err == nil && (math.IsNaN(m) || math.IsInf(m, 0)) {
			each[a.index] = ErrNotFinite
		}
	}
	return nil
}

// close gives back what open took, after all copies, and leaves the arena as it was made.
func (l *loading) close() error {
	var first error
	keep := func(err error) {
		if first == nil && err != nil {
			first = fmt.Errorf("end of loading: %w", err)
		}
	}
	for _, r := range l.readers {
		keep(r.g.Stream.Synchronize())
	}
	for _, r := range l.readers {
		for _, e := range r.sent {
			if e != nil {
				keep(e.Close())
			}
		}
		keep(r.g.Stream.Close())
	}
	keep(l.pinned.Free())
	if l.readers != nil && first == nil {
		keep(l.store.g.Stream.Fill(l.store.arena.Base, 0, l.store.arena.Bytes))
	}
	return first
}
