package infer

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
)

// Rounds runs the steps of an Engine without tokenizer and sequences, for benchmarks.
type Rounds struct {
	engineShape
	memory          *session.Memory
	prefill, decode []*logitsRun
}

// NewRounds allocates an engine's memory for a network, whose weights fill loads.
func NewRounds(nw session.Network, on graph.Machine, slots, maxLen int, fill func(p *session.Program,
	m graph.Store) error) (*Rounds, error) {
	r := &Rounds{engineShape: engineShape{Slots: slots, MaxLen: maxLen}}
	p, err := newEnginePlan(nw, on, r.engineShape)
	if err != nil {
		return nil, err
	}
	if r.memory, err = session.Hold(on, func(m graph.Store) error {
		return fill(p.programs()[0], m)
	}, p.programs()...); err != nil {
		return nil, err
	}
	if r.prefill, r.decode, err = p.bind(r.memory, r.memory.Runs); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Close releases the memory.
func (r *Rounds) Close() error { return r.memory.Close() }

// Bytes returns the planned memory in bytes, by category.
func (r *Rounds) Bytes() graph.Bytes { return r.memory.Bytes() }

// Read reads a whole prompt into a slot and waits for the logits after it.
func (r *Rounds) Read(ctx context.Context, slot int, ids []int32) error {
	for at := 0; at < len(ids); {
		if err := ctx.Err(); err != nil {
			return err
		}
		run := smallest(r.prefill, len(ids)-at)
		p := piece{slot: slot, start: at, ids: ids[at:min(len(ids), at+run.step.tokens)], adapter: -1}
		if at += len(p.ids); at < len(ids) {
			if err := run.forward(p); err != nil {
				return err
			}
		} else if _, err := run.next(p); err != nil {
			return err
		}
	}
	return nil
}

// pieces returns one token for each of the first n slots, each of which has held earlier tokens.
func (r *Rounds) pieces(n, held int) ([]piece, error) {
	if n < 1 || n > r.Slots || held < 0 || held >= r.MaxLen {
		return nil, fmt.Errorf("a token of %d sequences after %d others: there are %d slots of %d tokens", n, held,
			r.Slots, r.MaxLen)
	}
	all := make([]piece, n)
	for i := range all {
		all[i] = piece{slot: i, start: held, ids: []int32{int32(i)}, adapter: -1}
	}
	return all, nil
}

// Next computes the likeliest next token of each of the first n slots, each of which has held earlier tokens.
func (r *Rounds) Next(n, held int) error {
	all, err := r.pieces(n, held)
	if err != nil {
		return err
	}
	for len(all) > 0 {
		run := smallest(r.decode, len(all))
		now := all[:min(len(all), run.step.tokens)]
		if err := run.forward(now...); err != nil {
			return err
		}
		ids, err := run.likeliest(len(now))
		if err != nil {
			return err
		}
		for i, id := range ids {
			if id < 0 {
				return fmt.Errorf("slot %d: %w", now[i].slot, ErrNotFinite)
			}
		}
		all = all[len(now):]
	}
	return nil
}

// Again repeats the step that Next ran last for n slots and waits for the last repetition.
func (r *Rounds) Again(n, times int) error {
	run := smallest(r.decode, n)
	for range times {
		if err := run.run.Run(segmentMain); err != nil {
			return err
		}
	}
	_, err := run.logits()
	return err
}

// Logits computes the next token of each of the first n slots, each of which has held earlier tokens, and calls see
// with each slot's logits. The logits are valid until see returns.
func (r *Rounds) Logits(n, held int, see func(slot int, row []float32) error) error {
	all, err := r.pieces(n, held)
	if err != nil {
		return err
	}
	for len(all) > 0 {
		run := smallest(r.decode, len(all))
		now := all[:min(len(all), run.step.tokens)]
		logits, err := run.next(now...)
		if err != nil {
			return err
		}
		for i, row := range logits {
			if err := see(now[i].slot, row); err != nil {
				return err
			}
		}
		all = all[len(now):]
	}
	return nil
}

// TimeCalls runs the calls of the step that Next ran last for n slots one after the other, and reports each call's time
// to see.
func (r *Rounds) TimeCalls(n int, see func(graph.CallTime)) error {
	t, ok := smallest(r.decode, n).run.(graph.CallTimer)
	if !ok {
		return errors.New("this machine cannot time calls")
	}
	return t.TimeCalls(kernel.Content{}, []string{segmentMain}, see)
}
