package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/reward"
)

// samplesOf reports whether a run samples the answers that it trains on, and with which settings.
func samplesOf(s Spec) (objective.Rollouts, bool) {
	o, ok := s.Objective().(objective.Sampled)
	if !ok || s.Dataset.Format == dataset.FormatRollouts {
		return objective.Rollouts{}, false
	}
	return o.Settings(), true
}

// iterationsOf is how many steps a window of sampled answers is trained for.
func iterationsOf(s Spec) int {
	if c, ok := samplesOf(s); ok {
		return c.NumIterations
	}
	return 1
}

// The numbers of answers that are sampled at a time: the most on a GPU and on a CPU, and the fewest that memory makes
// a plan choose.
const (
	mostAnswersGPU = infer.MaxSlots
	mostAnswersCPU = 8
	leastAnswers   = 4
)

// answersAtOnce returns how many answers a rank samples at a time where memory allows it.
func (p *planner) answersAtOnce(c objective.Rollouts) int {
	most := mostAnswersCPU
	if p.On.Capabilities().SeparateHost {
		most = mostAnswersGPU
	}
	return min(most, c.NumGenerations*p.batchSize*p.accumulation)
}

// planAnswers plans the sampling of answers beside the other plans, if the run samples. It halves the number of answers
// that are sampled at a time while the plans exceed the memory limit and those without it do not.
func (p *planner) planAnswers(s *steps, nw session.Network, maxLen int) error {
	c, ok := samplesOf(p.spec)
	if !ok {
		return nil
	}
	if nw.Layout.Sharded() {
		return fmt.Errorf("training.base_sharding: training.objective: %s samples answers on one device, which needs "+
			"the whole base model, and here each device would hold a part of it: set never, or lower the memory by "+
			"batch_size or adapter: qlora", p.spec.Training.Objective)
	}
	alone, err := graph.Need(s.plans()...)
	if err != nil {
		return err
	}
	fits := p.limit < 0 || alone.Total() <= p.limit
	for slots := p.answersAtOnce(c); ; slots = max(slots/2, 1) {
		if s.answers, err = infer.PlanAnswers(nw, slots, maxLen, maxLen, p.On); err != nil {
			return err
		}
		need, err := graph.Need(s.plans()...)
		if err != nil || !fits || p.limit < 0 || need.Total() <= p.limit || slots <= leastAnswers {
			return err
		}
	}
}

// samplingNote returns what the plan reports of sampling; "" = the run samples no answers to train on.
func (p *planner) samplingNote() string {
	c, ok := samplesOf(p.spec)
	plan := p.found.Step.answers
	if !ok || plan == nil {
		return ""
	}
	own, err := plan.Need()
	if err != nil {
		return ""
	}
	cache, err := plan.CacheBytes()
	if err != nil {
		return ""
	}
	step, err := graph.Need(p.found.Step.train.Plan)
	if err != nil {
		return ""
	}
	of := "a step's"
	if p.groups() > 1 {
		of = "a rank's"
	}
	note := fmt.Sprintf("%d of %s %d answers are sampled at a time, in memory that the training step uses at "+
		"another time: %s of sampling (kv cache %s, activations %s), %s of the step", plan.Slots(), of,
		c.NumGenerations*p.batchSize*p.accumulation, session.FormatBytes(own.Arena),
		session.FormatBytes(cache), session.FormatBytes(own.Arena-cache),
		session.FormatBytes(step.Arena))
	if plan.Slots() < p.answersAtOnce(c) {
		note += fmt.Sprintf("; %d at a time would be faster and do not fit", p.answersAtOnce(c))
	}
	return note
}

