package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/fit"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
)

// opened is a run whose base model is open on its machine. No row has been read yet.
type opened struct {
	*session.Session
	spec Spec
	env  Env
	// rewardModels are the planned reward models by the index of their rewards; nil = the run has none.
	rewardModels map[int]*rewardModel
}

// inputs is an opened run with its rows and their division into windows of micro-batches.
type inputs struct {
	opened
	batches
	windows Windows // windows that the loop trains on
}

// planner is a run whose rows are read, with the plans of its steps: the size and offset of every buffer.
type planner struct {
	inputs
	sampler *samples // nil = the run makes no samples
	limit   int64    // memory limit in bytes; -1 = not known
	// known has the log-probabilities of the reference once they are computed; nil = each step computes them, or the
	// objective has no reference.
	known *objective.ReferenceValues
	found fit.Choice[steps]
}

// prepared is a run before it allocates memory: everything is read and planned.
type prepared struct {
	planner
	at *whereabouts // nil = nothing watches the run
}

// steps are the plans of a run. They share its memory.
type steps struct {
	train   *step.Step           // plan for the largest token budget
	smaller []*step.Step         // plans for the other token budgets, ascending
	eval    *infer.EvalStep      // nil = no validation rows
	refer   *infer.ReferenceStep // nil = nothing of a reference is computed before training
	answers *infer.SamplePlan    // sampling of the answers that are trained; nil = none
	sample  *infer.SamplePlan    // nil = no samples
}

// budgets returns the training steps, the largest first.
func (s steps) budgets() []*step.Step { return append([]*step.Step{s.train}, s.smaller...) }

// calls returns the number of kernel calls of a training step.
func (s steps) calls() (n int) {
	for _, calls := range s.train.Plan.Calls() {
		n += calls
	}
	return n
}

func (s steps) programs() []*session.Program {
	var all []*session.Program
	for _, t := range s.budgets() {
		all = append(all, &t.Program)
	}
	if s.eval != nil {
		all = append(all, &s.eval.Program)
	}
	if s.refer != nil {
		all = append(all, &s.refer.Program)
	}
	if s.answers != nil {
		all = append(all, s.answers.Programs()...)
	}
	if s.sample != nil {
		all = append(all, s.sample.Programs()...)
	}
	return all
}

func (s steps) plans() []*graph.Plan {
	var all []*graph.Plan
	for _, program := range s.programs() {
		all = append(all, program.Plan)
	}
	return all
}

// prepareOn reads model and data on a machine, and plans. It closes the machine if it fails.
func prepareOn(ctx context.Context, s Spec, env Env, on graph.Machine) (*prepared, error) {
	return prepareAt(ctx, s, env, on, nil)
}

// prepareAt does what prepareOn does, and records in at the phase that the run is in.
func prepareAt(ctx context.Context, s Spec, env Env, on graph.Machine, at *whereabouts) (*prepared, error) {
	p, err := openOn(ctx, s, env, on)
	if err != nil {
		return nil, err
	}
	p.at = at
	return p.planned(ctx)
}

// open opens the model on the configured device. It reads no row.
func open(ctx context.Context, s Spec, env Env) (*prepared, error) {
	on, err := session.OpenMachine(s.Device, s.Training.Numbers(), env.Env)
	if err != nil {
		return nil, err
	}
	return openOn(ctx, s, env, on)
}

// openOn opens the model on an open machine.
func openOn(ctx context.Context, s Spec, env Env, on graph.Machine) (*prepared, error) {
	base, err := session.OpenOn(ctx, s.Session(), env.Env, on)
	if err != nil {
		return nil, err
	}
	p := &prepared{}
	p.opened = opened{Session: base, spec: s, env: env}
	if err = p.checkTokens(); err == nil {
		err = p.openReferenceAdapter()
	}
	if err == nil {
		err = p.openTeacher(ctx)
	}
	if err == nil {
		err = p.openRewardModels(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, p.closeRewardModels(), base.Close())
	}
	_, sampled := samplesOf(s)
	p.batches = batches{division: divisionOf(s, env), evenCost: tokenCost * base.Base.Config.HiddenSize, pieces: 1,
		sampled: sampled}
	return p, nil
}

