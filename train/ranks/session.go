package ranks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// session is one process in a group: its ranks, and its transport to the others.
type session struct {
	first, world int // first rank of this process, and number of ranks of all processes
	members      []*participant
	timeout      time.Duration
	way          way

	mu    sync.Mutex
	err   *LostError
	lost  chan struct{}
	stall chan struct{} // closed when the devices wait for one another
	ended bool          // the process of rank 0 has ended regularly
	gone  chan struct{} // closed when ended is set
	still int           // number of its ranks that have not left
	over  chan struct{}
	once  sync.Once // closes over
}

// way is how a process's ranks reach the others: it is the coordinator (hub), or is connected to it (spoke).
type way interface {
	offer(m *participant, seq uint64, what string, data []byte)
	// broke tells the others of the session's failure; m is the local rank that failed, or nil.
	broke(m *participant, e *LostError)
	// leave tells the others that a rank has ended successfully; last means that it is the last of this process.
	leave(m *participant, last bool)
	// close ends the connections.
	close()
	beat()
}

// participant is one rank of this process.
type participant struct {
	s       *session
	local   int
	seq     uint64
	results chan gathered

	// Guarded by s.mu.
	at    status
	warm  bool      // a step has ended, so the following steps are timed
	began time.Time // start of the current step
	left  bool
}

type gathered struct {
	seq   uint64
	parts [][]byte
}

func newSession(n int, timeout time.Duration) *session {
	s := &session{timeout: timeout, lost: make(chan struct{}), stall: make(chan struct{}), gone: make(chan struct{}),
		over: make(chan struct{}), still: n}
	for i := range n {
		s.members = append(s.members, &participant{s: s, local: i, results: make(chan gathered, 1),
			at: status{doing: "starting"}})
	}
	return s
}

func (s *session) groups() []Group {
	all := make([]Group, len(s.members))
	for i, m := range s.members {
		all[i] = m
	}
	return all
}

// statuses returns the statuses of this process's ranks.
func (s *session) statuses() []status {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]status, len(s.members))
	for i, m := range s.members {
		all[i] = m.at
	}
	return all
}

// fail ends the group with its first failure.
func (s *session) fail(m *participant, e *LostError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.ended && m == nil {
		return
	}
	s.err = e
	s.way.broke(m, e) // before a local rank learns of it and closes the connection
	close(s.lost)
}

// letGo tells this process's ranks that the devices wait for one another; s.mu is held.
func (s *session) letGo() {
	select {
	case <-s.stall:
	default:
		close(s.stall)
	}
}

func (s *session) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return nil
	}
	return s.err
}

// deliver hands a gather's result to this process's ranks.
func (s *session) deliver(seq uint64, parts [][]byte) {
	for _, m := range s.members {
		select {
		case <-m.results: // the result of a gather that its rank no longer waits for
		default:
		}
		m.results <- gathered{seq, parts}
	}
}

// tellEvery bounds how soon the others learn of a rank's new status.
const tellEvery = 50 * time.Millisecond

// beating sends signs of life with the statuses of the local ranks until the session is over.
func (s *session) beating() {
	tick := time.NewTicker(min(tellEvery, s.timeout/8))
	defer tick.Stop()
	every, told, said := min(time.Second, s.timeout/8), time.Time{}, []status(nil)
	for {
		select {
		case now := <-tick.C:
			if all := s.statuses(); now.Sub(told) >= every || !slices.Equal(all, said) {
				told, said = now, all
				s.way.beat()
			}
		case <-s.over:
			return
		}
	}
}

func (s *session) finish() { s.once.Do(func() { close(s.over) }) }

func (m *participant) Rank() int             { return m.s.first + m.local }
func (m *participant) World() int            { return m.s.world }
func (m *participant) Lost() <-chan struct{} { return m.s.lost }
func (m *participant) Err() error            { return m.s.failure() }

func (m *participant) Stalled() <-chan struct{} { return m.s.stall }

func (m *participant) At(step int, doing string) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.at.count++
	now, before := time.Now(), m.at
	if before.step != step || before.doing != doing {
		m.at.step, m.at.doing = max(step, 0), plain(doing, maxWhat)
	}
	if stepped := before.step > 0 && m.at.step == before.step+1 && m.at.doing == before.doing; stepped && m.warm {
		m.at.slowest = max(m.at.slowest, now.Sub(m.began))
	} else if stepped {
		m.warm = true // The first step of a process loads kernels and connects devices, so it is not typical.
	}
	m.began = now
}

// Gather returns results that the ranks of a process share: callers must not change them.
func (m *participant) Gather(ctx context.Context, what string, mine []byte) ([][]byte, error) {
	if len(what) > maxWhat || len(mine) > maxPart {
		return nil, fmt.Errorf("gather %.60s: %d bytes of rank %d: at most %d can be sent at once", what, len(mine),
			m.Rank(),
			maxPart)
	}
	if err := m.s.failure(); err != nil {
		return nil, err
	}
	m.s.mu.Lock()
	left, step := m.left, m.at.step
	m.s.mu.Unlock()
	if left {
		return nil, fmt.Errorf("gather %s: rank %d has left the group", what, m.Rank())
	}
	m.seq++
	m.s.way.offer(m, m.seq, what, mine)
	var err error
	for err == nil {
		select {
		case r := <-m.results:
			if r.seq == m.seq {
				return r.parts, nil
			}
		case <-m.s.lost:
			err = m.s.failure()
		case <-m.s.gone:
			err = &LostError{Rank: 0, Step: step, Doing: what, Why: "it has ended, and others have not"}
		case <-ctx.Done():
			err = fmt.Errorf("gather %s: %w", what, ctx.Err())
		}
	}
	select {
	case r := <-m.results: // the result came first
		if r.seq == m.seq {
			return r.parts, nil
		}
	default:
	}
	return nil, err
}

// Leave ends this rank. It waits at most `goodbye` for the message to reach the others.
func (m *participant) Leave(err error) error {
	s := m.s
	s.mu.Lock()
	if m.left {
		s.mu.Unlock()
		return nil
	}
	m.left = true
	s.still--
	last, failed, at := s.still == 0, s.err != nil, m.at
	s.mu.Unlock()
	switch {
	case failed:
	case err != nil:
		lost := (*LostError)(nil)
		if !errors.As(err, &lost) {
			lost = &LostError{Rank: m.Rank(), Step: at.step, Doing: at.doing, Why: plain(err.Error(), 2000)}
		}
		s.fail(m, lost)
	default:
		s.way.leave(m, last)
	}
	if last {
		s.way.close()
		s.finish()
	}
	return nil
}

func (e *LostError) encode() []byte {
	b, _ := json.Marshal(e)
	return b
}

// decodeLost decodes another process's report of a failure; nil if it is invalid.
func decodeLost(b []byte) *LostError {
	e := &LostError{}
	if len(b) == 0 || json.Unmarshal(b, e) != nil || e.Rank < 0 || e.Rank >= MaxWorld || e.Step < 0 {
		return nil
	}
	e.Doing, e.Why = plain(e.Doing, maxWhat), plain(e.Why, 2000)
	return e
}
