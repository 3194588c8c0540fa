package train

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/session"
)

// ErrDeviceHangs is wrapped by the error of a run whose device no longer answers.
var ErrDeviceHangs = errors.New("the device does not answer")

// A wait for the device counts as long if it lasts slowFactor median steps, and at least slowFloor.
const (
	slowFactor = 10
	slowFloor  = time.Minute
)

// After another rank was lost and the operations that wait for it were aborted, a device has lostTime to answer and the
// run has lostEnd to end.
const (
	lostTime = 10 * time.Second
	lostEnd  = time.Minute
)

// watchdog measures how long a run has been waiting for its device. A call into a driver cannot be interrupted, so a
// run that waits too long is abandoned, and the process has to end.
type watchdog struct {
	on    graph.Waiter
	at    *whereabouts
	limit time.Duration // wait after which the run is given up; 0 = never
	floor time.Duration
	logf  func(format string, args ...any)
	team  *team         // nil = the run has one rank
	grace time.Duration // lostTime, or less

	warned time.Time // start of the wait that a warning was logged for
	lost   time.Time // time at which the group ended
}

// watch starts a watchdog if the machine can be watched. hung receives the error of a run that is given up.
func (w *whereabouts) watch(on graph.Machine, c Config, env Env, hung chan<- error) (end func()) {
	waiter, ok := on.(graph.Waiter)
	if !ok && env.team == nil {
		return func() {}
	}
	dog := &watchdog{on: waiter, at: w, limit: time.Duration(c.DeviceTimeout) * time.Second, floor: slowFloor,
		logf: env.Logf, team: env.team}
	dog.grace = min(lostTime, time.Duration(c.DDPTimeout)*time.Second)
	every := time.Second
	if dog.limit > 0 {
		every = min(every, dog.limit/20)
	}
	if env.team != nil {
		every = min(every, dog.grace/20)
	}
	tick, done := time.NewTicker(every), make(chan struct{})
	rescue.Go(func() {
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C: // time.Now, not the tick's time: ticks arrive late on a machine that was suspended
				if err := dog.look(time.Now()); err != nil {
					hung <- err
					return
				}
			}
		}
	})
	return func() { close(done) }
}

// look logs a warning for a long wait, once, and gives up a run that waits too long.
func (d *watchdog) look(now time.Time) error {
	if err := d.lostRank(now); err != nil {
		return err
	}
	if d.on == nil {
		return nil
	}
	wait, any := d.on.Waiting()
	if !any {
		return nil
	}
	lasts := now.Sub(wait.Since)
	d.at.mu.Lock()
	doing, result, median := d.at.now, d.at.result, medianStep(d.at.took)
	d.at.mu.Unlock()
	where := string(doing)
	if doing == phaseSteps {
		where = fmt.Sprintf("in step %d", result.Steps+1)
	}
	if d.limit > 0 && lasts >= d.limit {
		next := "no checkpoint was saved yet"
		if result.Checkpoint != "" {
			next = result.Checkpoint + " is whole: --resume auto continues from it"
		}
		return fmt.Errorf("%w: %s, %s, for %v (training.device_timeout: %d). The driver's call cannot be "+
			"interrupted, so the process ends without it. "+
			"Look at nvidia-smi and the system's log (Xid), reset the device or restart the machine; %s",
			ErrDeviceHangs, where, wait.What, lasts.Round(time.Second), int(d.limit/time.Second), next)
	}
	if lasts < max(slowFactor*median, d.floor) || d.warned.Equal(wait.Since) {
		return nil
	}
	d.warned = wait.Since
	usual := ""
	if median > 0 {
		usual = fmt.Sprintf(", a step takes %v in the median", median.Round(time.Millisecond))
	}
	then := "; training.device_timeout: 0 lets it wait for ever"
	if d.limit > 0 {
		then = fmt.Sprintf("; after %v the run ends (training.device_timeout)", d.limit)
	}
	d.logf("warning: %s the device has not answered for %v (%s)%s%s", where, lasts.Round(time.Second),
		wait.What, usual, then)
	return nil
}

// lostRank gives up a run that does not end after another rank was lost.
func (d *watchdog) lostRank(now time.Time) error {
	lost := d.team.failure()
	if lost == nil {
		return nil
	}
	if d.lost.IsZero() {
		d.lost = now
	}
	what, since := "it has not ended", d.lost
	if d.on != nil {
		if wait, any := d.on.Waiting(); any && now.Sub(wait.Since) >= d.grace && now.Sub(d.lost) >= d.grace {
			what, since = wait.What, wait.Since
		}
	}
	if since == d.lost && now.Sub(d.lost) < lostEnd {
		return nil
	}
	return fmt.Errorf("%w; and of this rank: %s, for %v: the process ends without it", lost, what,
		now.Sub(since).Round(time.Second))
}

// medianStep returns the median time of a step; 0 if no step was timed.
func medianStep(took []time.Duration) time.Duration {
	if len(took) == 0 {
		return 0
	}
	took = slices.Clone(took)
	slices.Sort(took)
	return took[len(took)/2]
}

// giveUp abandons a run whose device hangs. It releases the run's folder. If the device answers later, the run writes
// nothing.
func (w *whereabouts) giveUp() Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = true
	w.cancel()
	if w.lock != nil {
		w.lock.Release() //nolint:errcheck // the error of the device matters more
		w.lock = nil
	}
	return w.result
}

// opener opens the machine of a run.
type opener func() (graph.Machine, error)

// openMachine returns the opener for a configuration.
func openMachine(s Spec, env Env) opener {
	return func() (graph.Machine, error) { return session.OpenMachine(s.Device, s.Training.Numbers(), env.Env) }
}
