package infer

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
)

// SamplePlan is generation in memory that it shares with other plans, such as those of a training run: an engine of one
// slot.
type SamplePlan struct{ plan *enginePlan }

// PlanSamples plans texts of at most longest tokens, prompt and answer together, beside sequences of at most maxLen.
func PlanSamples(nw session.Network, longest, maxLen int, on graph.Machine) (*SamplePlan, error) {
	nw.Adapter.Dropout = 0 // of training only
	p, err := newEnginePlan(nw, on, engineShape{Slots: 1, MaxLen: maxLen, shared: longest})
	if err != nil {
		return nil, err
	}
	return &SamplePlan{p}, nil
}

// Programs are what the plan binds, in the order in which Bind wants their runners.
func (s *SamplePlan) Programs() []*session.Program { return s.plan.programs() }

// NewSampler makes prompts for a session's model, and once it is bound continues them. Closing it is not needed: memory
// and session are the caller's.
func NewSampler(s *session.Session) (*Generator, error) { return newGenerator(s, "") }

// Bind lets a sampler work in the memory that the plan's programs were bound to.
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

// readTokens takes tokens of one sequence into the cache of an engine of one slot, behind start earlier ones, and
// returns the logits [V] of what follows them. They hold until the next call.
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
