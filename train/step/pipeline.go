package step

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

// Pipeline queues a step's work on a machine and reads its numbers after the gradients of the next step are queued,
// so that a GPU always has work. On a CPU the work is done when it is queued.
type Pipeline struct {
	store      graph.Store
	step       *Step        // the largest step of plans
	run        graph.Runner // runner of step
	plans      []budgetRun  // runners of the steps, with ascending token budgets
	batch      *session.Batch
	data       objective.Filler
	noise      *noise              // nil = the embeddings have none
	rounding   []int32             // counter of stochastic rounding; nil = the step has none
	optimizer  [][]float32         // numbers that the optimizer reads, for each of the step's Rates
	read       graph.Reader        // reader of a step's numbers
	readEach   graph.Reader        // reader of the norms of the step's tensors; nil = the plan has none
	see        func(kernel.Tensor) // on a CPU, receives the result of each call; nil = calls run together
	stop       []float32           // this rank's batch value nameStop; nil = the run has one rank
	groups     int                 // number of context-parallel groups
	group      int                 // this rank's group
	place      int                 // this rank's index in its group
	together   bool                // the base model is sharded, or ranks share tokens: none computes without the others
	accumulate int                 // micro-batches of a step, on each rank
	seed       uint64              // seed of dropout and stochastic rounding
	async      bool                // queued work runs while the host continues
	averaged   bool                // the parameters hold the optimizer's averaged weights

	// The following arrays are a ring of the steps whose numbers are not read yet.
	asked   [2]bool      // whether the norms of tensors are read
	done    [2]time.Time // when the step was queued
	queued  int          // steps queued so far
	counted int          // steps whose numbers are read
}

// budgetRun runs the step for micro-batches of at most tokens tokens.
type budgetRun struct {
	tokens int
	run    graph.Runner
}

// Window is the micro-batches of one optimizer step.
type Window struct {
	Number  int             // index of the step, from 1
	Batches []dataset.Batch // micro-batches that this rank computes
	Rounds  int             // largest number of micro-batches of any rank; 0 = len(Batches)
	// Trained, Sequences and Groups count the trained tokens, the sequences and the groups of sequences of the whole
	// window, over all ranks. The objective divides the loss by one of them.
	Trained, Sequences, Groups int
	Tokens                     int     // tokens of all ranks without padding, if known; else 0
	LR                         float64 // learning rate
	Norms                      bool    // reads the norm of each tensor's gradient
	Stop                       bool    // this rank must stop
}

func (w Window) rounds() int { return max(w.Rounds, len(w.Batches)) }

// Counts returns the counts that an objective may divide the loss by.
func (w Window) Counts() objective.Counts {
	return objective.Counts{Tokens: int64(w.Trained), Sequences: int64(w.Sequences), Groups: int64(w.Groups)}
}

// Numbers are the results of a step that the host reads.
type Numbers struct {
	Loss, Norm float64
	Sums       []float64    // sums of the objective's numbers that have sums of their own
	Scale      float64      // loss scale of the next step; 0 without loss scaling
	Skipped    int          // steps so far whose gradient overflowed
	Stop       bool         // a rank must stop
	Norms      []TensorNorm // norm of each tensor's gradient, in the order of Trained; nil = Window.Norms was not set
	Done       time.Time    // end of the step
}

// Lists of segments that run together. The update runs separately, because it waits until the previous step is known to
// be finite.
var (
	oneMicro = []string{SegmentBegin, SegmentMicro, SegmentNorm} // step of one micro-batch
	oneRound = []string{SegmentWindow, SegmentBegin, SegmentMicro, SegmentSum, SegmentNorm}
	// Round of a rank without a micro-batch in it.
	oneRoundAside = []string{SegmentWindow, SegmentBegin, SegmentSum, SegmentNorm}
	firstOfWindow = []string{SegmentWindow}
	eachOfWindow  = []string{SegmentBegin, SegmentMicro, SegmentSum}
	aside         = []string{SegmentBegin, SegmentSum}
	lastOfWindow  = []string{SegmentNorm}
	// If no rank computes without the others, each rank takes part in all passes. The results of a rank without a
	// micro-batch are zeroed.
	oneRoundTogether = []string{SegmentWindow, SegmentMicro, SegmentBegin, SegmentSum, SegmentNorm}
	asideTogether    = []string{SegmentMicro, SegmentBegin, SegmentSum}
	updateAlone      = []string{SegmentUpdate}
	eachTensor       = []string{SegmentNorms}
	averageWeights   = []string{SegmentAverage}
	trainedWeights   = []string{SegmentTrained}
)

