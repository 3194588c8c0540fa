package main

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/tierlora/tierlora/internal/rescue"
)

// outlet writes to a terminal or pipe without ever waiting for who reads it: what comes while nobody reads is kept up
// to a limit, then dropped, and counted. A run must not stand still because somebody paused a pager. What a closed pipe
// refuses is dropped too.
type outlet struct {
	w io.Writer

	mu      sync.Mutex
	waiting [][]byte // not written yet, in order
	bytes   int      // of waiting
	dropped int      // writes since the last that was kept
	busy    bool     // the writer is at work
	closed  bool     // w refuses everything
	err     error    // what it said
	changed chan struct{}
}

const (
	outletBytes = 256 << 10       // kept while nobody reads
	outletWait  = 2 * time.Second // for who reads, at the end of the program
)

func newOutlet(w io.Writer) *outlet { return &outlet{w: w, changed: make(chan struct{})} }

// Write never waits and never fails.
func (o *outlet) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
	case o.bytes+len(p) > outletBytes:
		o.dropped++
	default:
		if o.dropped > 0 {
			o.keep(fmt.Appendf(nil, "(%d lines are left out here: nobody read them in time)\n", o.dropped))
			o.dropped = 0
		}
		o.keep(append([]byte(nil), p...))
	}
	return len(p), nil
}

// pending tells whether something is not written yet.
func (o *outlet) pending() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.waiting) > 0
}

// keep queues a text, and starts the writer where it rests. The caller holds mu.
func (o *outlet) keep(p []byte) {
	o.waiting, o.bytes = append(o.waiting, p), o.bytes+len(p)
	if !o.busy {
		o.busy = true
		rescue.Go(func() { o.drain() })
	}
}

// drain writes what waits. Only one runs at a time; a write that never returns keeps it for good.
func (o *outlet) drain() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.waiting) > 0 && !o.closed {
		p := o.waiting[0]
		o.mu.Unlock()
		_, err := o.w.Write(p)
		o.mu.Lock()
		o.waiting, o.bytes = o.waiting[1:], o.bytes-len(p)
		if err != nil {
			o.closed, o.err = true, err
		}
	}
	o.waiting, o.bytes, o.busy = nil, 0, false
	close(o.changed)
	o.changed = make(chan struct{})
}

// failed is why nothing more arrives; nil where it does, or where who read has closed the pipe.
func (o *outlet) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(o.err, syscall.EPIPE) {
		return nil
	}
	return o.err
}

// flush waits until everything is written, at most so long.
func (o *outlet) flush(most time.Duration) {
	o.mu.Lock()
	busy, changed := o.busy, o.changed
	o.mu.Unlock()
	if busy {
		select {
		case <-changed:
		case <-time.After(most):
		}
	}
}
