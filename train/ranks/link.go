package ranks

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/tierlora/tierlora/internal/rescue"
)

// chunk is the most bytes that are read or written in one call under a deadline.
const chunk = 1 << 20

// goodbye bounds the wait for sent messages to arrive.
const goodbye = 2 * time.Second

// link is the connection of two processes after their handshake. A goroutine of its own writes the frames in order.
type link struct {
	conn    net.Conn
	in      *bufio.Reader
	timeout time.Duration // the other side is lost if no byte arrives for this long

	mu      sync.Mutex
	wake    *sync.Cond
	queue   []frame
	ending  bool
	failed  error         // error of a write
	written chan struct{} // closed when the writer has ended
	read    chan struct{} // closed when the reader has ended
}

func newLink(c net.Conn, timeout time.Duration) *link {
	l := &link{conn: c, timeout: timeout, written: make(chan struct{}), read: make(chan struct{})}
	l.wake = sync.NewCond(&l.mu)
	l.in = bufio.NewReaderSize(patient{l}, 64<<10)
	rescue.Go(func() { l.write() })
	return l
}

// patient reads with a deadline for every piece. If this process was itself held up, bytes are waiting when the
// deadline has passed, so a read is tried twice.
type patient struct{ *link }

func (p patient) Read(b []byte) (int, error) {
	b = b[:min(len(b), chunk)]
	for _, wait := range []time.Duration{p.timeout * 4 / 5, p.timeout / 5} {
		if err := p.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return 0, err
		}
		n, err := p.conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	return 0, os.ErrDeadlineExceeded
}

// next reads the next frame.
func (l *link) next() (frame, error) {
	f, err := readFrame(l.in, kindStart, kinds-1)
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.failed != nil {
			err = l.failed
		}
	}
	return f, err
}

// send queues a frame; its payload must not change afterwards.
func (l *link) send(f frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ending {
		l.queue = append(l.queue, f)
		l.wake.Signal()
	}
}

// beat sends a sign of life, unless a frame is being sent already.
func (l *link) beat(f frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ending && len(l.queue) == 0 {
		l.queue = append(l.queue, f)
		l.wake.Signal()
	}
}

func (l *link) write() {
	defer close(l.written)
	for {
		l.mu.Lock()
		for len(l.queue) == 0 && !l.ending {
			l.wake.Wait()
		}
		if len(l.queue) == 0 {
			l.mu.Unlock()
			if c, ok := l.conn.(interface{ CloseWrite() error }); ok {
				c.CloseWrite() // the other side may be gone
			}
			return
		}
		f := l.queue[0]
		l.queue[0] = frame{}
		l.queue = l.queue[1:]
		l.mu.Unlock()
		if err := l.writeOne(f); err != nil {
			l.mu.Lock()
			l.ending, l.queue, l.failed = true, nil, err
			l.mu.Unlock()
			l.conn.Close() // the reader reports the failure
			return
		}
	}
}

func (l *link) writeOne(f frame) error {
	head, err := f.header()
	if err != nil {
		return err
	}
	for _, rest := range [][]byte{head, f.data} {
		for len(rest) > 0 {
			if err := l.conn.SetWriteDeadline(time.Now().Add(l.timeout)); err != nil {
				return err
			}
			n, err := l.conn.Write(rest[:min(len(rest), chunk)])
			if err != nil {
				return err
			}
			rest = rest[n:]
		}
	}
	return nil
}

// end sends what is queued and tells the other side that no more follows. Then the other side ends too, and done
// closes.
func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = true
	l.wake.Signal()
}

// await waits until the link has ended on both sides, or until the deadline, and closes it.
func (l *link) await(deadline <-chan struct{}) {
	for _, ended := range []chan struct{}{l.written, l.read} {
		select {
		case <-ended:
		case <-deadline:
		}
	}
	l.conn.Close() // everything was sent
}

// drain reads and discards what a process sends, until the end.
func (l *link) drain() {
	defer close(l.read)
	for {
		if _, err := l.next(); err != nil {
			return
		}
	}
}

// why explains the end of a connection.
func (l *link) why(err error) string {
	switch {
	case err == nil:
		return "it has ended"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "it does not answer since " + l.timeout.String()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return "the connection was closed"
	}
	return plain(err.Error(), 500)
}