// NewPipeline returns a pipeline of steps with accumulate micro-batches on each rank. steps has a step for each token
// budget, the largest first, and runs their runners in the memory m. rank is this rank among those of the step's
// Summing; seed is the seed of dropout.
func NewPipeline(
	steps []*Step, m graph.Store, runs []graph.Runner, on graph.Machine, rank, accumulate int, seed uint64,
) (*Pipeline, error) {
	step, run := steps[0], runs[0]
	if accumulate > 1 && !step.summing.Apart {
		return nil, fmt.Errorf("the step is planned for one micro-batch, it gets %d", accumulate)
	}
	p := &Pipeline{store: m, step: step, run: run, async: on.Capabilities().Async, accumulate: accumulate, seed: seed,
		together: step.Plan.Gathered(SegmentMicro).Ranks > 1 || step.Net.Ranks() > 1}
	p.group, p.place, p.groups = rank/step.Net.Ranks(), rank%step.Net.Ranks(),
		max(step.summing.Ranks/step.Net.Ranks(), 1)
	for i, s := range steps {
		p.plans = append(p.plans, budgetRun{s.Tokens, runs[i]})
	}
	slices.SortFunc(p.plans, func(a, b budgetRun) int { return a.tokens - b.tokens })
	var err error
	if p.batch, err = session.BindBatch(m, ""); err != nil {
		return nil, err
	}
	if p.data, err = step.Objective.Bind(p.batch); err != nil {
		return nil, err
	}
	if p.noise, err = step.bindNoise(p.batch); err != nil {
		return nil, err
	}
	if p.rounding, err = step.bindRounding(p.batch); err != nil {
		return nil, err
	}
	if step.stops != nil {
		if p.stop, err = p.batch.Float32s(nameStop); err != nil {
			return nil, err
		}
	}
	for _, u := range step.Rates {
		numbers, err := p.batch.Float32s(u.Numbers)
		if err != nil {
			return nil, err
		}
		p.optimizer = append(p.optimizer, numbers)
	}
	if p.read, err = run.Reader(step.numbers()...); err != nil {
		return nil, err
	}
	if step.TensorNorms != nil {
		if p.readEach, err = run.Reader(step.TensorNorms); err != nil {
			return nil, err
		}
	}
	return p, p.prepare()
}

// microSegments returns the segments that run for a micro-batch, or for a round in which this rank has none. If a step
// is one round, they are all segments except the update.
func (p *Pipeline) microSegments(has bool) []string {
	switch {
	case p.accumulate > 1 && has:
		return eachOfWindow
	case p.accumulate > 1 && p.together:
		return asideTogether
	case p.accumulate > 1:
		return aside
	case !has && p.together:
		return oneRoundTogether
	case !has:
		return oneRoundAside
	case p.step.summing.Apart:
		return oneRound
	}
	return oneMicro
}

// prepare prepares the segments that steps run; a GPU captures them.
func (p *Pipeline) prepare() error {
	once := [][]string{updateAlone}
	if p.accumulate > 1 {
		once = append(once, firstOfWindow, lastOfWindow)
	}
	if p.step.summing.shared() {
		once = append(once, p.microSegments(false))
	}
	if p.readEach != nil {
		once = append(once, eachTensor)
	}
	if p.step.averages {
		once = append(once, averageWeights, trainedWeights)
	}
	for _, b := range p.plans {
		if err := b.run.Prepare(p.microSegments(true)...); err != nil {
			return err
		}
	}
	for _, s := range once {
		if err := p.run.Prepare(s...); err != nil {
			return err
		}
	}
	return nil
}

// planOf returns the smallest plan that a micro-batch fits in.
func (p *Pipeline) planOf(b dataset.Batch) budgetRun {
	for _, plan := range p.plans {
		if len(b.IDs) <= plan.tokens {
			return plan
		}
	}
	panic(fmt.Sprintf("a micro-batch of %d tokens, the largest plan holds %d", len(b.IDs), p.step.Tokens))
}

// Gradients queues forward and backward over a window's micro-batches. The loss is its sum divided by the count of
// the whole window that the objective names.
func (p *Pipeline) Gradients(w Window) error {
	p.asked[p.queued%len(p.asked)] = w.Norms
	defer graph.StartRange("gradients").End()
	if err := p.train(); err != nil {
		return err
	}
	p.setRates(w)
	if p.accumulate > 1 {
		if err := p.run.Run(firstOfWindow...); err != nil {
			return err
		}
	}
	for i := range w.rounds() {
		micro := graph.StartRangeNumber("micro-batch", i)
		p.fill(w, i)
		if err := p.batch.Put(); err != nil {
			return err
		}
		run, segments := p.roundOf(w, i)
		if p.see != nil {
			return p.eachCall(run.(*graph.Run))
		}
		if err := run.Run(segments...); err != nil {
			return err
		}
		micro.End()
	}
	if p.accumulate > 1 {
		return p.run.Run(lastOfWindow...)
	}
	return nil
}

