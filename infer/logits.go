package infer

import (
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// logitsStep gives the logits of chosen rows of a batch of pieces of sequences, with the keys and values of earlier
// tokens kept in a cache of a slot for each sequence.
type logitsStep struct {
	session.Program
	logits *graph.Value // f[R,V]
	best   *graph.Value // i32[R], the likeliest token of each row; nil where a piece has several tokens
	prefix string
	logitsShape
}

// logitsShape is the fixed size of a logitsStep.
type logitsShape struct {
	tokens int // of all pieces
	pieces int // at most
	rows   int // of logits
	slots  int // of the cache
	maxLen int // of a sequence: rows of a slot
	shared int // most tokens of a sequence, in memory that is shared with a training step's; 0 = not shared
}

// newLogitsStep plans a step.
//
// A piece's queries see the keys of its slot, from the slot's first row to the token's own. Attention takes such bounds
// as sequences side by side: every second one is a piece, those between are the keys between two pieces' and have no
// queries.
func newLogitsStep(nw session.Network, prefix string, s logitsShape, on graph.Machine) (*logitsStep, error) {
	bounds := 2 * s.pieces
	n, trained, in := nw.Declare(prefix, session.Shape{Tokens: s.tokens, Sequences: bounds - 1, MaxLen: s.maxLen})
	in.Real = nil // a token's numbers do not depend on which others are real
	in.CuK = n.Batch(prefix+"cu_keys", kernel.T(kernel.I32, bounds))
	in.Cache = &nn.Cache{Rows: s.slots * s.maxLen, Tokens: s.maxLen, At: n.Batch(prefix+"cache rows",
		kernel.T(kernel.I32, s.tokens)), Longest: s.shared}
	rows := n.Batch(prefix+"logit rows", kernel.T(kernel.I32, s.rows))
	hidden := nw.Hidden(n, in)                                        // [T,C]
	hidden = n.Apply(kernel.Embedding{Float: nw.Float}, rows, hidden) // [R,C]
	l := &logitsStep{prefix: prefix, logitsShape: s}
	l.logits = n.Apply(kernel.MatMul{TransB: true, FP32Out: true}, hidden, nw.Head(n)) // [R,C] [V,C]ᵀ -> [R,V]
	if cap := nw.Config.LogitCap; cap > 0 {
		l.logits = n.Apply(kernel.SoftCap{Cap: cap}, l.logits)
	}
	outputs := []*graph.Value{l.logits}
	if s.pieces == s.tokens {
		n.RowsApart()
		l.best = n.Apply(kernel.Likeliest{}, l.logits)
		outputs = append(outputs, l.best)
	}
	plan, err := on.Compile(n.Builder, outputs...)
	if err != nil {
		return nil, fmt.Errorf("plan generation: %w", err)
	}
	l.Program = session.Program{Net: n, Trained: trained, Plan: plan}
	return l, nil
}

// logitsRun is a logitsStep with memory.
type logitsRun struct {
	step                                             *logitsStep
	run                                              graph.Runner
	store                                            graph.Store
	ids, positions, cuQ, cuK, places, rows, adapters []int32
	names                                            []string // what Put sends
}

func (l *logitsStep) bind(m graph.Store, run graph.Runner) (*logitsRun, error) {
	r := &logitsRun{step: l, run: run, store: m}
	for name, dst := range map[string]*[]int32{
		"input_ids": &r.ids, "positions": &r.positions, "cu_seqlens": &r.cuQ, "cu_keys": &r.cuK,
		"cache rows": &r.places, "logit rows": &r.rows, session.AdapterRows: &r.adapters,
	} {
		t, err := m.Tensor(l.prefix + name)
		// a model whose layers all go without, a network without several adapters
		if err != nil && (name == "positions" || name == "cache rows" || name == session.AdapterRows) {
			continue
		}
		if err != nil {
			return nil, err
		}
		*dst = t.I32()
		r.names = append(r.names, l.prefix+name)
	}
	slices.Sort(r.names)
	return r, run.Prepare(segmentMain)
}

// segmentMain is the segment of a plan that names none.
const segmentMain = "main"

// piece is the next tokens of a sequence.
type piece struct {
	slot    int
	start   int // tokens of it in the cache
	ids     []int32
	adapter int32 // of session.Network.Several; -1 = none
}

// forward runs pieces of different slots, at most as many tokens as there are in the step. Row i of the logits is that
// of the last token of piece i; of one piece alone the rows are its last tokens.
func (r *logitsRun) forward(pieces ...piece) error {
	clear(r.ids)
	clear(r.positions)
	for t := range r.places {
		r.places[t] = -1
	}
	for t := range r.adapters {
		r.adapters[t] = -1
	}
	at := 0
	for i, p := range pieces {
		first := p.slot * r.step.maxLen
		r.cuQ[2*i], r.cuK[2*i] = int32(at), int32(first)
		for k, id := range p.ids {
			r.ids[at] = id
			if r.positions != nil {
				r.positions[at] = int32(p.start + k)
			}
			if r.adapters != nil {
				r.adapters[at] = p.adapter
			}
			if r.places != nil {
				r.places[at] = int32(first + p.start + k)
			}
			at++
		}
		r.cuQ[2*i+1], r.cuK[2*i+1] = int32(at), int32(first+p.start+len(p.ids))
		if i < len(r.rows) {
			r.rows[i] = int32(at - 1)
		}
	}
	for i := 2 * len(pieces); i < len(r.cuQ); i++ {
		r.cuQ[i], r.cuK[i] = int32(at), r.cuK[i-1]
	}
	for i := len(pieces); i < len(r.rows); i++ {
		r.rows[i] = 0
	}
	if len(pieces) == 1 {
		for i := range r.rows {
			r.rows[i] = int32(max(0, at-len(r.rows)+i))
		}
	}
	if err := r.store.Put(r.names...); err != nil {
		return err
	}
	return r.run.Run(segmentMain)
}

// logits are rows of the vocabulary's size; they hold until the next call of forward.
func (r *logitsRun) logits() (kernel.Tensor, error) { return r.run.Read(r.step.logits) }

// likeliest is the likeliest token of each of the pieces that forward ran, of a step whose pieces are one token each;
// -1 - i where logit i is not finite.
func (r *logitsRun) likeliest(pieces int) ([]int32, error) {
	t, err := r.run.Read(r.step.best)
	if err != nil {
		return nil, err
	}
	return t.I32()[:pieces], nil
}

// next is forward and the logits of each piece's last token, [V] each.
func (r *logitsRun) next(pieces ...piece) ([][]float32, error) {
	if err := r.forward(pieces...); err != nil {
		return nil, err
	}
	return r.rowsOf(len(pieces))
}

// rowsOf are the logits of each of the pieces that forward ran.
func (r *logitsRun) rowsOf(pieces int) ([][]float32, error) {
	t, err := r.logits()
	if err != nil {
		return nil, err
	}
	all, vocab := t.F32(), t.Shape[1]
	rows := make([][]float32, pieces)
	for i := range rows {
		row := i
		if pieces == 1 {
			row = len(r.rows) - 1
		}
		rows[i] = all[row*vocab:][:vocab]
	}
	return rows, nil
}