// sampledWindows deals windows whose answers are sampled when they are dealt, by the weights of that moment. Each set
// of answers is dealt NumIterations times.
type sampledWindows struct {
	*loaderWindows
	objective.Rollouts
	run     *running
	answers *infer.Answerer
	rewards *reward.Rewards
	// environment replies to the model's turns; nil = an answer has one turn.
	environment *reward.Environment
	record      io.WriteCloser // rollouts.jsonl; nil = not recorded

	before Place        // place before the present answers
	dealt  int          // times that the present answers were dealt; 0 = there are none
	step   dataset.Step // window of the present answers; empty = they are not laid out yet
	// rows has the answers for each prompt of the window, by the prompt's row. With dynamic sampling they may be
	// answers to a prompt of a further window.
	rows    map[int]dataset.Row
	windows int             // windows of the loader whose prompts were answered for the present answers
	spent   samplingTimes   // of the present answers
	values  []dataset.Value // numbers of sampling; nil = the answers are dealt again
}

// openAnswers makes the run's windows sample their answers, if it is configured to. The windows must be bound to
// memory.
func (r *running) openAnswers() error {
	c, ok := samplesOf(r.spec)
	if !ok {
		return nil
	}
	w := &sampledWindows{loaderWindows: r.windowsOf(r.loader).(*loaderWindows), Rollouts: c, run: r}
	leads := w.all
	w.all = true
	plan := r.found.Step.answers
	all := r.memory.Runs[len(r.found.Step.budgets()):]
	if r.found.Step.eval != nil {
		all = all[1:]
	}
	var err error
	if w.answers, err = plan.BindAnswers(r.Session, r.memory, all[:len(plan.Programs())]); err != nil {
		return err
	}
	models, err := r.loadRewardModels(context.Background())
	if err != nil {
		return err
	}
	if w.rewards, err = reward.Open(c.Rewards, c.MaxCompletionLength, models); err != nil {
		return err
	}
	w.environment = reward.OpenEnvironment(c.Environment)
	r.answering = w
	r.windows = &rolloutWindows{Windows: w, objective: r.step.Objective.(objective.Sampled), division: r.division,
		leads: leads, still: stillRewards{say: r.env.Logf}}
	return nil
}

// Next deals the present answers once more, or samples new ones.
func (w *sampledWindows) Next() (dataset.Step, error) {
	if w.dealt == 0 || w.step.All == nil {
		w.before = w.loaderWindows.State()
		step, err := w.loaderWindows.Next()
		if err != nil {
			return step, err
		}
		if w.rows == nil {
			err = w.sample(&step)
		} else {
			err = w.skipWindows(&step)
		}
		if err != nil {
			w.rows = nil
			return step, errors.Join(err, w.loaderWindows.Restore(w.before.State))
		}
		if w.step, err = w.lay(step); err != nil {
			return step, err
		}
	}
	step := w.step
	step.All = slices.Clone(step.All)
	for i := range step.All {
		step.All[i].Labels = slices.Clone(step.All[i].Labels)
	}
	step.Values, w.values = w.values, nil
	if w.dealt++; w.dealt >= w.NumIterations {
		w.dealt, w.rows, w.step = 0, nil, dataset.Step{}
	}
	return step, nil
}

// lay lays the answers out in the micro-batches to which the loader dealt their prompts.
func (w *sampledWindows) lay(step dataset.Step) (dataset.Step, error) {
	own := dataset.Step{Rounds: step.Rounds, Progress: step.Progress, Groups: step.Groups, Sequences: step.Sequences}
	for _, b := range step.All {
		var rows []dataset.Row
		for _, row := range b.Rows {
			of, ok := w.rows[row]
			if !ok {
				return step, fmt.Errorf("there are no answers to prompt %d of the data", row+1)
			}
			rows = append(rows, of)
		}
		laid, err := w.Shape().Lay([][]dataset.Row{rows}, w.run.data.PadID)
		if err != nil {
			return step, err
		}
		laid.Epoch, laid.Last = b.Epoch, b.Last
		own.All, own.Trained = append(own.All, laid), own.Trained+laid.TrainedTokens
	}
	return own, nil
}

// Close ends the programs of rewards and closes the record.
func (w *sampledWindows) Close() error {
	err := errors.Join(w.rewards.Close(), w.environment.Close())
	if w.record != nil {
		err = errors.Join(err, w.record.Close())
	}
	return err
}