// Average queues the writing of the weights to evaluate and save into the parameters, if the optimizer keeps others
// than
// it trains. The next Gradients writes those to train back.
func (p *Pipeline) Average() error {
	if !p.step.averages || p.averaged {
		return nil
	}
	p.averaged = true
	return p.run.Run(averageWeights...)
}

// Averaged records that the parameters hold the averaged weights, as after a checkpoint is loaded.
func (p *Pipeline) Averaged() { p.averaged = p.step.averages }

// train undoes Average.
func (p *Pipeline) train() error {
	if !p.averaged {
		return nil
	}
	p.averaged = false
	return p.run.Run(trainedWeights...)
}

// roundOf returns what a round of a window runs: its micro-batch, or only this rank's part in the sum.
func (p *Pipeline) roundOf(w Window, i int) (graph.Runner, []string) {
	if i >= len(w.Batches) {
		return p.run, p.microSegments(false)
	}
	return p.planOf(w.Batches[i]).run, p.microSegments(true)
}

// SeeCalls makes Gradients run call by call, and passes the first output of each call to see, which may change it; the
// other outputs are statistics. It works on a CPU and for windows of one micro-batch.
func (p *Pipeline) SeeCalls(see func(kernel.Tensor)) { p.see = see }

// eachCall computes a step's gradients call by call.
func (p *Pipeline) eachCall(run *graph.Run) error {
	for _, s := range []string{SegmentBegin, SegmentMicro} {
		run.Each(s, func(_ string, out []kernel.Tensor) { p.see(out[0]) })
	}
	return nil
}

// setRates writes the learning rates that the optimizer reads, and the counter that it rounds by.
func (p *Pipeline) setRates(w Window) {
	if p.rounding != nil {
		p.rounding[0], p.rounding[1] = int32(session.Mix(p.seed)), int32(w.Number-1)
	}
	for i, u := range p.step.Rates {
		for k, v := range p.step.options.Optimizer.Numbers(w.LR*u.Factor, w.Number) {
			p.optimizer[i][k] = float32(v)
		}
	}
}

// fill writes the micro-batch of a round into host memory, if there is one, and whether this rank must stop.
func (p *Pipeline) fill(w Window, i int) {
	if p.stop != nil {
		p.stop[0] = 0
		if w.Stop {
			p.stop[0] = 1
		}
	}
	if i >= len(w.Batches) {
		return
	}
	own := session.PartOf(p.planOf(w.Batches[i]).tokens, p.place, p.step.Net.Ranks())
	p.batch.Fill(w.Batches[i], own)
	p.data.Fill(w.Batches[i], own)
	p.data.Scale(1 / float32(w.Counts().Of(p.step.Objective.Divisor())))
	if p.noise != nil {
		p.noise.fill(w.Batches[i], own, p.seed, w.Number-1)
	}
	p.batch.SetDropout(p.seed, w.Number-1, i*p.groups+p.group)
}

// Update queues clipping and the optimizer, and the reading of the step's numbers. A step whose loss or norm is not
// finite changes nothing on the device.
func (p *Pipeline) Update() error {
	defer graph.StartRange("update").End()
	if p.asked[p.queued%len(p.asked)] {
		if err := p.run.Run(eachTensor...); err != nil { // runs before the update, which may change the loss scale
			return err
		}
		if err := p.readEach.Queue(); err != nil {
			return err
		}
	}
	if err := p.run.Run(updateAlone...); err != nil {
		return err
	}
	return p.Skip()
}

// Skip queues the reading of the step's numbers without an update: weights and states stay as they are.
func (p *Pipeline) Skip() error {
	p.done[p.queued%len(p.done)] = time.Now()
	p.queued++
	return p.read.Queue()
}

// Numbers waits for the numbers of the oldest step that has not been read yet, and returns them.
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
		n.Norms = p.step.NormsIn(each[0])
	}
	at := 2
	if p.step.scaling != nil {
		n.Scale, n.Skipped = float64(read[2].F32()[kernel.LossScaleNow]), int(read[2].F32()[kernel.LossScaleSkipped])
		at++
	}
	for i := range p.step.sums {
		n.Sums = append(n.Sums, float64(read[at+i].F32()[0]))
	}
	if p.step.stops != nil {
		n.Stop = read[len(read)-1].F32()[0] != 0
	}
	return n, nil
}
