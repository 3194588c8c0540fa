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

// outlet writes to a terminal or pipe without ever waiting for its reader. It buffers up to a limit while nobody reads,
// then drops and counts writes. A run must not stop because somebody paused a pager. It also drops what a closed pipe
// refuses.
type outlet struct {
	w io.Writer

	mu      sync.Mutex
	waiting [][]byte // unwritten data, in order
	bytes   int      // size of waiting
	dropped int      // writes dropped since the last buffered one
	busy    bool     // the writer goroutine is running
	closed  bool     // w refuses everything
	err     error    // w's error
	changed chan struct{}
}

const (
	outletBytes = 256 << 10       // buffered while nobody reads
	outletWait  = 2 * time.Second // time for the reader at the end of the program
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

// pending reports whether anything is not written yet.
func (o *outlet) pending() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.waiting) > 0
}

// keep appends data to the buffer and starts the writer if it is idle. The caller holds mu.
func (o *outlet) keep(p []byte) {
	o.waiting, o.bytes = append(o.waiting, p), o.bytes+len(p)
	if !o.busy {
		o.busy = true
		rescue.Go(func() { o.drain() })
	}
}

// drain writes the buffered data. Only one drain runs at a time; it blocks for ever on a write that never returns.
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

// failed returns the error that stops all output, or nil if output continues or the reader closed the pipe.
func (o *outlet) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(o.err, syscall.EPIPE) {
		return nil
	}
	return o.err
}

// flush waits until everything is written, for at most the given time.
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
