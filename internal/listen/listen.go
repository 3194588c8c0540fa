// Package listen bounds the connections of an HTTP server. When all places are taken, the connection that has been idle
// longest makes room for the next one, so that clients that keep connections open without asking starve nobody.
package listen

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// newcomer is how long a connection may be open without a byte of its first request before it may be closed for
// another.
const newcomer = time.Second

// Listener accepts connections while fewer than a number of them are open. Its State must be the server's ConnState.
type Listener struct {
	net.Listener
	most    int
	mu      sync.Mutex
	open    map[net.Conn]*place
	changed chan struct{} // a place is free, or a connection idle; capacity 1
	closed  chan struct{}
	once    sync.Once
}

// place is an open connection.
type place struct {
	state http.ConnState
	since time.Time // when it came into this state
}

// Bound returns a listener of at most most connections, which is at least 1.
func Bound(l net.Listener, most int) *Listener {
	return &Listener{Listener: l, most: max(most, 1), open: map[net.Conn]*place{}, changed: make(chan struct{}, 1),
		closed: make(chan struct{})}
}

// Accept waits for the next connection and for a place for it.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	mine := &conn{Conn: c, l: l}
	for !l.take(mine) {
		select {
		case <-l.changed:
		case <-time.After(newcomer / 4): // newcomers grow old
		case <-l.closed:
			_ = c.Close()
			return nil, net.ErrClosed
		}
	}
	return mine, nil
}

// take gives a connection a place where there is one, or where one can be made free.
func (l *Listener) take(c net.Conn) bool {
	l.mu.Lock()
	var leaves net.Conn
	if len(l.open) >= l.most {
		if leaves = l.idlest(); leaves == nil {
			l.mu.Unlock()
			return false
		}
		delete(l.open, leaves)
	}
	l.open[c] = &place{http.StateNew, time.Now()}
	l.mu.Unlock()
	if leaves != nil {
		_ = leaves.Close()
	}
	return true
}

// idlest is the connection that has been idle longest, else the oldest one that never sent anything; nil = none.
func (l *Listener) idlest() net.Conn {
	var found net.Conn
	var best *place
	for c, p := range l.open {
		switch {
		case p.state != http.StateIdle && !(p.state == http.StateNew && time.Since(p.since) >= newcomer):
		case best == nil, p.state == http.StateIdle && best.state == http.StateNew, p.state == best.state &&
			p.since.Before(best.since):
			found, best = c, p
		}
	}
	return found
}

// State notes what a connection does.
func (l *Listener) State(c net.Conn, s http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.open[c]; p != nil && p.state != s {
		p.state, p.since = s, time.Now()
		if s == http.StateIdle {
			l.tell()
		}
	}
}

func (l *Listener) tell() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Close ends Accept; connections stay open.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type conn struct {
	net.Conn
	l *Listener
}

// Close gives the place back.
func (c *conn) Close() error {
	c.l.mu.Lock()
	delete(c.l.open, c)
	c.l.tell()
	c.l.mu.Unlock()
	return c.Conn.Close()
}
