package train

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/train/objective"
)

// evaluate computes the mean loss over the trained tokens of the validation rows. An interrupt ends it; the run then
// makes the evaluation when it resumes.
func (r *evaluating) evaluate(ctx context.Context) (best bool, err error) {
	if w := r.evaluatesPrompts(); w != nil {
		return r.evaluateAnswers(w)
	}
	defer graph.StartRange("evaluation").End()
	r.at.enter(phaseEval)
	defer r.at.enter(phaseSteps)
	r.recorder.progress.OwesEval = true
	if err := r.pipeline.Average(); err != nil {
		return false, err
	}
	began, step := time.Now(), r.recorder.step()
	of := r.val.Batches(0)
	see := func(batches int) error {
		r.recorder.observers.evaluating(step, batches, of)
		if r.env.team == nil && r.interrupted() && batches < of {
			return errInterrupted
		}
		return nil
	}
	var sum infer.Sum
	if r.env.team == nil {
		sum, err = r.evaluator.Run(ctx, r.val, see)
	} else {
		sum, err = r.evaluateTogether(ctx, of, see)
	}
	if err != nil {
		return false, err
	}
	by := r.step.Objective
	loss, took := sum.NLL/float64(sum.Counts().Of(by.Divisor())), time.Since(began).Seconds()
	if !finite(loss) {
		return false, r.evalNotFinite(ctx, loss)
	}
	return r.recorder.evaluated(EvalMetrics{
		Step: step, Epoch: r.recorder.state.Epoch, Loss: loss, Runtime: took,
		Numbers:          Values(sum.Values(by, loss)).of(evalPrefix),
		SamplesPerSecond: float64(r.val.Len()) / took, StepsPerSecond: float64(sum.Batches) / took,
	})
}

// evaluates reports whether the run has validation rows.
func (r *evaluating) evaluates() bool { return r.evaluator != nil || r.evaluatesPrompts() != nil }

// owedEvaluation makes the evaluation that an interrupt cut short.
func (r *evaluating) owedEvaluation(ctx context.Context) error {
	if !r.recorder.progress.OwesEval || !r.evaluates() {
		return nil
	}
	best, err := r.evaluate(ctx)
	if err == nil && (best || r.recorder.step() == r.total) {
		r.saver.saved = -1 // the checkpoint of this step does not have the evaluation yet
		err = r.saver.save(r.windows.State())
	}
	return err
}

// evaluateTogether computes the loss over the validation rows, whose batches the ranks take in turn. It adds the sums
// of the batches in their order, so the result equals the loss of one rank to the last bit. After each round all ranks
// know of an interrupt.
func (r *evaluating) evaluateTogether(ctx context.Context, of int,
	see func(batches int) error) (all infer.Sum, err error) {
	t := r.env.team
	share := func(one infer.Sum) error {
		if t.Rank()%r.spec.Training.sharing() > 0 { // the first of the ranks that share the batch reports the loss
			one = infer.Sum{Sums: one.Sums} // the loss of this rank's own tokens
		}
		flag := byte(0)
		if r.interrupted() {
			flag = 1
		}
		sent, err := t.Group.Gather(t.ctx, "the loss of an evaluation's batch", encodeSum(one, flag))
		if err != nil {
			return err
		}
		stop := false
		for rank, text := range sent {
			theirs, flag, err := decodeSum(text)
			if err != nil {
				return fmt.Errorf("evaluate: rank %d: %w", rank, err)
			}
			stop = stop || flag != 0
			all.Add(theirs)
		}
		if err := see(all.Batches); err != nil {
			return err
		}
		if stop && all.Batches < of {
			return errInterrupted
		}
		return nil
	}
	rounds := 0
	if err := r.evaluator.Each(ctx, r.val, func(one infer.Sum) error { rounds++; return share(one) }); err != nil {
		return all, err
	}
	for ; rounds < (of+r.groups()-1)/r.groups(); rounds++ { // rounds of the other ranks
		if r.together() {
			if err := r.evaluator.Again(); err != nil {
				return all, err
			}
		}
		if err := share(infer.Sum{}); err != nil {
			return all, err
		}
	}
	return all, nil
}

// joinLosses returns the losses of all tokens of a batch. Each rank of a context-parallel group passes the part that it
// computed.
func (r *loaded) joinLosses(own []float32) ([]float32, error) {
	t, share := r.env.team, r.spec.Training.sharing()
	mine := make([]byte, 0, 4*len(own))
	for _, x := range own {
		mine = binary.LittleEndian.AppendUint32(mine, math.Float32bits(x))
	}
	sent, err := t.Group.Gather(t.ctx, "the losses of an evaluation's tokens", mine)
	if err != nil {
		return nil, err
	}
	first := t.Rank() / share * share
	all := make([]float32, 0, share*len(own))
	for rank, text := range sent[first : first+share] {
		if len(text) != len(mine) {
			return nil, fmt.Errorf("evaluate: rank %d sent the losses of %d tokens, want %d", first+rank,
				len(text)/4, len(own))
		}
		for ; len(text) > 0; text = text[4:] {
			all = append(all, math.Float32frombits(binary.LittleEndian.Uint32(text)))
		}
	}
	return all, nil
}

// sumBytes is the size of an encoded sum without its lists: a flag, the loss, the counts, and the lengths of the sums
// of numbers and of a record. The sums follow, and then the records.
const sumBytes = 1 + 8*8

func encodeSum(s infer.Sum, flag byte) []byte {
	b := binary.LittleEndian.AppendUint64([]byte{flag}, math.Float64bits(s.NLL))
	for _, n := range []int64{s.Trained, s.Sequences, s.Groups, s.Tokens, int64(s.Batches), int64(len(s.Sums)),
		int64(s.Judged.Width)} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	for _, x := range s.Sums {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	for _, x := range s.Judged.Rows {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func decodeSum(b []byte) (s infer.Sum, flag byte, err error) {
	at := func(i int) uint64 { return binary.LittleEndian.Uint64(b[1+8*i:]) }
	if len(b) < sumBytes || at(6) > uint64(len(b)-sumBytes)/8 || (len(b)-sumBytes)%4 != 0 {
		return s, 0, fmt.Errorf("a sum of %d bytes, want %d and its lists", len(b), sumBytes)
	}
	s = infer.Sum{
		NLL: math.Float64frombits(at(0)), Trained: int64(at(1)), Sequences: int64(at(2)), Groups: int64(at(3)),
		Tokens: int64(at(4)), Batches: int(at(5)), Judged: objective.Judged{Width: int(at(7))},
	}
	n := int(at(6))
	for i := range n {
		s.Sums = append(s.Sums, math.Float64frombits(at(8+i)))
	}
	for rest := b[sumBytes+8*n:]; len(rest) > 0; rest = rest[4:] {
		s.Judged.Rows = append(s.Judged.Rows, math.Float32frombits(binary.LittleEndian.Uint32(rest)))
	}
	return s, b[0], nil
}
