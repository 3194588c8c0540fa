package infer

import (
	"context"
	"fmt"
	"math"
)

// drawTokens runs one round of an engine that draws tokens on its machine: it reads prompts that fit in one step
// together, and draws the next token of every sequence whose prompt was read in an earlier round. Of the options it
// follows temperature and seed alone.
func (e *Engine) drawTokens(ctx context.Context) ([]Token, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ready := e.ready()
	tokens, err := e.drawAfterPrompts(ctx)
	if err != nil {
		return nil, err
	}
	most := e.decode[0].step.tokens
	for len(ready) > 0 {
		now := ready[:min(most, len(ready))]
		ready = ready[len(now):]
		pieces := make([]piece, len(now))
		for i, s := range now {
			pieces[i] = piece{slot: s.slot, start: len(s.prompt) + len(s.ids) - 1, ids: s.ids[len(s.ids)-1:],
				adapter: s.adapter, draw: s.draw()}
		}
		more, err := e.drawn(ctx, smallest(e.decode, len(now)), now, pieces)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, more...)
	}
	return tokens, nil
}

// drawAfterPrompts reads the next piece of the prompt that waits longest. If that is the prompt's end, it also reads
// the ends of other prompts that fit in the same step. It returns the tokens that follow the prompts.
func (e *Engine) drawAfterPrompts(ctx context.Context) ([]Token, error) {
	var of []*sequence
	var pieces []piece
	run := e.prefill[0]
	if run.step.pieces == 1 {
		if s := e.waiting(); s != nil {
			run = smallest(e.prefill, len(s.prompt)-s.read)
		}
	}
	left := run.step.tokens
	for len(pieces) < run.step.pieces {
		s := e.waiting()
		if s == nil || len(pieces) > 0 && len(s.prompt)-s.read > left {
			break
		}
		p := piece{slot: s.slot, start: s.read, adapter: s.adapter,
			ids: s.prompt[s.read:][:min(len(s.prompt)-s.read, left)]}
		if s.read += len(p.ids); s.read < len(s.prompt) {
			return nil, run.forward(p)
		}
		p.draw = s.draw()
		of, pieces, left = append(of, s), append(pieces, p), left-len(p.ids)
	}
	if len(pieces) == 0 {
		return nil, nil
	}
	return e.drawn(ctx, run, of, pieces)
}

// drawn runs a step over a piece of each sequence and takes the tokens that it draws.
func (e *Engine) drawn(ctx context.Context, run *logitsRun, of []*sequence, pieces []piece) ([]Token, error) {
	if err := run.forward(pieces...); err != nil {
		return nil, err
	}
	tokens := make([]Token, len(of))
	if len(e.never) > 0 { // the machine draws of all tokens
		logits, err := run.rowsOf(len(pieces))
		if err != nil {
			return nil, err
		}
		for i, s := range of {
			tokens[i] = s.take(logits[i])
		}
	} else {
		ids, logp, err := run.drawn(len(pieces))
		if err != nil {
			return nil, err
		}
		for i, s := range of {
			tokens[i] = s.takeDrawn(ids[i], float64(logp[i]))
		}
	}
	for i, s := range of {
		e.taken(ctx, s, &tokens[i])
	}
	return tokens, nil
}

// coldest is one over the temperature of a greedy choice: every token but the likeliest gets no weight.
const coldest = 1e30

// draw returns the next random number of a sequence, from 0 up to 1, and one over its temperature.
func (s *sequence) draw() [2]float32 {
	if s.o.Temperature <= 0 {
		return [2]float32{0, coldest}
	}
	return [2]float32{float32(s.sampler.random.Uint64()>>40) / (1 << 24), float32(1 / s.o.Temperature)}
}

// takeDrawn takes a token that the machine drew.
func (s *sequence) takeDrawn(id int32, logp float64) Token {
	t := Token{Slot: s.slot, ID: id, Logprob: logp}
	if id < 0 {
		t.Ended = StoppedError
		t.Err = fmt.Errorf("after %d tokens the logit of token %d is not finite: %w", len(s.prompt)+len(s.ids), -1-id,
			ErrNotFinite)
		return t
	}
	if math.IsNaN(logp) {
		t.Ended, t.Err = StoppedError, fmt.Errorf("the log-probability of token %d is NaN: %w", id, ErrNotFinite)
		return t
	}
	s.sampler.note(id)
	s.goOn(&t)
	return t
}
