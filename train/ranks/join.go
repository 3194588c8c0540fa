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
)

// Options is how a process joins a group.
type Options struct {
	Ranks   int                              // that this process drives, at least 1
	Version string                           // of the program, which has to be the same everywhere
	Key     []byte                           // a secret that all know; may be empty
	Timeout time.Duration                    // after which a process that says nothing is lost
	Wait    time.Duration                    // for all processes to come; 0 = JoinWait
	Logf    func(format string, args ...any) // what the user should know while it waits; nil = nothing

	// Quick is what ranks are doing, as At says, where Timeout is enough for the others to wait; everything else may take
	// ten minutes, as do all things before the first step. Empty = every step is.
	Quick string

	long time.Duration // 0 = longPatience
}

// JoinWait is how long the processes of a run wait for one another.
const JoinWait = 10 * time.Minute

// Join takes this process's place among the processes of a run, and returns a group for each of its ranks, in their
// order. The ranks of process 0 come first, then those of process 1, and so on. Every rank has to leave its group.
func Join(ctx context.Context, p Place, o Options) ([]Group, error) {
	if o.Ranks < 1 || o.Ranks > MaxWorld || o.Timeout <= 0 {
		return nil, fmt.Errorf("join a group: %d ranks, timeout %v: want at least one rank and a timeout", o.Ranks, o.Timeout)
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	if o.Wait == 0 {
		o.Wait = JoinWait
	}
	if o.long == 0 {
		o.long = longPatience
	}
	s := newSession(o.Ranks, o.Timeout)
	if p.World <= 1 {
		h := &hub{session: s, links: []*link{nil}, firsts: []int{0}, counts: []int{o.Ranks}, quick: o.Quick, long: o.long}
		h.run()
		return s.groups(), nil
	}
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, o.Wait)
	defer cancel()
	me := hello{Version: o.Version, Run: p.Run, World: p.World, Rank: p.Rank, Ranks: o.Ranks}
	var err error
	if p.Rank == 0 {
		err = s.coordinate(ctx, p, o, me)
	} else {
		err = s.dial(ctx, p, o, me)
	}
	if err != nil {
		if parent.Err() != nil {
			err = parent.Err()
		}
		return nil, err
	}
	return s.groups(), nil
}

// run starts what a coordinator does beside its ranks' work.
func (h *hub) run() {
	h.way, h.world, h.before = h, 0, time.Now()
	for i, n := range h.counts {
		h.firsts[i] = h.world
		h.world += n
	}
	h.ranks = make([]rankState, h.world)
	for i := range h.ranks {
		h.ranks[i] = rankState{status: status{doing: "starting"}, since: time.Now()}
	}
	go h.watch()
	go h.beating()
}

// dial reaches the coordinator, which may start later than this process.
func (s *session) dial(ctx context.Context, p Place, o Options, me hello) error {
	said := time.Now().Add(5 * time.Second)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		conn, err := (&net.Dialer{Timeout: handshakeTime}).DialContext(ctx, "tcp", p.Coordinator)
		if err == nil {
			if err = greet(conn, me, o.Key); err == nil {
				return s.joined(ctx, conn, p)
			}
			conn.Close() //nolint:errcheck // the error is told
		}
		if refused := (*refusal)(nil); errors.As(err, &refused) && !refused.Again {
			return fmt.Errorf("join the run at %s as process %d of %d: %w", p.Coordinator, p.Rank, p.World, err)
		}
		if time.Now().After(said) {
			o.Logf("process %d of %d waits for rank 0 at %s: %v", p.Rank, p.World, p.Coordinator, err)
			said = time.Now().Add(30 * time.Second)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d of %d: no rank 0 at %s within %v: %w; look whether it runs, or has begun without this one, and whether the port is open; %s=HOST:PORT names another",
				p.Rank, p.World, p.Coordinator, o.Wait, err, CoordinatorVariable)
		case <-time.After(pause):
		}
	}
}

// joined is a process's way to the coordinator after their handshake.
func (s *session) joined(ctx context.Context, conn net.Conn, p Place) error {
	way := &spoke{session: s, process: p.Rank, link: newLink(conn, s.timeout), start: make(chan struct{}), hub: status{doing: "starting"}}
	s.way = way
	go way.listen()
	go s.beating()
	err := way.begin(ctx)
	if err != nil {
		s.finish()
		way.close()
		return fmt.Errorf("process %d of %d waits for all to join: %w", p.Rank, p.World, err)
	}
	return nil
}

