package ranks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/tierlora/tierlora/internal/rescue"
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
	// Devices says that ranks wait for one another on their devices, where the group does not see it: where none says
	// anything new in a step for too long, all let go (Group.Stalled), and the one is lost that does not get on then.
	Devices bool

	long   time.Duration // 0 = longPatience
	failed error         // why this process cannot take part; nil = it can
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
	if p.World <= 1 {
		return Watched(o), nil
	}
	s := newSession(o.Ranks, o.Timeout)
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

// Watched is the groups of the ranks of one process, of which one that does not get on is found as among processes.
func Watched(o Options) []Group {
	if o.long == 0 {
		o.long = longPatience
	}
	s := newSession(o.Ranks, o.Timeout)
	h := &hub{session: s, links: []*link{nil}, firsts: []int{0}, counts: []int{o.Ranks}, quick: o.Quick, long: o.long, devices: o.Devices, logf: o.Logf}
	h.run()
	return s.groups()
}

// reportWait bounds how long a process that cannot take part stays to tell the others.
const reportWait = 10 * time.Second

// lingerTime is for the processes that come when another has kept the run from beginning.
const lingerTime = 2 * time.Second

// Report tells the processes of a run that this one cannot take part, so that they do not wait for it.
func Report(ctx context.Context, p Place, o Options, failed error) {
	o.Ranks, o.Wait, o.failed, o.Logf = 1, reportWait, failed, nil
	if groups, err := Join(ctx, p, o); err == nil {
		groups[0].Leave(failed) //nolint:errcheck // who has ended needs to hear nothing
	}
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
	rescue.Go(func() { h.watch() })
	rescue.Go(func() { h.beating() })
}

// dial reaches the coordinator, which may start later than this process.
func (s *session) dial(ctx context.Context, p Place, o Options, me hello) error {
	said := time.Now().Add(5 * time.Second)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		conn, err := (&net.Dialer{Timeout: handshakeTime}).DialContext(ctx, "tcp", p.Coordinator)
		if err == nil {
			if err = greet(conn, me, o.Key); err == nil {
				return s.joined(ctx, conn, p, o)
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
func (s *session) joined(ctx context.Context, conn net.Conn, p Place, o Options) error {
	way := &spoke{session: s, process: p.Rank, link: newLink(conn, s.timeout), start: make(chan struct{}), hub: status{doing: "starting"}}
	s.way = way
	rescue.Go(func() { way.listen() })
	rescue.Go(func() { s.beating() })
	if o.failed != nil {
		way.link.send(frame{kind: kindLeave, data: (&LostError{Rank: p.Rank, Doing: "starting", Why: plain(o.failed.Error(), 2000)}).encode()})
		s.finish()
		way.close()
		return o.failed
	}
	err := way.begin(ctx)
	if err != nil {
		s.finish()
		way.close()
		return fmt.Errorf("process %d of %d waits for all to join: %w", p.Rank, p.World, err)
	}
	return nil
}
