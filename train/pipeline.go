package train

import (
	"time"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
)

// Pipeline queues a step's work on a machine and reads its numbers behind the gradients of the next step, so that a
// GPU always has work queued. On a CPU the work is done when it is queued.
type Pipeline struct {
	step       *Step
	run        graph.Runner
	batch      *session.Batch
	data       objective.Filler
	optimizer  [][]float32  // of each update
	read       graph.Reader // of a step's numbers
	accumulate int
	seed       uint64
	async      bool         // work goes on after it is queued
	done       [2]time.Time // when the steps were queued whose numbers were not read yet, as a ring
	queued     int
	counted    int
}

// Window is the micro-batches of one optimizer step.
type Window struct {
	Number  int // of the step, from 1
	Batches []dataset.Batch
	Trained int // places that are trained, in the whole window
	LR      float64
}

// Numbers are what a step gives: copies, on the host.
type Numbers struct {
	Loss, Norm float64
	Scale      float64 // of the next step's loss; 0 without loss scaling
	Skipped    int     // steps so far whose gradient overflowed
	Done       time.Time
}

// Segments that run together. The update is apart: it waits until the step before is known to be finite.
var (
	wholeGradients = []string{segmentBegin, segmentMicro, segmentNorm}
	firstOfWindow  = []string{segmentBegin}
	eachOfWindow   = []string{segmentMicro}
	lastOfWindow   = []string{segmentNorm}
	updateAlone    = []string{segmentUpdate}
)

// Sequences are the segments that a step without accumulation runs together.
func Sequences() [][]string { return [][]string{wholeGradients, updateAlone} }

// NewPipeline makes ready what steps of accumulate micro-batches need. The seed is that of dropout.
func NewPipeline(step *Step, m graph.Store, run graph.Runner, on graph.Machine, accumulate int, seed uint64) (*Pipeline, error) {
	p := &Pipeline{step: step, run: run, async: on.Capabilities().Async, accumulate: accumulate, seed: seed}
	var err error
	if p.batch, err = session.BindBatch(m, ""); err != nil {
		return nil, err
	}
	if p.data, err = step.objective.Bind(p.batch); err != nil {
		return nil, err
	}
	for _, u := range step.updates {
		numbers, err := p.batch.Float32s(u.numbers)
		if err != nil {
			return nil, err
		}
		p.optimizer = append(p.optimizer, numbers)
	}
	if p.read, err = run.Reader(step.numbers()...); err != nil {
		return nil, err
	}
	sequences := Sequences()
	if accumulate > 1 {
		sequences = [][]string{firstOfWindow, eachOfWindow, lastOfWindow, updateAlone}
	}
	for _, s := range sequences {
		if err := run.Prepare(s...); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Gradients queues forward and backward over a window's micro-batches. The loss is its sum over trained places divided
// by their number in the whole window.
func (p *Pipeline) Gradients(w Window) error {
	for i, u := range p.step.updates {
		for k, v := range p.step.optimizer.Numbers(w.LR*u.rate, w.Number) {
			p.optimizer[i][k] = float32(v)
		}
	}
	if p.accumulate > 1 {
		if err := p.run.Run(firstOfWindow...); err != nil {
			return err
		}
	}
	for i, b := range w.Batches {
		p.batch.Fill(b)
		p.data.Fill(b)
		p.data.Scale(1 / float32(w.Trained))
		p.batch.SetDropout(p.seed, w.Number-1, i)
		if err := p.batch.Put(); err != nil {
			return err
		}
		if p.accumulate == 1 {
			return p.run.Run(wholeGradients...)
		}
		if err := p.run.Run(eachOfWindow...); err != nil {
			return err
		}
	}
	return p.run.Run(lastOfWindow...)
}

// Update queues clipping and the optimizer, and the reading of the step's numbers. A step whose loss or norm is not
// finite changes nothing on the device.
func (p *Pipeline) Update() error {
	if err := p.run.Run(updateAlone...); err != nil {
		return err
	}
	p.done[p.queued%len(p.done)] = time.Now()
	p.queued++
	return p.read.Queue()
}

// Numbers waits for those of the oldest step that were not read yet.
func (p *Pipeline) Numbers() (Numbers, error) {
	read, err := p.read.Next()
	if err != nil {
		return Numbers{}, err
	}
	n := Numbers{Done: p.done[p.counted%len(p.done)], Loss: float64(read[0].F32()[0]), Norm: float64(read[1].F32()[0])}
	if p.counted++; p.async {
		n.Done = time.Now()
	}
	if len(read) > 2 {
		n.Scale, n.Skipped = float64(read[2].F32()[kernel.LossScaleNow]), int(read[2].F32()[kernel.LossScaleSkipped])
	}
	return n, nil
}
