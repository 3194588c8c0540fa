package infer

import (
	"context"
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
)

const (
	segmentReference = "reference"
	referencePrefix  = "reference " // prefix of the names of a reference pass's data
)

// ReferenceStep is a planned forward pass of the reference of an objective, which computes what the objective's loss
// reads of it (objective.ReferenceForm).
type ReferenceStep struct {
	session.Program
	pass objective.ReferencePass
	out  []*graph.Value // the numbers of the form, each f[S]
}

// PlanReference plans a reference pass over batches of shape s.
func PlanReference(nw session.Network, s session.Shape, f objective.ReferenceForm, on graph.Machine) (*ReferenceStep,
	error) {
	e := &ReferenceStep{pass: objective.ReferencePass{ReferenceForm: f}}
	n, trained, in := nw.Declare(referencePrefix, s)
	data := e.pass.Declare(n, referencePrefix, s)
	n.Segment(segmentReference)
	e.out = e.pass.Build(nw, n, in, data, nw.LossRows(on))
	if err := n.Err(); err != nil {
		return nil, fmt.Errorf("plan the log-probabilities of the reference: %w", err)
	}
	plan, err := on.Compile(n.Builder, e.out...)
	if err != nil {
		return nil, fmt.Errorf("plan the log-probabilities of the reference: %w", err)
	}
	e.Program = session.Program{Net: n, Trained: trained, Plan: plan}
	return e, nil
}

// ReferenceRun is a ReferenceStep bound to memory.
type ReferenceRun struct {
	step  *ReferenceStep
	run   graph.Runner
	batch *session.Batch
	data  *objective.ReferenceReader
}

// Bind makes a reference pass ready to run in the memory to which its plan was bound.
func (e *ReferenceStep) Bind(m graph.Store, run graph.Runner) (*ReferenceRun, error) {
	r := &ReferenceRun{step: e, run: run}
	if err := run.Prepare(segmentReference); err != nil {
		return nil, err
	}
	var err error
	if r.batch, err = session.BindBatch(m, referencePrefix); err != nil {
		return nil, err
	}
	r.data, err = e.pass.Bind(r.batch)
	return r, err
}

// Each computes a loader's rows. It calls add with the key and the values of each row of a batch, and then batch.
func (r *ReferenceRun) Each(ctx context.Context, l *dataset.Loader, add func(key uint64, values []float32),
	batch func() error) error {
	for b, err := range l.Epoch(0) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if err := r.Batch(b, add); err != nil {
			return err
		}
		if err := batch(); err != nil {
			return err
		}
	}
	return nil
}

// Batch computes the rows of a batch, and calls add with the key and the values of each.
func (r *ReferenceRun) Batch(b dataset.Batch, add func(key uint64, values []float32)) error {
	r.batch.Fill(b, session.Part{})
	r.data.Fill(b)
	numbers, err := r.numbers()
	if err == nil {
		r.data.Rows(b, numbers, add)
	}
	return err
}

// Again repeats the pass on the last batch, so that other ranks can complete their collective operations.
func (r *ReferenceRun) Again() error {
	_, err := r.numbers()
	return err
}

// numbers runs the pass on the batch that was written.
func (r *ReferenceRun) numbers() (all [][]float32, err error) {
	if err := r.batch.Put(); err != nil {
		return nil, err
	}
	if err := r.run.Run(segmentReference); err != nil {
		return nil, err
	}
	for _, of := range r.step.out {
		t, err := r.run.Read(of)
		if err != nil {
			return nil, err
		}
		all = append(all, slices.Clone(t.F32()))
	}
	return all, nil
}