// planned reads the data and plans. It closes the run if that fails.
func (p *prepared) planned(ctx context.Context) (*prepared, error) {
	if err := p.plan(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close stops reading a stream and closes the session.
func (p *inputs) Close() error {
	if w, ok := p.windows.(io.Closer); ok {
		w.Close() //nolint:errcheck // write errors are reported as they occur
	}
	if p.loader != nil {
		p.loader.Close()
	}
	if p.Net.Reference != nil {
		p.Net.Reference.Close() //nolint:errcheck // read only
	}
	p.closeRewardModels() //nolint:errcheck // read only
	return p.Session.Close()
}

func (p *prepared) plan(ctx context.Context) error {
	if err := p.env.team.same("the configuration", p.configured()); err != nil {
		return err
	}
	if err := p.checkSharing(p.sharing); err != nil {
		return err
	}
	p.at.enter(phaseData)
	if err := p.readData(ctx); err != nil {
		return err
	}
	p.at.enter(phasePlan)
	var err error
	if p.total, err = stepsOf(p.spec.Training, p.loader, p.window()); err != nil {
		return err
	}
	if p.spec.Training.MaxSteps == 0 {
		p.total *= iterationsOf(p.spec)
	}
	if err := p.spec.Training.cadence(p.loader); err != nil {
		return err
	}
	if p.sampler, err = p.openSamples(ctx); err != nil {
		return err
	}
	if p.sampler != nil {
		p.longest = p.sampler.longest
	}
	z, err := p.Split(max(1, p.env.pieces))
	if err != nil {
		return err
	}
	if n, most := z.Train.MaxLen, p.Base.Config.LongestRow(); n > most {
		return fmt.Errorf("dataset.max_length: sequences of %d tokens are longer than the model's %d positions", n,
			most)
	}
	if t := p.Net.Teacher; t != nil {
		if err := t.CheckLength(z.Train.MaxLen); err != nil {
			return fmt.Errorf("distill.teacher: %w", err)
		}
	}
	if err := p.choosePrecompute(); err != nil {
		return err
	}
	if err := p.fit(); err != nil {
		return err
	}
	p.windows = p.windowsOf(p.loader)
	if o, ok := p.spec.Objective().(objective.Sampled); ok {
		p.windows = p.scored(o) // a run that samples replaces them when its memory is there
	}
	if p.env.Windows != "" {
		if p.windows, err = p.openRecorded(p.env.Windows); err != nil {
			return err
		}
	}
	p.report.Batches = p.loader.Report()
	return ctx.Err()
}

func (p *inputs) readData(ctx context.Context) error {
	defer graph.StartRange("read data").End()
	if p.env.team != nil {
		return p.readShared(ctx)
	}
	var err error
	if p.data, p.report, err = p.readSet(ctx); err != nil {
		return err
	}
	if p.loader, err = p.trainLoader(p.data, p.spec.Training.BatchSize); err != nil || p.world == 1 {
		return err
	}
	p.loader, err = p.shared(p.loader, 0)
	return err
}

// tokenCost is the cost of a token without attention, in pairs of tokens, for each number of a hidden state. A layer of
// hidden size C has some 12 C x C weights: 48 C x C operations a token, forward and backward; attention has 7 C for
// each pair of tokens, and runs slightly slower per operation.
const tokenCost = 6

// readSet reads the rows.
func (p *inputs) readSet(ctx context.Context) (*dataset.Set, *dataset.Report, error) {
	data := p.spec.Data()
	data.EndOfEpoch = func(epoch int, r *dataset.Report) { p.env.Newsf("end of epoch %d: %s", epoch, r) }
	set, report, err := p.LoadData(ctx, data, p.spec.Seed)
	if err == nil {
		err = objective.CheckRows(p.spec.Training.Objective, p.spec.Objective(), report)
	}
	if sampled, ok := samplesOf(p.spec); err == nil && ok {
		err = checkPrompts(set, sampled)
	}
	if err == nil {
		p.noted, err = sharePrompts(p.spec, set, sharingLayers(p.Session))
	}
	if err == nil {
		err = objective.CheckData(ctx, p.spec.Objective(), set, p.Base.Tokenizer,
			p.Base.Config.VocabSize)
	}
	return set, report, err
}

// NeedsMaxSteps is the problem of a stream without training.max_steps.
const NeedsMaxSteps = "training.max_steps: is 0, and dataset.streaming does not know how many rows an epoch has: " +
	"write how many steps to make"

// stepsOf returns the number of optimizer steps with window batches each: max_steps, or as many as the epochs have.
func stepsOf(c Config, l *dataset.Loader, window int) (int, error) {
	if c.MaxSteps > 0 {
		return c.MaxSteps, nil
	}
	if l.Len() == 0 {
		return 0, errors.New(NeedsMaxSteps)
	}
	whole := int(math.Floor(c.Epochs))
	n := l.Steps(whole, c.GradientAccumulationSteps)
	if part := c.Epochs - float64(whole); part > 0 {
		windows := (l.Batches(whole) + window - 1) / window
		n += int(math.Ceil(part * float64(windows)))
	}
	if n == 0 {
		return 0, fmt.Errorf("training.epochs: %v of %d rows makes no step", c.Epochs, l.Len())
	}
	return n, nil
}

// cadence converts evaluations and checkpoints per epoch into numbers of steps between them.
func (c *Config) cadence(l *dataset.Loader) error {
	for _, each := range []struct {
		key string
		n   int
		to  *int
	}{{"evals_per_epoch", c.EvalsPerEpoch, &c.EvalSteps}, {"saves_per_epoch", c.SavesPerEpoch, &c.SaveSteps}} {
		if each.n == 0 {
			continue
		}
		if l.Len() == 0 {
			return fmt.Errorf("training.%s: the rows of dataset.streaming are not counted, so an epoch has no "+
				"known number of steps: give steps instead", each.key)
		}
		*each.to = max(1, (l.Steps(1, c.GradientAccumulationSteps)+each.n-1)/each.n)
	}
	return nil
}

// lostRows returns one line about the part of the data that the run does not use; "" = it uses all.
func lostRows(r *dataset.Report) string {
	var parts []string
	if n := r.DroppedRows(); n > 0 {
		parts = append(parts, fmt.Sprintf("%d dropped", n))
	}
	if n := r.Truncated.Count; n > 0 {
		parts = append(parts, fmt.Sprintf("%d cut at max_length", n))
	}
	if parts == nil {
		return ""
	}
	return fmt.Sprintf("of %d rows %s", r.Rows, strings.Join(parts, ", "))
}
