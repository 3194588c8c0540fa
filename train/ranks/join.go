package ranks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/tierlora/tierlora/internal/rescue"
)

// Options are the settings with which a process joins a group.
type Options struct {
	Ranks   int                              // ranks that this process drives, at least 1
	Version string                           // version of the program, which must be the same everywhere
	Key     []byte                           // a secret that all processes share; may be empty
	Timeout time.Duration                    // a process that sends nothing for this long is lost
	Wait    time.Duration                    // time for all processes to join; 0 = JoinWait
	Logf    func(format string, args ...any) // called with messages for the user while it waits; nil = none

	// Quick is the activity, as At reports it, in which other ranks wait only for Timeout. Everything else, and
	// everything before the first step, may take ten minutes. Empty = every activity in a step is quick.
	Quick string
	// Devices means that ranks wait for one another on their devices, where the group cannot see it. If no rank reports
	// anything new in a step for too long, all must let go (Group.Stalled), and a rank that then makes no progress is
	// lost.
	Devices bool

	long   time.Duration // 0 = longPatience
	failed error         // why this process cannot take part; nil = it can
}

// JoinWait is how long the processes of a run wait for one another.
const JoinWait = 10 * time.Minute

// Join joins this process to the processes of a run, and returns a group for each of its ranks, in order. The ranks of
// process 0 come first, then those of process 1, and so on. Every rank must leave its group.
func Join(ctx context.Context, p Place, o Options) ([]Group, error) {
	if o.Ranks < 1 || o.Ranks > MaxWorld || o.Timeout <= 0 {
		return nil, fmt.Errorf("join a group: %d ranks, timeout %v: want at least one rank and a timeout", o.Ranks,
			o.Timeout)
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

// Watched returns the groups of the ranks of one process. A rank that makes no progress is detected in the same way as
// between processes.
func Watched(o Options) []Group {
	if o.long == 0 {
		o.long = longPatience
	}
	s := newSession(o.Ranks, o.Timeout)
	h := &hub{session: s, links: []*link{nil}, firsts: []int{0}, counts: []int{o.Ranks}, quick: o.Quick, long: o.long,
		devices: o.Devices, logf: o.Logf}
	h.run()
	return s.groups()
}

// reportWait bounds how long a process that cannot take part stays to tell the others.
const reportWait = 10 * time.Second

// lingerTime is how long the coordinator waits for further processes after one has prevented the run from beginning.
const lingerTime = 2 * time.Second

// Report tells the processes of a run that this one cannot take part, so that they do not wait for it.
func Report(ctx context.Context, p Place, o Options, failed error) {
	o.Ranks, o.Wait, o.failed, o.Logf = 1, reportWait, failed, nil
	if groups, err := Join(ctx, p, o); err == nil {
		groups[0].Leave(failed) // the others have ended and need no message
	}
}

// run starts the goroutines of a coordinator.
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

// dial connects to the coordinator, which may start later than this process.
func (s *session) dial(ctx context.Context, p Place, o Options, me hello) error {
	said := time.Now().Add(5 * time.Second)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		conn, err := (&net.Dialer{Timeout: handshakeTime}).DialContext(ctx, "tcp", p.Coordinator)
		if err == nil {
			if err = greet(conn, me, o.Key); err == nil {
				return s.joined(ctx, conn, p, o)
			}
			conn.Close() // the error is reported
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
			return fmt.Errorf("process %d of %d: no rank 0 at %s within %v: %w; look whether it runs, or has begun "+
				"without this one, and whether the port is open; %s=HOST:PORT names another",
				p.Rank, p.World, p.Coordinator, o.Wait, err, CoordinatorVariable)
		case <-time.After(pause):
		}
	}
}

// joined sets up the connection to the coordinator after the handshake.
func (s *session) joined(ctx context.Context, conn net.Conn, p Place, o Options) error {
	way := &spoke{session: s, process: p.Rank, link: newLink(conn, s.timeout), start: make(chan struct{}),
		hub: status{doing: "starting"}}
	s.way = way
	rescue.Go(func() { way.listen() })
	rescue.Go(func() { s.beating() })
	if o.failed != nil {
		way.link.send(frame{kind: kindLeave,
			data: (&LostError{Rank: p.Rank, Doing: "starting", Why: plain(o.failed.Error(), 2000)}).encode()})
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
