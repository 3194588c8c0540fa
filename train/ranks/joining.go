package ranks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tierlora/tierlora/internal/rescue"
)

// joining is the state of the coordinator while processes join.
type joining struct {
	s    *session
	me   hello
	o    Options
	bad  chan error    // why the run cannot begin
	all  chan struct{} // closed when every process has joined
	over chan struct{} // closed when the wait has ended, successfully (hub is set) or not
	hub  *hub

	mu        sync.Mutex
	at        []*link // by process; nil = has not joined
	of        []hello
	came      int // number of other processes of this run that have joined
	late      int // number that came after the run had failed
	strangers int
	failed    error // why the run cannot begin
}

// coordinate waits for every process of the run.
func (s *session) coordinate(ctx context.Context, p Place, o Options, me hello) error {
	listener, err := listenAt(ctx, p, o)
	if err != nil {
		return err
	}
	j := &joining{
		s: s, me: me, o: o, at: make([]*link, p.World), of: make([]hello, p.World),
		bad: make(chan error, 1), all: make(chan struct{}), over: make(chan struct{}),
	}
	j.of[0] = me
	rescue.Go(func() { j.accept(listener) })
	defer listener.Close() // later connections are too late
	err = j.wait(ctx, p, listener.Addr())
	if o.failed != nil {
		err = o.failed
	}
	if err == nil {
		err = j.begin(s)
	}
	if err == nil {
		return nil
	}
	j.tell(err)
	linger := lingerTime
	if o.failed != nil {
		linger = reportWait
	}
	select {
	case <-j.all:
	case <-ctx.Done():
	case <-time.After(linger): // for processes that are about to connect
	}
	return err
}

// begin makes a group of the processes that have joined.
func (j *joining) begin(s *session) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := &hub{session: s, links: j.at, firsts: make([]int, len(j.at)), quick: j.o.Quick, long: j.o.long,
		devices: j.o.Devices, logf: j.o.Logf}
	ranks := 0
	for _, they := range j.of {
		h.counts = append(h.counts, they.Ranks)
		ranks += they.Ranks
	}
	if ranks > MaxWorld {
		return fmt.Errorf("%d ranks of %d processes are more than %d", ranks, len(j.at), MaxWorld)
	}
	j.hub = h
	h.run()
	h.begin()
	close(j.over)
	return nil
}

// tell sends the reason why the run cannot begin to processes that have joined, and to those that still will.
func (j *joining) tell(err error) {
	j.mu.Lock()
	j.failed = err
	close(j.over)
	come := slices.DeleteFunc(slices.Clone(j.at[1:]), func(l *link) bool { return l == nil })
	j.mu.Unlock()
	lastWords(err, come...)
}

// lastWords tells processes why the run cannot begin, and waits until they have ended: closing a connection with unread
// data would discard what was sent on it.
func lastWords(why error, links ...*link) {
	lost := &LostError{Rank: 0, Doing: "waiting for all to join", Why: plain(why.Error(), 2000)}
	for _, l := range links {
		l.send(frame{kind: kindLost, data: lost.encode()})
		l.end()
	}
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	for _, l := range links {
		l.await(ctx.Done())
	}
}

// wait returns when all processes have joined, or one cannot.
func (j *joining) wait(ctx context.Context, p Place, at net.Addr) error {
	tell, beat := time.NewTimer(5*time.Second), time.NewTicker(min(time.Second, j.s.timeout/8))
	defer tell.Stop()
	defer beat.Stop()
	for {
		select {
		case <-j.all:
			return nil
		case err := <-j.bad:
			return err
		case <-tell.C:
			j.o.Logf("rank 0 waits at %v for %s of %d processes", at, j.missing(), p.World)
			tell.Reset(30 * time.Second)
		case <-beat.C:
			j.beat()
		case <-ctx.Done():
			return fmt.Errorf("rank 0 waited at %v for %v: %s of %d processes did not come: %w", at, j.o.Wait,
				j.missing(),
				p.World, ctx.Err())
		}
	}
}

// beat tells the processes that have joined that this process is alive.
func (j *joining) beat() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, l := range j.at[1:] {
		if l != nil {
			l.beat(frame{kind: kindBeat, data: packStatus(j.s.statuses())})
		}
	}
}

