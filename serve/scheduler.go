package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tierlora/tierlora/infer"
)

// Errors of Submit and of sequences that end without an answer.
var (
	ErrBusy    = errors.New("too many requests are waiting already")
	ErrClosing = errors.New("the server is shutting down")
	ErrEngine  = errors.New("the model failed")
)

// Sequence is one answer that a request asks for. The goroutine of Run calls both functions; they must not block.
type Sequence struct {
	Adapter  string
	Prompt   infer.Prompt
	Sampling Sampling
	// Take is called with every token.
	Take func(Token)
	// End is called once, after the last token; nil means that the answer is complete.
	End func(error)
}

// failuresToStop is the number of consecutive failed steps after which the scheduler gives up.
const failuresToStop = 3

// job is a request with the sequences that still wait for a slot.
type job struct {
	ctx     context.Context
	waiting []*Sequence
	started bool // at least one of its sequences has had a slot
}

// running is a sequence in a slot.
type running struct {
	*Sequence
	ctx context.Context
}

// Scheduler shares an engine's slots: a sequence takes a slot as soon as one is free and leaves it at its last token.
// Requests take turns with one sequence each, in the order of their arrival, so that a request with many sequences
// delays others by at most one sequence per turn.
type Scheduler struct {
	engine Engine
	// maxWaiting is the number of requests that may wait beyond those for which a slot is free. A request waits as long
	// as one of its sequences has had no slot.
	maxWaiting int

	mu      sync.Mutex
	queue   []*job
	closing bool
	cancel  context.CancelCauseFunc
	ctx     context.Context
	stats   Stats

	wake  chan struct{}
	done  chan struct{}
	slots []running // used by Run's goroutine only; a nil Sequence = free
	err   error     // why it gave up; read after done is closed
}

// Stats holds counts since the start and the present state.
type Stats struct {
	Slots, Running   int
	Waiting          int // requests without a sequence in a slot
	Refused          int64
	Steps            int64
	StepTime         time.Duration
	PromptTokens     int64
	GeneratedTokens  int64
	Finished, Failed int64 // sequences
}

// NewScheduler makes a scheduler; the caller must call Run. At most waiting requests are queued.
func NewScheduler(e Engine, waiting int) *Scheduler {
	s := &Scheduler{engine: e, maxWaiting: waiting, wake: make(chan struct{}, 1), done: make(chan struct{}),
		slots: make([]running, e.Slots())}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.stats.Slots = e.Slots()
	return s
}

// Submit queues a request's sequences. It never waits. If it returns nil, every sequence's End will be called.
// Cancelling ctx ends the unfinished ones.
func (s *Scheduler) Submit(ctx context.Context, all ...*Sequence) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing:
		return ErrClosing
	case len(s.queue) >= s.maxWaiting+s.free():
		s.stats.Refused++
		return ErrBusy
	}
	s.queue = append(s.queue, &job{ctx: ctx, waiting: all})
	s.poke()
	return nil
}

// waiting counts requests without a slot. The caller must hold mu.
func (s *Scheduler) waiting() int {
	n := 0
	for _, j := range s.queue {
		if !j.started {
			n++
		}
	}
	return n
}

// free counts slots without a sequence. The caller must hold mu.
func (s *Scheduler) free() int { return s.stats.Slots - s.stats.Running }

func (s *Scheduler) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Stats returns the present statistics.
func (s *Scheduler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Waiting = s.waiting()
	return stats
}

// Closing reports whether new requests are refused.
func (s *Scheduler) Closing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// Done returns a channel that is closed when the scheduler has ended.
func (s *Scheduler) Done() <-chan struct{} { return s.done }

// Close rejects new requests and finishes the present ones, or cancels them when ctx ends. It returns the error with
// which the scheduler gave up, if it did.
func (s *Scheduler) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	s.poke()
	s.mu.Unlock()
	select {
	case <-s.done:
	case <-ctx.Done():
		s.cancel(ErrClosing)
		s.poke()
		<-s.done
	}
	return s.err
}

