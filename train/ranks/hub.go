package ranks

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tierlora/tierlora/internal/rescue"
)

// longPatience is how long a responsive rank may report nothing new outside of steps. Loading, saving and sampling may
// take one rank longer than others.
const longPatience = 10 * time.Minute

// slowFactor is how much slower than the fastest rank a rank may be in a step that exceeds the timeout.
const slowFactor = 3

// hub is the process of rank 0. It is connected to every other process and collects the parts of each gather.
type hub struct {
	*session
	links  []*link       // by process; its own is nil
	firsts []int         // first rank of each process
	counts []int         // number of ranks of each process
	quick  string        // Options.Quick
	long   time.Duration // longPatience

	devices bool // Options.Devices
	logf    func(format string, args ...any)

	// Guarded by session.mu.
	ranks  []rankState
	round  exchange
	before time.Time // end of the last round
	stall  stall
	warned time.Time // time of the last warning about a wait that began since then
}

// rankState is what the coordinator knows about a rank.
type rankState struct {
	status
	since   time.Time // time of its last change of status
	arrived bool      // the rank has arrived in this round
	left    bool
}

// exchange is a gather in progress.
type exchange struct {
	seq   uint64
	what  string
	by    int // the first rank that arrived
	began time.Time
	parts [][]byte
	came  int
}

func (h *hub) offer(m *participant, seq uint64, what string, data []byte) {
	h.arrive(m.Rank(), seq, what, slices.Clone(data), m)
}

// arrive adds the part of a rank; the last part ends the round. m is the rank if it belongs to this process, else nil.
func (h *hub) arrive(rank int, seq uint64, what string, data []byte, m *participant) {
	h.mu.Lock()
	r := &h.round
	if r.came == 0 {
		*r = exchange{seq: seq, what: what, by: rank, began: time.Now(), parts: make([][]byte, h.world)}
	}
	state := &h.ranks[rank]
	var bad *LostError
	switch {
	case state.arrived || state.left || seq != r.seq || what != r.what:
		bad = h.loss(rank, fmt.Sprintf("it came to %q where rank %d came to %q: the ranks are out of step",
			plain(what, maxWhat), r.by, plain(r.what, maxWhat)))
	default:
		for other := range h.ranks {
			if h.ranks[other].left {
				bad = h.loss(other, fmt.Sprintf("it has ended, and rank %d has come to %q", rank, plain(what, maxWhat)))
				break
			}
		}
	}
	if bad != nil {
		h.mu.Unlock()
		h.fail(m, bad)
		return
	}
	state.arrived, state.since = true, time.Now()
	r.parts[rank] = data
	r.came++
	if r.came < h.world {
		h.mu.Unlock()
		return
	}
	parts := r.parts
	*r = exchange{}
	h.before = time.Now()
	for i := range h.ranks {
		h.ranks[i].arrived = false
	}
	h.mu.Unlock()
	h.result(seq, parts)
}

func (h *hub) result(seq uint64, parts [][]byte) {
	if len(h.links) > 1 {
		all, err := packParts(parts)
		if err != nil {
			h.fail(nil, &LostError{Rank: 0, Doing: "putting together what the ranks gave", Why: err.Error()})
			return
		}
		here := frame{kind: kindBeat, data: packStatus(h.statuses())} // its status when the connection ends now
		for _, l := range h.links[1:] {
			l.send(here)
			l.send(frame{kind: kindResult, seq: seq, data: all})
		}
	}
	h.deliver(seq, parts)
}

// loss returns the failure of a rank at the step that it last reported; h.mu is held.
func (h *hub) loss(rank int, why string) *LostError {
	at := h.ranks[rank].status
	if rank < len(h.members) {
		at = h.members[rank].at
	}
	return &LostError{Rank: rank, Step: at.step, Doing: at.doing, Why: why}
}

func (h *hub) broke(_ *participant, e *LostError) {
	for _, l := range h.links[1:] {
		l.send(frame{kind: kindLost, data: e.encode()})
		l.end()
	}
}

func (h *hub) leave(m *participant, last bool) {
	h.hasLeft(m.Rank(), m)
	if !last || h.failure() != nil {
		return
	}
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	for _, l := range h.links[1:] {
		l.send(frame{kind: kindLeave})
	}
}

// hasLeft records that a rank has ended successfully, which is a failure if others wait for it.
func (h *hub) hasLeft(rank int, m *participant) {
	h.mu.Lock()
	h.ranks[rank].left = true
	var bad *LostError
	if h.round.came > 0 && !h.ranks[rank].arrived {
		bad = h.loss(rank, fmt.Sprintf("it has ended, and rank %d has come to %q", h.round.by,
			plain(h.round.what, maxWhat)))
	}
	h.mu.Unlock()
	if bad != nil {
		h.fail(m, bad)
	}
}

func (h *hub) beat() {
	f := frame{kind: kindBeat, data: packStatus(h.statuses())}
	for _, l := range h.links[1:] {
		l.beat(f)
	}
}

