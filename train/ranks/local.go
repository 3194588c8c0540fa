package ranks

import (
	"bytes"
	"context"
	"fmt"
	"sync"
)

// local connects the ranks of a run that are goroutines of one process.
type local struct {
	mu    sync.Mutex
	ranks []member
	now   *round
	lost  chan struct{}
	err   *LostError
}

// member is the state of a rank.
type member struct {
	step  int
	doing string
	left  bool
}

// round is one Gather of all ranks.
type round struct {
	what string
	sent [][]byte
	n    int
	full chan struct{}
}

// seat is one rank's Group in a local group.
type seat struct {
	of   *local
	rank int
}

// NewLocal returns the groups of world ranks in one process, by rank.
func NewLocal(world int) []Group {
	l := &local{ranks: make([]member, world), lost: make(chan struct{})}
	l.now = l.newRound()
	all := make([]Group, world)
	for r := range all {
		all[r] = seat{l, r}
	}
	return all
}

func (l *local) newRound() *round {
	return &round{sent: make([][]byte, len(l.ranks)), full: make(chan struct{})}
}

func (s seat) Rank() int  { return s.rank }
func (s seat) World() int { return len(s.of.ranks) }

func (s seat) Gather(ctx context.Context, what string, mine []byte) ([][]byte, error) {
	l := s.of
	now, err := l.send(s.rank, what, mine)
	if err != nil {
		return nil, err
	}
	select {
	case <-now.full:
		return now.sent, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", what, ctx.Err())
	case <-l.lost:
		select {
		case <-now.full: // it was done before
			return now.sent, nil
		default:
			return nil, s.Err()
		}
	}
}

// send adds a rank's bytes to the round; the last rank's bytes end it.
func (l *local) send(rank int, what string, mine []byte) (*round, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	for r, m := range l.ranks {
		if m.left {
			l.lose(r, "it has ended")
			return nil, l.err
		}
	}
	now := l.now
	if now.n == 0 {
		now.what = what
	} else if now.what != what {
		l.lose(rank, fmt.Sprintf("it is at %q, others are at %q", what, now.what))
		return nil, l.err
	}
	now.sent[rank] = bytes.Clone(mine)
	if now.n++; now.n == len(l.ranks) {
		l.now = l.newRound()
		close(now.full)
	}
	return now, nil
}

// lose ends the group for all ranks; the first reason counts. The caller holds mu.
func (l *local) lose(rank int, why string) {
	if l.err == nil {
		l.err = &LostError{Rank: rank, Step: l.ranks[rank].step, Doing: l.ranks[rank].doing, Why: why}
		close(l.lost)
	}
}

func (s seat) At(step int, doing string) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	m := &s.of.ranks[s.rank]
	m.step, m.doing = step, doing
}

func (s seat) Lost() <-chan struct{} { return s.of.lost }

// Stalled returns nil, which is never closed: nothing watches the devices.
func (s seat) Stalled() <-chan struct{} { return nil }

func (s seat) Err() error {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.of.err == nil {
		return nil
	}
	return s.of.err
}

func (s seat) Leave(err error) error {
	l := s.of
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ranks[s.rank].left = true
	switch {
	case err != nil:
		l.lose(s.rank, err.Error())
	case l.now.n > 0: // the others wait for it
		l.lose(s.rank, "it has ended")
	}
	return nil
}
