package train

import (
	"encoding/json"
	"fmt"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/jsonerr"
)

// Windows deals the windows of a run, one for each optimizer step: the micro-batches that this rank computes, and what
// is known about those of all ranks. Every rank of a run deals the same windows without communication. The loop,
// checkpoints and resuming know nothing else about where rows come from: a Loader deals those of a data set, and other
// sources may generate or replay theirs.
type Windows interface {
	// Next deals the next step's window. After an error the place is unchanged.
	Next() (dataset.Step, error)
	// State returns the place before the next window.
	State() Place
	// Restore moves to the place of a checkpoint, given as Place.State. If the windows are not those of the checkpoint,
	// the error says what differs.
	Restore(state json.RawMessage) error
	// Shape returns the bounds of the micro-batches of all windows.
	Shape() dataset.Shape
}

// Place is a position in the sequence of windows.
type Place struct {
	// Data is a hash of what the windows are dealt from. It is the same on all ranks.
	Data string
	// At is the place in words, such as "epoch 1, batch 12".
	At string
	// State is the JSON that a checkpoint keeps and that Restore takes.
	State json.RawMessage
}

// loaderWindows deals the windows of a dataset.Loader.
type loaderWindows struct {
	*dataset.Loader
	// Number of batches in one rank's window; those of all ranks, split into the Loader's pieces, are the window.
	batches int
	all     bool // deals the micro-batches of the other ranks too
}

// windowsOf returns the windows that a rank trains on; rank 0 sees those of all ranks.
func (p *inputs) windowsOf(l *dataset.Loader) Windows {
	return &loaderWindows{Loader: l, batches: p.spec.Training.GradientAccumulationSteps,
		all: p.env.team != nil && p.env.team.leads()}
}

func (l *loaderWindows) Next() (dataset.Step, error) { return l.NextStep(l.batches, l.all) }

func (l *loaderWindows) State() Place {
	s := l.Loader.State()
	state, err := json.Marshal(s)
	if err != nil {
		// A cursor only has integers, booleans and strings.
		panic(fmt.Sprintf("a cursor that JSON cannot hold: %v", err))
	}
	return Place{Data: s.Data, At: fmt.Sprintf("epoch %d, batch %d", s.Epoch, s.Position), State: state}
}

func (l *loaderWindows) Restore(state json.RawMessage) error {
	var s dataset.State
	if len(state) > 0 {
		if err := jsonerr.Unmarshal(state, &s); err != nil {
			return fmt.Errorf("data cursor: %w", jsonerr.Unplaced(err))
		}
	}
	return l.Loader.Restore(s)
}