// joining is the coordinator while processes come.
type joining struct {
	s    *session
	me   hello
	o    Options
	bad  chan error    // why the run cannot begin
	all  chan struct{} // closed when every process has come
	over chan struct{} // closed when the wait has ended, well (hub is set) or not
	hub  *hub

	mu        sync.Mutex
	at        []*link // by process; nil = has not come
	of        []hello
	strangers int
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
	go j.accept(listener)
	err = j.wait(ctx, p, listener.Addr())
	listener.Close() //nolint:errcheck // who comes now comes too late
	j.mu.Lock()
	defer j.mu.Unlock()
	defer close(j.over)
	h := &hub{session: s, links: j.at, firsts: make([]int, p.World), quick: o.Quick, long: o.long}
	ranks := 0
	for _, they := range j.of {
		h.counts = append(h.counts, they.Ranks)
		ranks += they.Ranks
	}
	if err == nil && ranks > MaxWorld {
		err = fmt.Errorf("%d ranks of %d processes are more than %d", ranks, p.World, MaxWorld)
	}
	if err == nil {
		j.hub = h
		h.run()
		h.begin()
		return nil
	}
	lost := &LostError{Rank: 0, Doing: "waiting for all to join", Why: plain(err.Error(), 2000)}
	for _, l := range j.at[1:] {
		if l != nil {
			l.send(frame{kind: kindLost, data: lost.encode()})
			l.end()
			<-l.written
			l.conn.Close() //nolint:errcheck // all was said
		}
	}
	return err
}

// wait returns when all have come, or one cannot.
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
			return fmt.Errorf("rank 0 waited at %v for %v: %s of %d processes did not come: %w", at, j.o.Wait, j.missing(), p.World, ctx.Err())
		}
	}
}

// beat tells who has come that this process lives.
func (j *joining) beat() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, l := range j.at[1:] {
		if l != nil {
			l.beat(frame{kind: kindBeat, data: packStatus(j.s.statuses())})
		}
	}
}

// attend reads what a process that has come sends, until the end.
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
		if j.hub == nil || j.hub.got(process, f, err) {
			return
		}
	}
}

// missing lists the processes that have not come.
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

// accept takes connections until the listener closes. Few handshakes go on at once: a stranger cannot take more.
func (j *joining) accept(listener net.Listener) {
	room := make(chan struct{}, 256)
	for {
		conn, err := listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(50 * time.Millisecond) // too many open files, say
			continue
		}
		room <- struct{}{}
		go func() {
			defer func() { <-room }()
			if they, err := receive(conn, j.o.Key, func(they hello) *refusal { return j.check(they) }); err != nil {
				conn.Close() //nolint:errcheck // the error is told
				j.refused(conn.RemoteAddr(), they, err)
			} else if err := j.add(conn, they); err != nil {
				conn.Close() //nolint:errcheck // the error is told
				j.fails(err)
			}
		}()
	}
}

// check refuses a process that is not one of this run, or differs from it.
func (j *joining) check(they hello) *refusal {
	who := fmt.Sprintf("process %d of %d", they.Rank, they.World)
	switch me := j.me; {
	case they.Run != plain(me.Run, 200):
		return &refusal{Why: fmt.Sprintf("%s belongs to the start %q, and this is %q", who, they.Run, plain(me.Run, 200)), Again: true}
	case they.Version != plain(me.Version, 200):
		return &refusal{Why: fmt.Sprintf("%s is program %q, and rank 0 is %q: start the same one everywhere", who, they.Version, plain(me.Version, 200)), Ends: true}
	case they.World != me.World:
		return &refusal{Why: fmt.Sprintf("%s has come, and rank 0 is of %d processes", who, me.World), Ends: true}
	case they.Rank < 1 || they.Rank >= me.World || they.Ranks < 1 || they.Ranks > MaxWorld:
		return &refusal{Why: fmt.Sprintf("%s with %d ranks has come: wants a number from 1 to %d", who, they.Ranks, me.World-1), Ends: true}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.at[they.Rank] != nil {
		return &refusal{Why: fmt.Sprintf("%s has come twice, and came first from %v", who, j.at[they.Rank].conn.RemoteAddr()), Ends: true}
	}
	return nil
}

func (j *joining) add(conn net.Conn, they hello) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.at[they.Rank] != nil {
		return fmt.Errorf("process %d of %d has come twice, from %v and from %v", they.Rank, they.World, j.at[they.Rank].conn.RemoteAddr(), conn.RemoteAddr())
	}
	l := newLink(conn, j.s.timeout)
	j.at[they.Rank], j.of[they.Rank] = l, they
	go j.attend(l, they.Rank)
	if !slices.Contains(j.at[1:], nil) {
		close(j.all)
	}
	return nil
}

// refused tells of a connection that was turned away; a wrong process of this run ends the wait.
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