// Run serves requests until Close, or until the scheduler gives up. It must be called once, by the goroutine that made
// the engine: a GPU's engine is bound to that goroutine's thread.
func (s *Scheduler) Run() {
	defer close(s.done)
	failures := 0
	for {
		s.endCancelled()
		s.fill()
		s.mu.Lock()
		busy, ended := s.stats.Running > 0, s.closing && len(s.queue) == 0
		s.mu.Unlock()
		if !busy {
			if ended {
				return
			}
			<-s.wake
			continue
		}
		began := time.Now()
		tokens, err := s.engine.Step(s.ctx)
		took := time.Since(began)
		if err == nil {
			failures = 0
			s.deal(tokens, took)
			continue
		}
		if s.ctx.Err() != nil {
			continue // endCancelled ends the running sequences
		}
		s.endAll(fmt.Errorf("%w: %w", ErrEngine, err))
		if failures++; failures == failuresToStop {
			s.giveUp(err)
			return
		}
	}
}

// endCancelled ends the sequences of cancelled requests, or all if the scheduler was told to stop.
func (s *Scheduler) endCancelled() {
	cause := context.Cause(s.ctx)
	for slot, r := range s.slots {
		switch {
		case r.Sequence == nil:
		case cause != nil:
			s.end(slot, cause)
		case r.ctx.Err() != nil:
			s.end(slot, context.Cause(r.ctx))
		}
	}
	s.mu.Lock()
	var gone []*job
	kept := s.queue[:0]
	for _, j := range s.queue {
		if cause != nil || j.ctx.Err() != nil {
			gone = append(gone, j)
		} else {
			kept = append(kept, j)
		}
	}
	clear(s.queue[len(kept):])
	s.queue = kept
	s.mu.Unlock()
	for _, j := range gone {
		why := cause
		if why == nil {
			why = context.Cause(j.ctx)
		}
		for _, q := range j.waiting {
			s.finish(q, why)
		}
	}
}

// fill assigns free slots to the requests in turn.
func (s *Scheduler) fill() {
	for slot := range s.slots {
		for s.slots[slot].Sequence == nil {
			q, ctx := s.next()
			if q == nil {
				return
			}
			if err := s.engine.Start(slot, q.Adapter, q.Prompt, q.Sampling); err != nil {
				s.engine.Stop(slot)
				s.finish(q, fmt.Errorf("%w: %w", ErrEngine, err))
				continue
			}
			s.slots[slot] = running{q, ctx}
			s.mu.Lock()
			s.stats.Running++
			s.stats.PromptTokens += int64(len(q.Prompt.IDs))
			s.mu.Unlock()
		}
	}
}

// next takes a sequence of the request whose turn it is. The request moves to the end of the queue if it has more.
func (s *Scheduler) next() (*Sequence, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil, nil
	}
	j := s.queue[0]
	s.queue[0] = nil
	s.queue = s.queue[1:]
	q := j.waiting[0]
	j.waiting, j.started = j.waiting[1:], true
	if len(j.waiting) > 0 {
		s.queue = append(s.queue, j)
	}
	return q, j.ctx
}

// deal passes the tokens of a step to their sequences.
func (s *Scheduler) deal(tokens []Token, took time.Duration) {
	generated := int64(0)
	for _, t := range tokens {
		r := s.slots[t.Slot]
		switch {
		case r.Sequence == nil:
		case t.Err != nil:
			s.end(t.Slot, fmt.Errorf("%w: %w", ErrEngine, t.Err))
		default:
			generated++
			if r.Take(t); t.Ended != "" {
				s.end(t.Slot, nil)
			}
		}
	}
	s.mu.Lock()
	s.stats.Steps++
	s.stats.StepTime += took
	s.stats.GeneratedTokens += generated
	s.mu.Unlock()
}

// end frees a slot.
func (s *Scheduler) end(slot int, why error) {
	q := s.slots[slot].Sequence
	s.engine.Stop(slot)
	s.slots[slot] = running{}
	s.mu.Lock()
	s.stats.Running--
	s.mu.Unlock()
	s.finish(q, why)
}

func (s *Scheduler) endAll(why error) {
	for slot, r := range s.slots {
		if r.Sequence != nil {
			s.end(slot, why)
		}
	}
}

// finish calls a sequence's End.
func (s *Scheduler) finish(q *Sequence, why error) {
	s.mu.Lock()
	if why == nil {
		s.stats.Finished++
	} else {
		s.stats.Failed++
	}
	s.mu.Unlock()
	q.End(why)
}

// giveUp ends all sequences after the engine has failed permanently.
func (s *Scheduler) giveUp(err error) {
	s.err = fmt.Errorf("%d steps in a row failed: %w", failuresToStop, err)
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.cancel(ErrClosing)
	s.endCancelled()
}