func (h *hub) close() {
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	var wait sync.WaitGroup
	for _, l := range h.links[1:] {
		l.end()
		wait.Go(rescue.Wrap(func() { l.await(ctx.Done()) }))
	}
	wait.Wait()
}

// got handles a frame from a process; done means that its connection has ended.
func (h *hub) got(process int, f frame, err error) (done bool) {
	if err == nil {
		err = h.take(process, f)
	}
	if err == nil {
		return false
	}
	h.mu.Lock()
	rank, orderly := h.behind(process)
	e := h.loss(rank, h.links[process].why(err))
	h.mu.Unlock()
	if !orderly {
		h.fail(nil, e)
	}
	h.links[process].end()
	return true
}

// behind returns the rank of a process that has made the least progress, and whether all its ranks have ended; h.mu is
// held.
func (h *hub) behind(process int) (rank int, orderly bool) {
	rank, orderly = h.firsts[process], true
	for r := rank; r < h.firsts[process]+h.counts[process]; r++ {
		orderly = orderly && h.ranks[r].left
		if !h.ranks[r].arrived && h.ranks[rank].arrived || h.ranks[r].step < h.ranks[rank].step {
			rank = r
		}
	}
	return rank, orderly
}

func (h *hub) take(process int, f frame) error {
	first, n := h.firsts[process], h.counts[process]
	var lost *LostError
	if f.kind == kindLeave {
		lost = decodeLost(f.data)
	}
	if (f.kind == kindPart || f.kind == kindLeave && lost == nil) && (f.rank < first || f.rank >= first+n) {
		return fmt.Errorf("its process speaks for rank %d, which is not its own", f.rank)
	}
	switch f.kind {
	case kindBeat:
		all, err := unpackStatus(f.data)
		if err != nil || len(all) != n {
			return fmt.Errorf("what its process says of its ranks cannot be read")
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		for i, s := range all {
			if state := &h.ranks[first+i]; s.count != state.count {
				state.status, state.since = s, time.Now()
			}
		}
	case kindPart:
		h.arrive(f.rank, f.seq, f.what, f.data, nil)
	case kindLeave:
		if lost != nil {
			if lost.Rank < first || lost.Rank >= first+n { // it failed before it knew its ranks
				lost.Rank = first
			}
			h.fail(nil, lost)
		} else {
			h.hasLeft(f.rank, nil)
		}
	default:
		return fmt.Errorf("its process sent a message of kind %d", f.kind)
	}
	return nil
}

// begin tells every process that all have joined.
func (h *hub) begin() {
	counts, _ := json.Marshal(h.counts)
	for _, l := range h.links[1:] {
		l.send(frame{kind: kindStart, data: counts})
	}
}

// watch looks for a rank that makes no progress while others wait for it.
func (h *hub) watch() {
	tick := time.NewTicker(h.timeout / 10)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-tick.C:
			now := time.Now()
			e, slow := h.look(now, now.Sub(last) > h.timeout/2)
			if slow != "" && h.logf != nil {
				h.logf("%s", slow)
			}
			if e != nil {
				h.fail(nil, e)
				return
			}
			last = now
		case <-h.over:
			return
		}
	}
}

// look returns the failure of the first rank that has made others wait too long, or a warning about one that has for
// half of that time. If this process was itself held up, all waits restart.
func (h *hub) look(now time.Time, heldUp bool) (lost *LostError, slow string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, m := range h.members {
		if state := &h.ranks[i]; state.count != m.at.count {
			state.status, state.since = m.at, now
		}
	}
	switch {
	case h.err != nil:
		return nil, ""
	case h.round.came == 0:
		return h.onDevices(now, heldUp)
	}
	return h.stuck(now, heldUp)
}

// stuck looks for a rank that others wait for in a gather; h.mu is held.
func (h *hub) stuck(now time.Time, heldUp bool) (lost *LostError, slow string) {
	if heldUp {
		h.round.began = now
	}
	for rank := range h.ranks {
		state := &h.ranks[rank]
		since := state.since
		if since.Before(h.round.began) {
			since = h.round.began
		}
		patience := h.timeout
		if state.step == 0 || h.quick != "" && state.doing != h.quick {
			patience = max(patience, h.long)
		} else if h.long > patience {
			patience = min(max(patience, slowFactor*h.round.began.Sub(h.before)), h.long)
		}
		waited := now.Sub(since)
		if !state.arrived && waited >= patience {
			return h.loss(rank, fmt.Sprintf("others have waited for it in %q for %v, and it does not get on",
				plain(h.round.what, maxWhat), waited.Round(time.Second/10))), ""
		}
		if !state.arrived && waited >= patience/2 && h.warned.Before(h.round.began) {
			h.warned = now
			slow = fmt.Sprintf("rank %d, step %d, %s: others have waited for it in %q for %v; after %v the run ends "+
				"(training.ddp_timeout)",
				rank, state.step, state.doing, plain(h.round.what, maxWhat), waited.Round(time.Second/10), patience)
		}
	}
	return nil, slow
}
