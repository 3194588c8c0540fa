package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// optimizerStep is a step on its way: what the host knows before the device has its numbers.
type optimizerStep struct {
	number  int // from 1
	window  []dataset.Batch
	trained int           // places with a label, in the whole window
	before  dataset.State // of the loader
	epoch   float64       // after it
	lr      float64
}

// Segments that run together. The update is apart: it waits until the step before is known to be finite.
var (
	wholeGradients = []string{segmentBegin, segmentMicro, segmentNorm}
	firstOfWindow  = []string{segmentBegin}
	eachOfWindow   = []string{segmentMicro}
	lastOfWindow   = []string{segmentNorm}
	updateAlone    = []string{segmentUpdate}
)

// prepareStep makes ready what the steps of a run with windows of accumulate micro-batches need.
func prepareStep(run graph.Runner, accumulate int) error {
	sequences := [][]string{wholeGradients, updateAlone}
	if accumulate > 1 {
		sequences = [][]string{firstOfWindow, eachOfWindow, lastOfWindow, updateAlone}
	}
	for _, s := range sequences {
		if err := run.Prepare(s...); err != nil {
			return err
		}
	}
	return nil
}

// nextStep takes the micro-batches of the step behind the one that is finished or on its way.
func (r *running) nextStep() *optimizerStep {
	s := &optimizerStep{number: r.state.GlobalStep + 1, before: r.loader.State()}
	if r.waiting != nil {
		s.number++
	}
	s.window, s.trained = r.loader.NextWindow(r.spec.Training.GradientAccumulationSteps)
	s.epoch = epochOf(r.loader, s.window[len(s.window)-1])
	s.lr = r.schedule(s.number - 1)
	return s
}

// gradients queues forward and backward over a step's micro-batches. The loss is its sum over trained tokens
// divided by their number in the whole window.
func (r *running) gradients(s *optimizerStep) error {
	for i, v := range hyper(r.spec.Training, s.lr, s.number) {
		r.in.hyper[i] = float32(v)
	}
	accumulates := r.spec.Training.GradientAccumulationSteps > 1
	if accumulates {
		if err := r.run.Run(firstOfWindow...); err != nil {
			return err
		}
	}
	for i, b := range s.window {
		r.in.fill(b)
		r.in.scale[0] = 1 / float32(s.trained)
		r.in.setCounter(r.spec.Seed, s.number-1, i)
		if err := r.in.put(); err != nil {
			return err
		}
		if !accumulates {
			return r.run.Run(wholeGradients...)
		}
		if err := r.run.Run(eachOfWindow...); err != nil {
			return err
		}
	}
	return r.run.Run(lastOfWindow...)
}

// update queues clipping and AdamW, and the reading of the step's numbers. A step whose loss or norm is not
// finite changes nothing on the device.
func (r *running) update(s *optimizerStep) error {
	if err := r.run.Run(updateAlone...); err != nil {
		return err
	}
	r.waiting = s
	return r.numbers.Queue()
}

// waitsFor tells whether nothing may be queued behind a step before its numbers are known.
func (r *running) waitsFor(s *optimizerStep) bool {
	return s.number == r.total || r.evaluatesAfter(s.number) || r.savesAfter(s.number)
}

func (r *running) evaluatesAfter(step int) bool {
	every := r.spec.Training.EvalSteps
	return r.eval != nil && (every > 0 && step%every == 0 || step == r.total)
}

func (r *running) savesAfter(step int) bool {
	every := r.spec.Training.SaveSteps
	return every > 0 && step%every == 0 || step == r.total
}

