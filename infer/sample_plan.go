package infer

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
)

// SamplePlan plans generation in memory that it shares with other plans, such as a training run's: an engine with one
// slot.
type SamplePlan struct{ plan *enginePlan }

// PlanSamples plans texts of at most longest tokens, prompt and answer together, beside training sequences of at most
// maxLen tokens.
func PlanSamples(nw session.Network, longest, maxLen int, on graph.Machine) (*SamplePlan, error) {
	nw.Adapter.Dropout = 0 // dropout is for training only
	p, err := newEnginePlan(nw, on, engineShape{Slots: 1, MaxLen: maxLen, shared: longest})
	if err != nil {
		return nil, err
	}
	return &SamplePlan{p}, nil
}

// Programs returns the programs that the plan binds, in the order in which Bind takes their runners.
func (s *SamplePlan) Programs() []*session.Program { return s.plan.programs() }

// NewSampler makes a Generator that encodes prompts for a session's model; after SamplePlan.Bind it generates too. It
// need not be closed: the caller owns memory and session.
func NewSampler(s *session.Session) (*Generator, error) { return newGenerator(s, "") }

// Bind lets a sampler generate in the memory to which the plan's programs were bound.
func (s *SamplePlan) Bind(g *Generator, m graph.Store, runs []graph.Runner) (err error) {
	if len(runs) != len(s.plan.steps) {
		return fmt.Errorf("bind the samples: %d runners, want %d", len(runs), len(s.plan.steps))
	}
	e := &Engine{Session: g.Session, engineShape: s.plan.engineShape, rules: g.rules, slots: make([]*sequence, 1)}
	if e.prefill, e.decode, err = s.plan.bind(m, runs); err != nil {
		return err
	}
	g.engine, g.shared = e, true
	return nil
}

// readTokens reads tokens of one sequence into the cache of an engine with one slot, after start earlier tokens, and
// returns the logits [V] of the next token. They are valid until the next call.
func (e *Engine) readTokens(ids []int32, start int) ([]float32, error) {
	for {
		run := e.decode[len(e.decode)-1]
		if len(ids) > 1 || start == 0 {
			run = smallest(e.prefill, len(ids))
		}
		p := piece{start: start, ids: ids[:min(len(ids), run.step.tokens)], adapter: -1}
		if len(p.ids) == len(ids) {
			rows, err := run.next(p)
			if err != nil {
				return nil, err
			}
			return rows[0], nil
		}
		if err := run.forward(p); err != nil {
			return nil, err
		}
		start, ids = start+len(p.ids), ids[len(p.ids):]
	}
}
