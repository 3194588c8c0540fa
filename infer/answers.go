package infer

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// PlanAnswers plans the sampling of answers in memory that it shares with other plans, such as a training run's: an
// engine with some slots. Prompt and answer have at most longest tokens together, the training sequences maxLen.
func PlanAnswers(nw session.Network, slots, longest, maxLen int, on graph.Machine) (*SamplePlan, error) {
	nw.Adapter.Dropout = 0 // dropout is for training only
	p, err := newEnginePlan(nw, on, engineShape{Slots: slots, MaxLen: maxLen, shared: longest, draws: true})
	if err != nil {
		return nil, err
	}
	return &SamplePlan{p}, nil
}

// Slots returns how many sequences the plan generates at a time.
func (s *SamplePlan) Slots() int { return s.plan.Slots }

// CacheBytes returns how much of the arena of an Answerer's plan is its cache.
func (s *SamplePlan) CacheBytes() (int64, error) {
	var plans []*graph.Plan
	for _, p := range s.Programs() {
		plans = append(plans, p.Plan)
	}
	return graph.TransientBytes(plans...)
}

// Need returns the memory of the plan's programs alone, by category.
func (s *SamplePlan) Need() (graph.Bytes, error) { return s.plan.need() }

// Answerer samples answers to many prompts with the weights that its memory holds. It is not safe for concurrent use.
type Answerer struct {
	engine *Engine
	memory graph.Store
}

// BindAnswers makes an Answerer of a plan of PlanAnswers, in the memory to which the plan's programs were bound.
func (s *SamplePlan) BindAnswers(of *session.Session, m graph.Store, runs []graph.Runner) (*Answerer, error) {
	if len(runs) != len(s.plan.steps) {
		return nil, fmt.Errorf("bind the sampler: %d runners, want %d", len(runs), len(s.plan.steps))
	}
	rules, err := rulesOf(of)
	if err != nil {
		return nil, err
	}
	e := &Engine{Session: of, engineShape: s.plan.engineShape, rules: rules,
		slots: make([]*sequence, s.plan.engineShape.Slots)}
	if e.prefill, e.decode, err = s.plan.bind(m, runs); err != nil {
		return nil, err
	}
	return &Answerer{e, m}, nil
}

// Question is a prompt to answer and how.
type Question struct {
	Prompt  Prompt
	Options GenerateOptions
}

// Answer is a sampled answer.
type Answer struct {
	// IDs are the tokens of the answer, the end token included where there is one.
	IDs []int32
	// Logprobs are the log-probabilities with which each token was drawn, at GenerateOptions.Temperature and before
	// top-k and its kin.
	Logprobs []float32
	Text     string // text of the answer, without the end token
	Ended    bool   // the answer has an end token; an answer without one was cut for its length
}

// Answer answers all questions, as many at a time as there are slots. An answer depends on its own question alone. An
// error of stop, which is called after every round, ends the sampling.
func (a *Answerer) Answer(ctx context.Context, questions []Question, stop func() error) ([]Answer, error) {
	// The cache lies in memory that training uses at other times. Attention may multiply keys and values of rows that
	// are not written yet by zero, so these must be finite.
	if err := a.memory.Clear(answersOwner + nn.CacheGroup); err != nil {
		return nil, fmt.Errorf("sample answers: clear the cache: %w", err)
	}
	all := make([]Answer, len(questions))
	of := make([]int, a.engine.Slots()) // the question of each slot
	next := 0
	defer func() {
		for slot := range of {
			a.engine.Stop(slot)
		}
		a.engine.queued = queuedDraws{}
	}()
	for next < len(questions) || a.engine.Busy() {
		for slot := a.engine.Free(); slot >= 0 && next < len(questions); slot = a.engine.Free() {
			q := questions[next]
			q.Options.Logprobs, q.Options.logprobsOfDraw = true, true
			if err := a.engine.Start(slot, "", q.Prompt, q.Options); err != nil {
				return nil, err
			}
			of[slot] = next
			next++
		}
		tokens, err := a.engine.drawTokens(ctx)
		if err != nil {
			return nil, err
		}
		for _, t := range tokens {
			if t.Err != nil {
				return nil, t.Err
			}
			if t.Ended == StoppedText {
				return nil, errors.New("sample answers: a text ended an answer, and its last tokens would be trained")
			}
			to := &all[of[t.Slot]]
			to.IDs, to.Logprobs = append(to.IDs, t.ID), append(to.Logprobs, float32(t.Logprob))
			to.Text += t.Text
			to.Ended = t.Ended == StoppedEnd
		}
		if err := stop(); err != nil {
			return nil, err
		}
	}
	return all, nil
}
