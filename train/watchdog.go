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

// ErrDeviceHangs is in the error of a run whose device does not answer any more.
var ErrDeviceHangs = errors.New("the device does not answer")

// A wait for the device is long when it lasts slowFactor median steps, and slowFloor at least.
const (
	slowFactor = 10
	slowFloor  = time.Minute
)

// When another rank was lost and what waits for it has been ended, a device has lostTime to answer, and the run lostEnd to end.
const (
	lostTime = 10 * time.Second
	lostEnd  = time.Minute
)

// watchdog looks at how long a run has been waiting for its device. A call into a driver cannot be interrupted, so a
// run that waits too long is left where it is, and the process has to end.
type watchdog struct {
	on    graph.Waiter
	at    *whereabouts
	limit time.Duration // after which the run is given up; 0 = never
	floor time.Duration
	logf  func(format string, args ...any)
	team  *team         // nil = the run is alone
	grace time.Duration // lostTime, or less

	warned time.Time // since when the wait lasts that was warned of
	lost   time.Time // since when the group has ended
}

// watch starts a watchdog where the machine can be watched. hung gets the error of a run that is given up.
func (w *whereabouts) watch(on graph.Machine, c Config, env Env, hung chan<- error) (end func()) {
	waiter, ok := on.(graph.Waiter)
	if !ok && env.team == nil {
		return func() {}
	}
	dog := &watchdog{on: waiter, at: w, limit: time.Duration(c.DeviceTimeout) * time.Second, floor: slowFloor, logf: env.Logf, team: env.team}
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
			case <-tick.C: // time.Now, not the tick's time: ticks of a machine that was held up come late
				if err := dog.look(time.Now()); err != nil {
					hung <- err
					return
				}
			}
		}
	})
	return func() { close(done) }
}

// look warns of a long wait, once, and gives a run up whose wait is too long.
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
		return fmt.Errorf("%w: %s, %s, for %v (training.device_timeout: %d). The driver's call cannot be interrupted, so the process ends without it. "+
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
	d.logf("warning: %s the device has not answered for %v (%s)%s%s", where, lasts.Round(time.Second), wait.What, usual, then)
	return nil
}

// lostRank gives a run up that does not end although another rank was lost.
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
	return fmt.Errorf("%w; and of this rank: %s, for %v: the process ends without it", lost, what, now.Sub(since).Round(time.Second))
}

// medianStep is 0 where no step was timed.
func medianStep(took []time.Duration) time.Duration {
	if len(took) == 0 {
		return 0
	}
	took = slices.Clone(took)
	slices.Sort(took)
	return took[len(took)/2]
}

// giveUp leaves a run whose device hangs: its folder is free, and should the device answer after all, it writes nothing.
func (w *whereabouts) giveUp() Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = true
	w.cancel()
	if w.lock != nil {
		w.lock.Release() //nolint:errcheck // the device is what has to be told
		w.lock = nil
	}
	return w.result
}

// opener opens the machine of a run.
type opener func() (graph.Machine, error)

// openMachine is the opener of a configuration.
func openMachine(s Spec, env Env) opener {
	return func() (graph.Machine, error) { return session.OpenMachine(s.Device, s.Training.Numbers(), env.Env) }
}
