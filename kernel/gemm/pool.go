package gemm

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlora/tierlora/internal/rescue"
)

// Pool is a fixed set of worker goroutines with scratch memory of their own.
// One call at a time uses all of them; callers from several goroutines queue.
// The caller works too, as worker 0, so a pool of one has no goroutine.
type Pool struct {
	mu    sync.Mutex
	wake  []chan struct{} // of workers 1..
	own   []*Pool         // worker i as a pool of one
	space *scratch        // worker 0's

	// The call being served. A worker that wakes late must not meet the next
	// call half set up: how many there are and which is next is one word.
	f      func(i int)
	g      func(own *Pool, i int)
	state  atomic.Uint64 // calls in all <<32 | next
	done   atomic.Uint32
	round  uint64        // calls served
	asleep atomic.Uint64 // the round whose end the caller sleeps for, or 0
	last   chan struct{} // a helper made the last call of that round
	failed atomic.Pointer[failure]
	job32  job[float32]
	job64  job[float64]
}

// An idle worker looks for the next call for some time before it sleeps, and so
// does a caller for the end of the last calls: waking takes tens of
// microseconds, as long as a small GEMM. A training step of a small model is
// a row of such GEMMs with a little serial work between them. On a busy
// machine those who wait leave the processor to those who work.
const (
	workerPatience = 100 * time.Microsecond
	callerPatience = 50 * time.Microsecond
	looks          = 32 // between two looks at the clock
)

type failure struct{ value any }

// NewPool starts workers-1 goroutines; 0 means one worker for each core that
// Go may use. All scratch memory of float32 GEMMs is allocated here.
func NewPool(workers int) *Pool {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	p := &Pool{space: newScratch(), last: make(chan struct{}, 1)}
	p.own = make([]*Pool, workers)
	p.own[0] = &Pool{space: p.space}
	for w := 1; w < workers; w++ {
		p.own[w] = &Pool{space: newScratch()}
		wake := make(chan struct{}, 1)
		p.wake = append(p.wake, wake)
		rescue.Go(func() {
			for range wake {
				p.work(w)
			}
		})
	}
	for _, own := range p.own {
		own.own = []*Pool{own}
		own.prepare()
	}
	p.prepare()
	return p
}

var shared = sync.OnceValue(func() *Pool { return NewPool(0) })

// Shared returns the pool that a nil *Pool stands for: all cores.
func Shared() *Pool { return shared() }

// Workers returns the number of workers, the caller included.
func (p *Pool) Workers() int { return len(p.own) }

// Close ends the goroutines. The pool must be idle and is not used again.
func (p *Pool) Close() {
	for _, w := range p.wake {
		close(w)
	}
	p.wake = nil
}

// Parallel calls f(0) … f(n-1), each once, and returns when all are done.
// Which worker makes a call is not determined, so f(i) must write only what
// belongs to i. f must not use the pool again. Nothing is allocated here; a
// caller that keeps f does not allocate either. A panic in f reaches the
// caller.
func (p *Pool) Parallel(n int, f func(i int)) {
	if n <= 1 || len(p.own) == 1 {
		for i := range n {
			f(i)
		}
		return
	}
	p.mu.Lock()
	p.f, p.g = f, nil
	p.serve(n)
}

// ParallelOn is Parallel for an f that itself multiplies matrices: own is the
// calling worker as a pool of one, with its own scratch memory.
func (p *Pool) ParallelOn(n int, f func(own *Pool, i int)) {
	p.mu.Lock()
	p.f, p.g = nil, f
	p.serve(n)
}

// serve runs the call that was set under p.mu, and unlocks it. It waits for
// calls that were begun, never for a worker to wake up.
func (p *Pool) serve(n int) {
	if n > 0 {
		p.done.Store(0)
		p.round++
		p.state.Store(uint64(n) << 32)
		for _, w := range p.wake[:min(len(p.wake), n-1)] {
			select {
			case w <- struct{}{}:
			default: // it has yet to answer an earlier call and will see this one
			}
		}
		p.take(0)
		p.wait(uint32(n))
	}
	bad := p.failed.Swap(nil)
	p.f, p.g = nil, nil
	p.mu.Unlock()
	if bad != nil {
		panic(bad.value)
	}
}

// work makes calls as they come, until none has come for a while.
func (p *Pool) work(worker int) {
	for since := time.Now(); time.Since(since) < workerPatience; {
		for range looks {
			if s := p.state.Load(); uint32(s) < uint32(s>>32) {
				p.take(worker)
				since = time.Now()
			}
			pause()
		}
		runtime.Gosched()
		yield()
	}
}

// wait returns when n calls are done.
func (p *Pool) wait(n uint32) {
	if p.done.Load() == n {
		return
	}
	for since := time.Now(); time.Since(since) < callerPatience; {
		for range looks {
			if p.done.Load() == n {
				return
			}
			pause()
		}
		yield()
	}
	p.asleep.Store(p.round)
	if p.done.Load() == n && p.asleep.CompareAndSwap(p.round, 0) {
		return
	}
	<-p.last
}

// take makes calls until none is left, and wakes the caller if it sleeps for
// the last of them.
func (p *Pool) take(worker int) {
	for {
		s := p.state.Add(1) - 1
		i, n := uint32(s), uint32(s>>32)
		if i >= n {
			return
		}
		p.call(worker, int(i))
		round := p.round // of this call: the next begins when it is done
		if p.done.Add(1) == n && p.asleep.CompareAndSwap(round, 0) {
			p.last <- struct{}{}
		}
	}
}

// call makes one call; a panic is kept for the caller of the pool.
func (p *Pool) call(worker, i int) {
	defer func() {
		if v := recover(); v != nil {
			rescue.Saw(v)
			p.failed.CompareAndSwap(nil, &failure{v})
		}
	}()
	if p.f != nil {
		p.f(i)
	} else {
		p.g(p.own[worker], i)
	}
}

// Bytes returns the scratch memory that the pool holds.
func (p *Pool) Bytes() int64 {
	n := int64(0)
	for _, own := range p.own {
		n += own.space.bytes()
	}
	return n
}
