package ranks

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestStalledDevices: where all ranks are in a step and none gets on, all are told to let go, and the one that does not is
// named to all; where all do, a link is.
func TestStalledDevices(t *testing.T) {
	for name, c := range map[string]struct {
		ranks []int
		hang  []int // ranks whose devices do not let go
		rank  int   // that is blamed
		want  string
	}{
		"one":                 {[]int{1, 1, 1}, []int{1}, 1, "the others' devices have waited for its device for"},
		"rank 0's":            {[]int{1, 1, 1}, []int{0}, 0, "the others' devices have waited for its device for"},
		"of a shared process": {[]int{1, 3}, []int{2}, 2, "it alone did not answer when the exchange was ended"},
		"in one process":      {[]int{3}, []int{2}, 2, "it alone did not answer when the exchange was ended"},
		"a link":              {[]int{1, 1}, nil, 0, "and let go when the exchange was ended: a link between them has failed"},
		"all":                 {[]int{1, 1}, []int{0, 1}, 0, "no device answered when the exchange was ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var said []string
			var mu sync.Mutex
			logf := func(format string, a ...any) {
				mu.Lock()
				defer mu.Unlock()
				said = append(said, fmt.Sprintf(format, a...))
			}
			all := flat(joinAll(t, Options{Timeout: 2 * time.Second, Quick: "training", Devices: true, Logf: logf}, nil, c.ranks...))
			for step := 1; step <= 3; step++ {
				for _, g := range all {
					g.At(step, "training")
				}
				time.Sleep(300 * time.Millisecond)
			}
			began := time.Now()
			errs := each(all, func(g Group) error {
				select {
				case <-g.Stalled():
				case <-time.After(patience):
					return errors.New("it is not told that the devices wait for one another")
				}
				for _, hangs := range c.hang {
					if hangs == g.Rank() {
						<-g.Lost()
						return g.Err()
					}
				}
				g.At(3, "ending")
				<-g.Lost()
				return g.Err()
			})
			took := time.Since(began)
			for rank, err := range errs {
				var lost *LostError
				if !errors.As(err, &lost) || lost.Rank != c.rank || lost.Step != 3 || !strings.Contains(err.Error(), c.want) {
					t.Errorf("rank %d: %v, want rank %d, %s", rank, err, c.rank, c.want)
				}
			}
			if took < time.Second || took > patience {
				t.Errorf("it took %v", took)
			}
			mu.Lock()
			defer mu.Unlock()
			if text := strings.Join(said, " "); !strings.Contains(text, "step 3: no rank has got on for") {
				t.Errorf("before that it said %q", text)
			}
		})
	}
}

// TestQuickStepsAreTimed: steps that are done between two looks of the coordinator are timed all the same, so that a rank that
// stands after them is found within the timeout; the first step of a process, which loads kernels, does not count.
func TestQuickStepsAreTimed(t *testing.T) {
	for name, processes := range map[string][]int{"in one process": {2}, "in two": {1, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := 2 * time.Second
			all := flat(joinAll(t, Options{Timeout: timeout, Quick: "training", Devices: true}, nil, processes...))
			for step := 1; step <= 12; step++ {
				for _, g := range all {
					g.At(step, "training")
				}
				if step == 1 {
					time.Sleep(timeout * 6 / 10) // three times that would be more than the timeout
				}
			}
			began := time.Now()
			errs := each(all, func(g Group) error {
				select {
				case <-g.Stalled():
				case <-time.After(patience):
					return errors.New("it is not told that the devices wait for one another")
				}
				if g.Rank() == 1 {
					g.At(12, "ending")
				}
				<-g.Lost()
				return g.Err()
			})
			took := time.Since(began)
			for rank, err := range errs {
				var lost *LostError
				if !errors.As(err, &lost) || lost.Rank != 0 || lost.Step != 12 {
					t.Errorf("rank %d: %v, want rank 0", rank, err)
				}
			}
			if took > timeout+timeout/2 {
				t.Errorf("it took %v, with a timeout of %v", took, timeout)
			}
		})
	}
}

// TestNobodyIsStalled: ranks that get on, load, save or compute on the host are left alone.
func TestNobodyIsStalled(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name    string
		at      status
		since   time.Duration // since any rank said something new
		slowest time.Duration
		alone   bool // the group has no devices that it cannot see
		heldUp  bool
		stalls  bool
	}{
		{name: "it gets on", at: status{step: 3, doing: "training"}, since: 20 * time.Second, slowest: time.Second},
		{name: "it does not", at: status{step: 3, doing: "training"}, since: 26 * time.Second, slowest: time.Second, stalls: true},
		{name: "slow steps", at: status{step: 3, doing: "training"}, since: 170 * time.Second, slowest: time.Minute},
		{name: "slower than slow steps", at: status{step: 3, doing: "training"}, since: 181 * time.Second, slowest: time.Minute, stalls: true},
		{name: "the first steps", at: status{step: 1, doing: "training"}, since: 9 * time.Minute},
		{name: "for ever", at: status{step: 1, doing: "training"}, since: 11 * time.Minute, stalls: true},
		{name: "saving", at: status{step: 3, doing: "saving"}, since: time.Hour, slowest: time.Second},
		{name: "loading", at: status{doing: "training"}, since: time.Hour, slowest: time.Second},
		{name: "on the host", at: status{step: 3, doing: "training"}, since: time.Hour, slowest: time.Second, alone: true},
		{name: "held up", at: status{step: 3, doing: "training"}, since: time.Hour, slowest: time.Second, heldUp: true},
	} {
		s := newSession(2, 30*time.Second)
		h := &hub{session: s, links: []*link{nil}, quick: "training", long: longPatience, devices: !c.alone, before: now.Add(-2 * time.Hour)}
		c.at.slowest = c.slowest
		h.ranks = []rankState{{status: c.at, since: now.Add(-c.since)}, {status: c.at, since: now.Add(-c.since)}}
		h.world = 2
		for _, m := range s.members {
			m.at = c.at
		}
		lost, _ := h.look(now, c.heldUp)
		if stalls := !h.stall.since.IsZero(); lost != nil || stalls != c.stalls {
			t.Errorf("%s: stalled %v, lost %v", c.name, stalls, lost)
		}
	}
}
