package ranks

import (
	"fmt"
	"time"
)

// If ranks exchange gradients on their devices, the host cannot see that one waits for another: all report that they
// are in a step, and none makes progress. Ending the exchange shows which rank blocks the others: devices that only
// waited answer, and the hanging one does not.

// letGoTime returns how long devices may take to answer after the exchange was ended: a part of the timeout.
func (h *hub) letGoTime() time.Duration { return min(5*time.Second, h.timeout/4) }

// stall is the state while devices wait for one another.
type stall struct {
	since  time.Time // when the ranks were told to let go; zero = they were not
	lasted time.Duration
	counts []uint64 // number of each rank's calls of At at that time
}

// onDevices looks for a rank that the others' devices wait for; h.mu is held.
func (h *hub) onDevices(now time.Time, heldUp bool) (lost *LostError, slow string) {
	if !h.devices || h.world < 2 {
		return nil, ""
	}
	if !h.stall.since.IsZero() {
		return h.verdict(now), ""
	}
	newest, inSteps, step, slowest := h.before, !heldUp, 0, time.Duration(0)
	for rank := range h.ranks {
		state := &h.ranks[rank]
		inSteps = inSteps && !state.left && state.step > 0 && (h.quick == "" || state.doing == h.quick)
		step, slowest = max(step, state.step), max(slowest, state.slowest)
		if state.since.After(newest) {
			newest = state.since
		}
	}
	if heldUp {
		h.before = now
	}
	waited, patience := now.Sub(newest), h.long
	if slowest > 0 {
		patience = min(max(h.timeout-h.letGoTime(), slowFactor*slowest), h.long)
	}
	switch {
	case !inSteps:
	case waited >= patience:
		h.stall = stall{since: now, lasted: waited}
		for rank := range h.ranks {
			h.stall.counts = append(h.stall.counts, h.ranks[rank].count)
		}
		for _, l := range h.links[1:] {
			l.send(frame{kind: kindStalled})
		}
		h.letGo()
	case waited >= patience/2 && h.warned.Before(newest):
		h.warned = now
		slow = fmt.Sprintf("step %d: no rank has got on for %v; after %v the run ends (training.ddp_timeout)", step,
			waited.Round(time.Second/10), patience)
	}
	return nil, slow
}

// verdict names the rank whose device did not let go in time; h.mu is held.
func (h *hub) verdict(now time.Time) *LostError {
	var hang []int
	for rank := range h.ranks {
		if h.ranks[rank].count == h.stall.counts[rank] {
			hang = append(hang, rank)
		}
	}
	lasted := h.stall.lasted.Round(time.Second / 10)
	switch enough := now.Sub(h.stall.since) >= h.letGoTime(); {
	case len(hang) > 0 && !enough:
		return nil
	case len(hang) == 0:
		return h.loss(0, fmt.Sprintf(
			"the devices of all ranks waited for one another for %v, and let go when the exchange "+
				"was ended: a link between them has failed, or the ranks are out of step (nvidia-smi nvlink -s, and "+
				"Xid in the system's log)", lasted))
	case len(hang) == len(h.ranks):
		return h.loss(hang[0], fmt.Sprintf(
			"no rank has got on for %v, and no device answered when the exchange was ended",
			lasted))
	}
	return h.loss(hang[0], fmt.Sprintf("the others' devices have waited for its device for %v, and it alone did not "+
		"answer when the exchange was ended", lasted))
}
