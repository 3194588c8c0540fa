package infer

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/tierlora/tierlora/session"
)

// drawTokens runs one round of an engine that draws tokens on its machine. It takes the tokens of the decoding step
// that the round before queued, reads prompts that fit in one step together, and queues the next decoding step. The
// machine computes that step while the host makes the text of this round's tokens. Of the options the engine follows
// temperature and seed alone.
func (e *Engine) drawTokens(ctx context.Context) ([]Token, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	all, err := e.takeQueued(ctx)
	if err != nil {
		return nil, err
	}
	more, err := e.drawAfterPrompts(ctx)
	if err != nil {
		return nil, err
	}
	all = append(all, more...)
	ready, most := e.ready(), e.decode[0].step.tokens
	for len(ready) > 0 {
		if err := e.queueDraws(ready[:min(most, len(ready))]); err != nil {
			return nil, err
		}
		if ready = ready[min(most, len(ready)):]; len(ready) > 0 {
			if more, err = e.takeQueued(ctx); err != nil {
				return nil, err
			}
			all = append(all, more...)
		}
	}
	tokens := make([]Token, len(all))
	for i := range all {
		all[i].of.writeText(&all[i].token)
		if tokens[i] = all[i].token; tokens[i].Ended != "" {
			e.free(all[i].of)
		}
	}
	return tokens, nil
}

// drawnToken is a token of a sequence that has no text yet.
type drawnToken struct {
	of    *sequence
	token Token
}

// queuedDraws is a decoding step that the machine was given and whose tokens are not read yet.
type queuedDraws struct {
	run *logitsRun
	of  []*sequence
}

// queueDraws queues a step that draws the next token of each sequence.
func (e *Engine) queueDraws(of []*sequence) error {
	pieces := make([]piece, len(of))
	for i, s := range of {
		pieces[i] = piece{slot: s.slot, start: len(s.prompt) + len(s.ids) - 1, ids: s.ids[len(s.ids)-1:],
			adapter: s.adapter, draw: s.draw(), shift: s.shift}
	}
	e.queued = queuedDraws{smallest(e.decode, len(of)), of}
	return e.queued.run.forward(pieces...)
}

// takeQueued takes the tokens of the queued step, if there is one. It ignores sequences that left their slots since.
func (e *Engine) takeQueued(ctx context.Context) ([]drawnToken, error) {
	q := e.queued
	if e.queued = (queuedDraws{}); q.run == nil {
		return nil, nil
	}
	return e.takeDraws(ctx, q.run, q.of)
}

// drawAfterPrompts reads the next piece of the prompt that waits longest. If that is the prompt's end, it also reads
// the ends of other prompts that fit in the same step. A prompt that several sequences wait for is read once. It
// returns the tokens that follow the prompts.
func (e *Engine) drawAfterPrompts(ctx context.Context) ([]drawnToken, error) {
	var of []*sequence
	var pieces []piece
	run := e.prefill[0]
	if run.step.pieces == 1 {
		if s := e.waiting(); s != nil {
			run = smallest(e.prefill, len(s.prompt)-s.read)
		}
	}
	left := run.step.tokens
	for len(pieces) < run.step.pieces && len(of) < run.step.rows {
		s := e.waiting()
		if s == nil || len(pieces) > 0 && len(s.prompt)-s.read > left {
			break
		}
		all := []*sequence{s}
		if run.step.spreads {
			all = e.waitingFor(s, run.step.rows-len(of))
		}
		n, err := session.Uncut(s.prompt[s.read:], left, s.images)
		if err != nil {
			return nil, err
		}
		p := piece{slot: s.slot, start: s.read, adapter: s.adapter, ids: s.prompt[s.read:][:n], images: s.images,
			before: s.prompt[:s.read]}
		for _, other := range all {
			other.read += len(p.ids)
		}
		ends := s.read == len(s.prompt)
		if ends {
			p.draw = s.draw()
		}
		for _, other := range all[1:] {
			f := follower{slot: other.slot}
			if ends {
				f.draw = other.draw()
			}
			p.followers = append(p.followers, f)
		}
		if !ends {
			return nil, run.forward(p)
		}
		of, pieces, left = append(of, all...), append(pieces, p), left-len(p.ids)
	}
	if len(pieces) == 0 {
		return nil, nil
	}
	if err := run.forward(pieces...); err != nil {
		return nil, err
	}
	return e.takeDraws(ctx, run, of)
}

// waitingFor returns a sequence and others that wait for the same tokens of the same prompt, at most most of them.
func (e *Engine) waitingFor(s *sequence, most int) []*sequence {
	all := []*sequence{s}
	for _, other := range e.slots {
		if len(all) < most && other != nil && other != s && other.read == s.read && other.adapter == s.adapter &&
			other.images == nil && s.images == nil && slices.Equal(other.prompt, s.prompt) {
			all = append(all, other)
		}
	}
	return all
}

// takeDraws reads the tokens that a step drew for sequences, and decides which of them end.
func (e *Engine) takeDraws(ctx context.Context, run *logitsRun, of []*sequence) ([]drawnToken, error) {
	var ids []int32
	var logp []float32
	var logits [][]float32
	var err error
	if len(e.never) > 0 { // the machine draws of all tokens
		logits, err = run.rowsOf(len(of))
	} else {
		ids, logp, err = run.drawn(len(of))
	}
	if err != nil {
		return nil, err
	}
	var all []drawnToken
	for i, s := range of {
		if e.slots[s.slot] != s {
			continue
		}
		t := Token{}
		if logits != nil {
			t = s.choose(logits[i])
		} else {
			t = s.chooseDrawn(ids[i], float64(logp[i]))
		}
		if t.Ended == "" {
			s.count(&t)
		}
		e.taken(ctx, s, &t)
		all = append(all, drawnToken{s, t})
	}
	return all, nil
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

// chooseDrawn returns a token that the machine drew, or the error that ends the sequence.
func (s *sequence) chooseDrawn(id int32, logp float64) Token {
	t := Token{Slot: s.slot, ID: id, Logprob: logp}
	switch {
	case id < 0:
		t.Ended = StoppedError
		t.Err = fmt.Errorf("after %d tokens the logit of token %d is not finite: %w", len(s.prompt)+len(s.ids), -1-id,
			ErrNotFinite)
	case math.IsNaN(logp):
		t.Ended, t.Err = StoppedError, fmt.Errorf("the log-probability of token %d is NaN: %w", id, ErrNotFinite)
	default:
		s.sampler.note(id)
	}
	return t
}
