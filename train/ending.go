package train

import (
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/train/ranks"
)

// end frees the memory and reports to the observers how the run ended.
func (r *loaded) end(err error) error {
	r.recorder.sum()
	if gone := r.at.check(); gone != nil {
		return gone
	}
	r.at.enter(phaseEnd)
	end := EndInfo{Err: err}
	if r.result.AdapterDir != "" {
		end.Logged = r.recorder.endLine()
	}
	for _, o := range r.recorder.observers {
		if w, ok := o.(EndWatcher); ok {
			w.Ending(end)
		}
	}
	var problems []error
	for _, o := range r.recorder.observers { // every observer is called, whatever error one returns
		problems = append(problems, o.End(end))
	}
	return errors.Join(append(problems, r.memory.Close())...)
}

// explain adds to an error of the device or the disk which step the run reached and how to resume it.
func (r *loaded) explain(err error) error {
	var full *atomicfile.FullError
	if !errors.Is(err, graph.ErrDevice) && !errors.As(err, &full) && !errors.As(err, new(*ranks.LostError)) {
		return err
	}
	if !r.env.team.leads() { // only rank 0 has the checkpoints
		return fmt.Errorf("after step %d of %d: %w", r.recorder.step(), r.total, err)
	}
	next := "no checkpoint was saved yet"
	if r.result.Checkpoint != "" {
		next = r.result.Checkpoint + " is whole: --resume auto continues from it"
	}
	if errors.Is(err, graph.ErrDeviceLost) {
		next += "; trainer selfcheck tries every kernel on this device"
	}
	if full != nil {
		next = "free some space; " + next
	}
	return fmt.Errorf("after step %d of %d: %w; %s", r.recorder.step(), r.total, err, next)
}
