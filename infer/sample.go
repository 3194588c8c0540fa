package infer

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
)

// SamplePlan is generation in memory that it shares with other plans, such as those of a training run.
type SamplePlan struct {
	prefill, decode *logitsStep
	maxLen          int
}

// PlanSamples plans texts of at most maxLen tokens, prompt and answer together.
func PlanSamples(nw session.Network, maxLen int, on graph.Machine) (*SamplePlan, error) {
	nw.Adapter.Dropout = 0 // of training only
	s := &SamplePlan{maxLen: maxLen}
	var err error
	if s.prefill, err = newLogitsStep(nw, "sample prompt ", prefillTokens, 1, maxLen, on); err != nil {
		return nil, err
	}
	s.decode, err = newLogitsStep(nw, "sample ", 1, 1, maxLen, on)
	return s, err
}

// Programs are what the plan binds, in the order in which Bind wants their runners.
func (s *SamplePlan) Programs() []*session.Program {
	return []*session.Program{&s.prefill.Program, &s.decode.Program}
}

// NewSampler makes prompts for a session's model, and once it is bound continues them. Closing it is not needed: memory
// and session are the caller's.
func NewSampler(s *session.Session) (*Generator, error) { return newGenerator(s, "") }

// Bind lets a sampler work in the memory that the plan's programs were bound to.
func (s *SamplePlan) Bind(g *Generator, m graph.Store, runs []graph.Runner) (err error) {
	if len(runs) != 2 {
		return fmt.Errorf("bind the samples: %d runners, want 2", len(runs))
	}
	if g.prefill, err = s.prefill.bind(m, runs[0]); err != nil {
		return err
	}
	if g.decode, err = s.decode.bind(m, runs[1]); err != nil {
		return err
	}
	g.maxLen, g.shared = s.maxLen, true
	return nil
}