// attend reads what a joined process sends, until its connection ends.
func (j *joining) attend(l *link, process int) {
	defer close(l.read)
	for {
		f, err := l.next()
		select {
		case <-j.over:
		default:
			if err == nil && f.kind == kindBeat {
				continue
			}
			why := l.why(err)
			if lost := decodeLost(f.data); lost != nil {
				why = lost.Why
			}
			j.fails(fmt.Errorf("process %d of %d ended before all had come: %s", process, j.me.World, why))
			<-j.over
		}
		switch {
		case j.hub != nil && j.hub.got(process, f, err):
			return
		case j.hub == nil && err != nil:
			return
		}
	}
}

// missing lists the processes that have not joined.
func (j *joining) missing() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var numbers []string
	for i, l := range j.at[1:] {
		if l == nil {
			if len(numbers) == 8 {
				numbers = append(numbers, "...")
				break
			}
			numbers = append(numbers, fmt.Sprint(i+1))
		}
	}
	return "number " + strings.Join(numbers, ", ")
}

// accept takes connections until the listener closes. It limits concurrent handshakes, so that a stranger cannot take
// more.
func (j *joining) accept(listener net.Listener) {
	room := make(chan struct{}, 256)
	for {
		conn, err := listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(50 * time.Millisecond) // for example too many open files
			continue
		}
		room <- struct{}{}
		rescue.Go(func() {
			defer func() { <-room }()
			if they, err := receive(conn, j.o.Key, func(they hello) *refusal { return j.check(they) }); err != nil {
				j.refused(conn.RemoteAddr(), they, err) // first, so that whoever sees the end has been told why
				conn.Close()                            // the error is reported
			} else if err := j.add(conn, they); err != nil {
				l := newLink(conn, j.s.timeout)
				rescue.Go(func() { l.drain() })
				lastWords(err, l)
				j.fails(err)
			}
		})
	}
}

// check rejects a process that does not belong to this run or differs from it.
func (j *joining) check(they hello) *refusal {
	who := fmt.Sprintf("process %d of %d", they.Rank, they.World)
	switch me := j.me; {
	case they.Run != plain(me.Run, 200):
		return &refusal{Why: fmt.Sprintf("%s belongs to the start %q, and this is %q", who, they.Run,
			plain(me.Run, 200)),
			Again: true}
	case they.Version != plain(me.Version, 200):
		return &refusal{Why: fmt.Sprintf("%s is program %q, and rank 0 is %q: start the same one everywhere", who,
			they.Version, plain(me.Version, 200)), Ends: true}
	case they.World != me.World:
		return &refusal{Why: fmt.Sprintf("%s has come, and rank 0 is of %d processes", who, me.World), Ends: true}
	case they.Rank < 1 || they.Rank >= me.World || they.Ranks < 1 || they.Ranks > MaxWorld:
		return &refusal{Why: fmt.Sprintf("%s with %d ranks has come: wants a number from 1 to %d", who, they.Ranks,
			me.World-1), Ends: true}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed != nil {
		j.isLate()
		return &refusal{Why: fmt.Sprintf("the run cannot begin: %v", j.failed)}
	}
	if j.at[they.Rank] != nil {
		return &refusal{Why: fmt.Sprintf("%s has come twice, and came first from %v", who,
			j.at[they.Rank].conn.RemoteAddr()),
			Ends: true}
	}
	return nil
}

// isLate counts a process that came after the run had failed; j.mu is held.
func (j *joining) isLate() {
	if j.late++; j.late+j.came == len(j.at)-1 {
		close(j.all)
	}
}

func (j *joining) add(conn net.Conn, they hello) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed != nil {
		j.isLate()
		return j.failed
	}
	if j.at[they.Rank] != nil {
		return fmt.Errorf("process %d of %d has come twice, from %v and from %v", they.Rank, they.World,
			j.at[they.Rank].conn.RemoteAddr(), conn.RemoteAddr())
	}
	l := newLink(conn, j.s.timeout)
	j.at[they.Rank], j.of[they.Rank] = l, they
	rescue.Go(func() { j.attend(l, they.Rank) })
	if j.came++; j.came == len(j.at)-1 {
		close(j.all)
	}
	return nil
}

// refused reports a connection that was turned away. A wrong process of this run ends the wait.
func (j *joining) refused(from net.Addr, they hello, err error) {
	if refused := (*refusal)(nil); errors.As(err, &refused) && refused.Ends {
		j.fails(fmt.Errorf("%w (from %v)", refused, from))
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.strangers++; j.strangers <= 10 {
		j.o.Logf("rank 0 turned away %v: %s", from, plain(err.Error(), 500))
	}
}

func (j *joining) fails(err error) {
	select {
	case j.bad <- err:
	default:
	}
}
