package train

import (
	"fmt"
	"slices"
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
	store      graph.Store
	step       *Step        // the largest of plans
	run        graph.Runner // of step
	plans      []budgetRun  // ascending
	batch      *session.Batch
	data       objective.Filler
	optimizer  [][]float32         // of each update
	read       graph.Reader        // of a step's numbers
	readEach   graph.Reader        // of the norms of its tensors; nil = the plan has none
	asked      [2]bool             // for them, of the steps in done
	round      func(kernel.Tensor) // on a CPU, shown what each call computes; nil = nobody
	accumulate int
	seed       uint64
	async      bool         // work goes on after it is queued
	done       [2]time.Time // when the steps were queued whose numbers were not read yet, as a ring
	queued     int
	counted    int
}

// budgetRun is the step for micro-batches of at most so many tokens.
type budgetRun struct {
	tokens int
	run    graph.Runner
}

// Window is the micro-batches of one optimizer step.
type Window struct {
	Number  int // of the step, from 1
	Batches []dataset.Batch
	Trained int // places that are trained, in the whole window
	LR      float64
	Norms   bool // of each tensor are asked for
}

// Numbers are what a step gives: copies, on the host.
type Numbers struct {
	Loss, Norm float64
	Scale      float64   // of the next step's loss; 0 without loss scaling
	Skipped    int       // steps so far whose gradient overflowed
	Norms      []float64 // of each tensor, in the order of Trained; nil = not asked for
	Done       time.Time
}

// Segments that run together. The update is apart: it waits until the step before is known to be finite.
var (
	wholeGradients = []string{segmentBegin, segmentMicro, segmentNorm}
	firstOfWindow  = []string{segmentBegin}
	eachOfWindow   = []string{segmentMicro}
	lastOfWindow   = []string{segmentNorm}
	updateAlone    = []string{segmentUpdate}
	eachTensor     = []string{segmentEach}
)

// NewPipeline makes ready what steps of accumulate micro-batches need: a step for each token budget, the largest first,
// and their runners in one memory. The seed is that of dropout.
func NewPipeline(steps []*Step, m graph.Store, runs []graph.Runner, on graph.Machine, accumulate int, seed uint64) (*Pipeline, error) {
	step, run := steps[0], runs[0]
	p := &Pipeline{store: m, step: step, run: run, async: on.Capabilities().Async, accumulate: accumulate, seed: seed}
	for i, s := range steps {
		p.plans = append(p.plans, budgetRun{s.Tokens, runs[i]})
	}
	slices.SortFunc(p.plans, func(a, b budgetRun) int { return a.tokens - b.tokens })
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
	if step.each != nil {
		if p.readEach, err = run.Reader(step.each); err != nil {
			return nil, err
		}
	}
	return p, p.prepare()
}

// prepare captures what steps run: where a step is one micro-batch all of it for each budget, else the micro-batch alone.
func (p *Pipeline) prepare() error {
	once, each := [][]string{updateAlone}, wholeGradients
	if p.accumulate > 1 {
		once, each = [][]string{firstOfWindow, lastOfWindow, updateAlone}, eachOfWindow
	}
	for _, b := range p.plans {
		if err := b.run.Prepare(each...); err != nil {
			return err
		}
	}
	if p.readEach != nil {
		once = append(once, eachTensor)
	}
	for _, s := range once {
		if err := p.run.Prepare(s...); err != nil {
			return err
		}
	}
	return nil
}

// runOf is the smallest plan that holds a micro-batch.
func (p *Pipeline) runOf(b dataset.Batch) graph.Runner {
	for _, plan := range p.plans {
		if len(b.IDs) <= plan.tokens {
			return plan.run
		}
	}
	panic(fmt.Sprintf("a micro-batch of %d tokens, the largest plan holds %d", len(b.IDs), p.step.Tokens))
}

// Gradients queues forward and backward over a window's micro-batches. The loss is its sum over trained places divided
// by their number in the whole window.
func (p *Pipeline) Gradients(w Window) error {
	p.asked[p.queued%len(p.asked)] = w.Norms
	defer graph.StartRange("gradients").End()
	p.setRates(w)
	if p.accumulate > 1 {
		if err := p.run.Run(firstOfWindow...); err != nil {
			return err
		}
	}
	for i, b := range w.Batches {
		micro := graph.StartRangeNumber("micro-batch", i)
		p.fill(w, i)
		if err := p.batch.Put(); err != nil {
			return err
		}
		run := p.runOf(b)
		if p.round != nil {
			return p.eachCall(run.(*graph.Run))
		}
		if p.accumulate == 1 {
			err := run.Run(wholeGradients...)
			micro.End()
			return err
		}
		if err := run.Run(eachOfWindow...); err != nil {
			return err
		}
		micro.End()
	}
	return p.run.Run(lastOfWindow...)
}

// eachCall is a step's gradients call by call, of which round sees the first outputs: the others are statistics.
func (p *Pipeline) eachCall(run *graph.Run) error {
	for _, s := range []string{segmentBegin, segmentMicro} {
		run.Each(s, func(_ string, out []kernel.Tensor) { p.round(out[0]) })
	}
	return nil
}

// setRates writes what the optimizer reads.
func (p *Pipeline) setRates(w Window) {
	for i, u := range p.step.updates {
		for k, v := range p.step.optimizer.Numbers(w.LR*u.rate, w.Number) {
			p.optimizer[i][k] = float32(v)
		}
	}
}

// fill writes a micro-batch of a window into host memory.
func (p *Pipeline) fill(w Window, i int) {
	p.batch.Fill(w.Batches[i])
	p.data.Fill(w.Batches[i])
	p.data.Scale(1 / float32(w.Trained))
	p.batch.SetDropout(p.seed, w.Number-1, i)
}

// Update queues clipping and the optimizer, and the reading of the step's numbers. A step whose loss or norm is not
// finite changes nothing on the device.
func (p *Pipeline) Update() error {
	defer graph.StartRange("update").End()
	if p.asked[p.queued%len(p.asked)] {
		if err := p.run.Run(eachTensor...); err != nil { // before the update, which may change the loss scale
			return err
		}
		if err := p.readEach.Queue(); err != nil {
			return err
		}
	}
	if err := p.run.Run(updateAlone...); err != nil {
		return err
	}
	p.done[p.queued%len(p.done)] = time.Now()
	p.queued++
	return p.read.Queue()
}

// Numbers waits for those of the oldest step that were not read yet.
func (p *Pipeline) Numbers() (Numbers, error) {
	defer graph.StartRange("read loss").End()
	read, err := p.read.Next()
	if err != nil {
		return Numbers{}, err
	}
	slot := p.counted % len(p.done)
	n := Numbers{Done: p.done[slot], Loss: float64(read[0].F32()[0]), Norm: float64(read[1].F32()[0])}
	if p.counted++; p.async {
		n.Done = time.Now()
	}
	if p.asked[slot] {
		each, err := p.readEach.Next()
		if err != nil {
			return Numbers{}, err
		}
		n.Norms = p.step.normsIn(each[0])
	}
	if len(read) > 2 {
		n.Scale, n.Skipped = float64(read[2].F32()[kernel.LossScaleNow]), int(read[2].F32()[kernel.LossScaleSkipped])
	}
	return n, nil
}
