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

// phase names what a run is doing.
type phase string

// The phases of a run, in their order. Before phaseSteps a stop ends the run at once; from then on the run finishes its
// step and saves it.
const (
	phaseOpen    phase = "opening the model"
	phaseData    phase = "reading the data"
	phasePlan    phase = "planning the memory"
	phaseLoad    phase = "loading the base model"
	phaseCapture phase = "making the step ready"
	phaseRefer   phase = "computing the reference"
	phaseResume  phase = "reading the checkpoint"
	phaseSteps   phase = "training"
	phaseEval    phase = "evaluating"
	phaseSample  phase = "sampling answers"
	phaseSave    phase = "saving a checkpoint"
	phaseFinish  phase = "writing the adapter"
	phaseEnd     phase = "giving the memory back"
)

// whereabouts records how far a run is, for other goroutines that watch it. All methods accept a nil receiver, which
// records nothing.
type whereabouts struct {
	mu          sync.Mutex
	now         phase
	seen        func(phase) // receives each phase; nil = no call
	began       bool        // the steps have begun
	interrupted <-chan struct{}
	left        bool   // the watchdog has given the run up
	result      Result // the result as far as it is known
	lock        *checkpoint.Lock
	told        bool // Env.Taken was called
	cancel      context.CancelFunc
	ended       phase           // phase in which a stop before the first step arrived; "" = none did
	last        time.Time       // end of the newest step
	took        []time.Duration // times of the newest steps, as a ring
	counted     int
	team        *team // receives each phase; nil = none
}

// stepsRemembered is the number of steps that the median of the watchdog covers.
const stepsRemembered = 101

// enter records a phase.
func (w *whereabouts) enter(p phase) {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.now = p
	w.began = w.began || p == phaseSteps
	w.last = time.Time{} // the time between two steps belongs to neither
	seen, step := w.seen, w.result.Steps+1
	if !w.began {
		step = 0
	}
	w.mu.Unlock()
	if w.team != nil && p != phaseEnd { // the others learn in which phase a rank failed
		w.team.At(step, string(p))
	}
	if seen != nil {
		seen(p)
	}
	select {
	case <-w.interrupted: // checked here too, so that no phase begins after an interrupt
		w.mu.Lock()
		defer w.mu.Unlock()
		w.endEarly()
	default:
	}
}

// stepDone records a finished step.
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

// saved records the newest checkpoint.
func (w *whereabouts) saved(path string) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result.Checkpoint = path
}

// holds records the lock of the run's folder.
func (w *whereabouts) holds(l *checkpoint.Lock) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lock = l
}

// taken calls Env.Taken once, when the output folder belongs to the run.
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

// errGivenUp ends a run that continues after the watchdog gave it up: its folder may belong to another run.
var errGivenUp = errors.New("the run was given up")

// check returns errGivenUp for a run that was given up, else nil.
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

// Stopped is the error of a run that was stopped before its first step, so that it has nothing to save.
type Stopped struct{ Doing string }

// Error names the phase in which the run was stopped.
func (s *Stopped) Error() string {
	return fmt.Sprintf("stopped while %s: no step was made and nothing was saved; the same command begins again",
		s.Doing)
}

// Unwrap returns context.Canceled.
func (s *Stopped) Unwrap() error { return context.Canceled }

// stopEarly ends a run that is interrupted before its steps begin. The returned function stops listening for the
// interrupt.
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

// endedIn returns the phase in which a stop before the first step arrived; "" = none did.
func (w *whereabouts) endedIn() phase {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}
