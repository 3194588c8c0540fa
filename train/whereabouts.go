package train

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/train/checkpoint"
)

// phase is what a run is doing.
type phase string

// The phases of a run, in their order. Up to phaseSteps a stop ends what is being done; from there on the run finishes
// its step and saves it.
const (
	phaseOpen    phase = "opening the model"
	phaseData    phase = "reading the data"
	phasePlan    phase = "planning the memory"
	phaseLoad    phase = "loading the base model"
	phaseCapture phase = "making the step ready"
	phaseResume  phase = "reading the checkpoint"
	phaseSteps   phase = "training"
	phaseEval    phase = "evaluating"
	phaseSave    phase = "saving a checkpoint"
	phaseFinish  phase = "writing the adapter"
	phaseEnd     phase = "giving the memory back"
)

// whereabouts is how far a run is, for those who watch it from other goroutines. All methods allow nil, which notes
// nothing.
type whereabouts struct {
	mu          sync.Mutex
	now         phase
	seen        func(phase) // told of each phase; nil = nobody
	began       bool        // the steps have begun
	interrupted <-chan struct{}
	left        bool   // the watchdog has given the run up
	result      Result // as far as it is known
	lock        *checkpoint.Lock
	told        bool // that the output folder is the run's
	cancel      context.CancelFunc
	ended       phase           // in which the run was asked to stop before its steps; "" = it was not
	last        time.Time       // when the newest step was done
	took        []time.Duration // by the newest steps, as a ring
	counted     int
	team        *team // told of it; nil = nobody
}

// stepsRemembered is how many steps the median of the watchdog is over.
const stepsRemembered = 101

// enter notes a phase.
func (w *whereabouts) enter(p phase) {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.now = p
	w.began = w.began || p == phaseSteps
	w.last = time.Time{} // what comes between two steps is none of theirs
	seen, step := w.seen, w.result.Steps+1
	if !w.began {
		step = 0
	}
	w.mu.Unlock()
	if w.team != nil && p != phaseEnd { // where a rank has failed is what the others are told
		w.team.At(step, string(p))
	}
	if seen != nil {
		seen(p)
	}
	select {
	case <-w.interrupted: // told here too, so that no phase begins after it
		w.mu.Lock()
		defer w.mu.Unlock()
		w.endEarly()
	default:
	}
}

// stepDone notes a finished step.
func (w *whereabouts) stepDone(step, total int, now time.Time) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result.Steps, w.result.MaxSteps = step, total
	if !w.last.IsZero() {
		if len(w.took) < stepsRemembered {
			w.took = append(w.took, 0)
		}
		w.took[w.counted%stepsRemembered] = now.Sub(w.last)
		w.counted++
	}
	w.last = now
	if w.team != nil {
		w.team.At(step+1, string(w.now))
	}
}

// saved notes the newest checkpoint.
func (w *whereabouts) saved(path string) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result.Checkpoint = path
}

// holds notes the lock of the run's folder.
func (w *whereabouts) holds(l *checkpoint.Lock) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lock = l
}

// taken tells once that the output folder is the run's.
func (w *whereabouts) taken(dir string, env Env) {
	if w == nil || env.Taken == nil {
		return
	}
	w.mu.Lock()
	told := w.told
	w.told = true
	w.mu.Unlock()
	if !told {
		env.Taken(dir)
	}
}

// errGivenUp ends what goes on, against expectation, after the watchdog gave a run up: its folder may be another's.
var errGivenUp = errors.New("the run was given up")

// check is errGivenUp for a run that was given up.
func (w *whereabouts) check() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left {
		return errGivenUp
	}
	return nil
}

// Stopped is the error of a run that was asked to stop before its first step: there is nothing to save.
type Stopped struct{ Doing string }

func (s *Stopped) Error() string {
	return fmt.Sprintf("stopped while %s: no step was made and nothing was saved; the same command begins again", s.Doing)
}

func (s *Stopped) Unwrap() error { return context.Canceled }

// stopEarly ends a run that is asked to stop before its steps begin. What it returns ends the listening.
func (w *whereabouts) stopEarly() (end func()) {
	done := make(chan struct{})
	rescue.Go(func() {
		select {
		case <-w.interrupted:
			w.mu.Lock()
			defer w.mu.Unlock()
			w.endEarly()
		case <-done:
		}
	})
	return func() { close(done) }
}

// endEarly cancels a run whose steps have not begun. The caller holds mu.
func (w *whereabouts) endEarly() {
	if !w.began && w.ended == "" {
		w.ended = w.now
		w.cancel()
	}
}

// endedIn is what a run was doing that was asked to stop before its steps; "" = it was not.
func (w *whereabouts) endedIn() phase {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}
