package ranks

import (
	"testing"
	"time"
)

// How long others wait for a rank depends on what it says that it is doing, and on how long the step took the fastest.
func TestPatience(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name   string
		at     status
		since  time.Duration // since it said something new
		began  time.Duration // since the first came to the gather
		took   time.Duration // the first's work before it
		heldUp bool
		lost   bool
	}{
		{"soon", status{step: 3, doing: "training"}, 29 * time.Second, 29 * time.Second, 0, false, false},
		{"late", status{step: 3, doing: "training"}, 31 * time.Second, 31 * time.Second, 0, false, true},
		{"it gets on", status{step: 3, doing: "training"}, time.Second, 200 * time.Second, 0, false, false},
		{"the step took a minute", status{step: 3, doing: "training"}, 170 * time.Second, 170 * time.Second, time.Minute, false, false},
		{"three times that", status{step: 3, doing: "training"}, 181 * time.Second, 181 * time.Second, time.Minute, false, true},
		{"a step of an hour", status{step: 3, doing: "training"}, 11 * time.Minute, 11 * time.Minute, time.Hour, false, true},
		{"it saves", status{step: 3, doing: "saving"}, 9 * time.Minute, 9 * time.Minute, 0, false, false},
		{"it saves for ever", status{step: 3, doing: "saving"}, 11 * time.Minute, 11 * time.Minute, 0, false, true},
		{"it loads", status{doing: "training"}, 9 * time.Minute, 9 * time.Minute, 0, false, false},
		{"this process was held up", status{step: 3, doing: "training"}, 60 * time.Second, 60 * time.Second, 0, true, false},
		{"nobody waits", status{step: 3, doing: "training"}, time.Hour, 0, 0, false, false},
	} {
		s := newSession(1, 30*time.Second)
		h := &hub{session: s, quick: "training", long: longPatience, before: now.Add(-c.began - c.took)}
		c.at.count = 1
		h.ranks = []rankState{{status: s.members[0].at, since: now, arrived: true}, {status: c.at, since: now.Add(-c.since)}}
		if c.began > 0 {
			h.round = exchange{came: 1, what: "gradients", began: now.Add(-c.began)}
		}
		if lost, _ := h.look(now, c.heldUp); (lost != nil) != c.lost || lost != nil && lost.Rank != 1 {
			t.Errorf("%s: %v", c.name, lost)
		}
	}
}