// finishStep waits for the numbers of the step on its way and counts it, and logs, evaluates and saves where
// that is due.
func (r *running) finishStep(ctx context.Context) error {
	c, s := r.spec.Training, r.waiting
	r.waiting = nil
	read, err := r.numbers.Next()
	if err != nil {
		return err
	}
	r.clock.step()
	loss, norm := float64(read[0].F32()[0]), float64(read[1].F32()[0])
	before, skipped := r.scale, 0
	if len(read) > 2 {
		r.scale, skipped = float64(read[2].F32()[kernel.LossScaleNow]), int(read[2].F32()[kernel.LossScaleSkipped])
	}
	overflowed := r.scale < before
	if !finite(loss) || !finite(norm) && !overflowed {
		return r.notFinite(s, loss, norm)
	}
	if overflowed {
		r.env.log("step %d: the gradient overflowed %v and was left out; loss scale %v, was %v", s.number, r.on.Precision(), r.scale, before)
	} else {
		r.progress.Optimizer++
	}
	tokens := 0
	for _, b := range s.window {
		tokens += b.Tokens
		r.samples += int64(len(b.Rows))
	}
	r.tokens += int64(tokens)
	r.state.GlobalStep, r.state.Epoch = s.number, s.epoch
	r.state.TokensSeen += int64(tokens)
	p := &r.progress
	p.Losses = append(p.Losses, loss)
	p.NLL, p.Trained = p.NLL+loss*float64(s.trained), p.Trained+int64(s.trained)
	p.SinceNLL, p.SinceLog = p.SinceNLL+loss*float64(s.trained), p.SinceLog+int64(s.trained)
	r.result.Steps, r.result.Losses = s.number, p.Losses

	rate := float64(r.tokens) / time.Since(r.began).Seconds()
	mean := p.SinceNLL / float64(p.SinceLog)
	if s.number%c.LoggingSteps == 0 || s.number == r.total {
		clippedNorm := clipped(norm, c.MaxGradNorm)
		if overflowed {
			clippedNorm = 0 // nothing of it went into the update
		}
		p.SinceNLL, p.SinceLog = 0, 0
		err := r.metrics.Append(StepMetrics{
			Step: s.number, Epoch: s.epoch, Loss: mean, PPL: math.Exp(mean), GradNorm: norm, GradNormClipped: clippedNorm,
			LearningRate: s.lr, TokensSeen: r.state.TokensSeen, TokensPerSecond: rate,
			TokensTotal: r.state.TokensSeen, TokensTrainable: p.Trained, MemoryGiB: float64(r.result.HeldBytes) / (1 << 30),
			LossScaling: scalingMetrics(r.scale, skipped),
		})
		if err != nil {
			return err
		}
	}
	evalLoss := math.NaN()
	best := false
	if r.evaluatesAfter(s.number) {
		if evalLoss, err = r.evaluate(ctx); err != nil {
			return err
		}
		best = r.state.Better(evalLoss)
	}
	if r.env.Progress != nil {
		r.env.Progress.Step(StepInfo{Step: s.number, Epoch: s.epoch, Loss: loss, MeanLoss: mean, GradNorm: norm, LearningRate: s.lr,
			Tokens: int64(tokens), TokensPerSecond: rate, EvalLoss: evalLoss, LossScale: r.scale, Skipped: skipped})
	}
	if r.evaluatesAfter(s.number) || r.savesAfter(s.number) {
		r.clock.pause()
	}
	if best || r.savesAfter(s.number) {
		return r.save()
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// notFinite saves the state before the step, which the step left as it was, and says where it happened.
func (r *running) notFinite(s *optimizerStep, loss, norm float64) error {
	var rows []string
	for _, b := range s.window {
		rows = append(rows, r.loader.Where(b)...)
	}
	where := fmt.Errorf("step %d: %w: loss %v, gradient norm %v; rows %s", s.number, ErrNotFinite, loss, norm, strings.Join(rows, " "))
	if r.on.Precision().Scaled() {
		where = fmt.Errorf("%w; fp16 holds numbers up to 65504, training.precision bf16, tf32 or fp32 larger ones", where)
	}
	if err := r.saveAt(s.before); err != nil {
		return errors.Join(where, err)
	}
	return fmt.Errorf("%w; the state before the step is in %s", where, r.result.Checkpoint)
}
