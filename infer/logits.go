package infer

import (
	"slices"

	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// logitsStep gives the logits of chosen rows of up to T tokens of one sequence, with the keys and values of
// earlier tokens kept in a cache.
type logitsStep struct {
	session.Program
	logits *graph.Value // f[R,V]
	prefix string
}

// newLogitsStep plans T tokens at a time of a sequence of at most maxLen, and the logits of R of them.
func newLogitsStep(nw session.Network, prefix string, T, R, maxLen int, on graph.Machine) (*logitsStep, error) {
	n, trained, in := nw.Declare(prefix, session.Shape{Tokens: T, Sequences: 1, MaxLen: maxLen})
	in.CuK = n.Batch(prefix+"cu_keys", kernel.T(kernel.I32, 2))
	in.Cache = &nn.Cache{Start: n.Batch(prefix+"cache start", kernel.T(kernel.I32, 1))}
	rows := n.Batch(prefix+"logit rows", kernel.T(kernel.I32, R))
	hidden := nw.Hidden(n, in)                                        // [T,C]
	hidden = n.Apply(kernel.Embedding{Float: nw.Float}, rows, hidden) // [R,C]
	l := &logitsStep{prefix: prefix}
	l.logits = n.Apply(kernel.MatMul{TransB: true, FP32Out: true}, hidden, nw.Head(n)) // [R,C] [V,C]ᵀ -> [R,V]
	if cap := nw.Config.LogitCap; cap > 0 {
		l.logits = n.Apply(kernel.SoftCap{Cap: cap}, l.logits)
	}
	plan, err := on.Compile(n.Builder, l.logits)
	if err != nil {
		return nil, fmt.Errorf("plan generation: %w", err)
	}
	l.Program = session.Program{Net: n, Trained: trained, Plan: plan}
	return l, nil
}

// logitsRun is a logitsStep with memory.
type logitsRun struct {
	step                                  *logitsStep
	run                                   graph.Runner
	store                                 graph.Store
	ids, positions, cuQ, cuK, start, rows []int32
	names                                 []string // what Put sends
}

func (l *logitsStep) bind(m graph.Store, run graph.Runner) (*logitsRun, error) {
	r := &logitsRun{step: l, run: run, store: m}
	for name, dst := range map[string]*[]int32{
		"input_ids": &r.ids, "positions": &r.positions, "cu_seqlens": &r.cuQ, "cu_keys": &r.cuK, "cache start": &r.start, "logit rows": &r.rows,
	} {
		t, err := m.Tensor(l.prefix + name)
		if err != nil && name == "positions" { // a model whose layers all go without has none
			continue
		}
		if err != nil {
			return nil, err
		}
		*dst = t.I32()
		r.names = append(r.names, l.prefix+name)
	}
	slices.Sort(r.names)
	return r, nil
}

// forward runs up to T tokens that follow start earlier ones. The logits are those of the last len(rows)
// tokens.
func (r *logitsRun) forward(ids []int32, start int) error {
	clear(r.ids)
	copy(r.ids, ids)
	for t := range r.positions {
		if r.positions[t] = 0; t < len(ids) {
			r.positions[t] = int32(start + t)
		}
	}
	r.cuQ[0], r.cuQ[1] = 0, int32(len(ids))
	r.cuK[0], r.cuK[1] = 0, int32(start+len(ids))
	r.start[0] = int32(start)
	for i := range r.rows {
		r.rows[i] = int32(max(0, len(ids)-len(r.rows)+i))
	}
	if err := r.store.Put(r.names...); err != nil {
		return err
	}
	return r.run.Run("main")
}

func (r *logitsRun) logits() (kernel.Tensor, error) { return r.run.Read(r.step.logits) }

// next is forward and the last token's logits [V].
func (r *logitsRun) next(ids []int32, start int) ([]float32, error) {
	if err := r.forward(ids, start); err != nil {
		return nil, err
	}
	t, err := r.logits()
	if err != nil {
		return nil, err
	}
	return t.F32(), nil
}
