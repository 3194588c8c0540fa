package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/replay"
	"github.com/tierlora/tierlora/train/step"
)

// ConfigFile is the name of the effective configuration in a run's output folder. Training with it again gives the same
// adapter.
const ConfigFile = "config.yaml"

// startAt trains on a goroutine of its own, so that a driver call that never returns cannot block the caller.
func startAt(ctx context.Context, s Spec, env Env, open opener) (Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type ending struct {
		result Result
		err    error
	}
	at := &whereabouts{cancel: cancel, seen: env.phases, interrupted: env.Interrupted, team: env.team}
	hung, ended := make(chan error, 1), make(chan ending, 1)
	defer at.stopEarly()()
	rescue.Go(func() {
		e := ending{err: errors.New("an observer ended the run's goroutine")}
		defer func() { ended <- e }()
		defer rescue.Catch(&e.err)
		e.result, e.err = run(ctx, s, env, open, at, hung)
	})
	var e ending
	select {
	case err := <-hung:
		return at.giveUp(), err
	case e = <-ended:
	}
	if doing := at.endedIn(); doing != "" && errors.Is(e.err, context.Canceled) {
		e.err = &Stopped{string(doing)}
	}
	return e.result, e.err
}

func run(ctx context.Context, s Spec, env Env, open opener, at *whereabouts, hung chan<- error) (_ Result, err error) {
	at.enter(phaseOpen)
	give, err := take(s, env, at)
	if err != nil {
		return Result{}, err
	}
	defer func() {
		if gerr := give(); err == nil {
			err = gerr
		}
	}()
	on, err := open()
	if err != nil {
		return Result{}, err
	}
	defer at.watch(on, s.Training, env, hung)()
	leave, err := env.team.join(on)
	if err != nil {
		return Result{}, errors.Join(err, on.Close())
	}
	defer leave()
	p, err := prepareAt(ctx, s, env, on, at)
	if err != nil {
		return Result{}, err
	}
	defer p.Close() //nolint:errcheck // read only
	return p.train(ctx)
}

func (p *prepared) train(ctx context.Context) (Result, error) {
	if p.env.team.leads() {
		// of a process that was killed; what is left harms nothing.
		atomicfile.Clear(p.spec.OutputDir, p.ownFiles()...) //nolint:errcheck
	}
	p.env.report(strings.TrimRight(p.report.String(), "\n"), p.report.Brief())
	if p.env.Quiet { // the report, which says it too, is not printed
		for _, warning := range p.report.Warnings() {
			p.env.Logf("warning: %s", warning)
		}
	}
	if lost := lostRows(p.report); p.env.Quiet && lost != "" {
		p.env.Logf("data: %s", lost)
	}
	r, err := p.start(ctx)
	for try := 0; errors.Is(err, graph.ErrOutOfMemory) && !errors.Is(err, graph.ErrDeviceLost) && try < shrinkTries; try++ {
		if err = p.fitAgain(err); err == nil {
			r, err = p.start(ctx)
		}
	}
	if errors.Is(err, graph.ErrOutOfMemory) {
		err = fmt.Errorf("%w: %s refused %d plans, each smaller than the one before: %w", session.ErrDoesNotFit, p.On.Name(), shrinkTries+1, err)
	}
	if err != nil {
		return Result{}, err
	}
	// before memory is given back that an exchange with the others may be in.
	if err = rescue.Do(func() error { return r.loop(ctx) }); err != nil {
		err = p.env.team.cause(r.recorder.step()+1, err)
		p.env.team.leave(err)
	}
	err = r.explain(err)
	if eerr := r.end(err); err == nil { // what fails after a failure, as on a lost device, says nothing new
		err = eerr
	}
	return r.recorder.result, err
}

// loaded is a run with its memory allocated: base model and adapter are loaded, and the plans are ready.
type loaded struct {
	*prepared
	memory    *session.Memory
	step      *step.Step
	pipeline  *step.Pipeline
	evaluator *infer.Evaluator // nil = no validation rows
	recorder  *recorder
	result    *Result // the recorder's result
	saver     *saver
	async     bool       // queued work runs while the host continues
	reference *Reference // curve of expect.reference; nil = none
	subject   Subject    // subject of the run, set with reference, without the base model's hash
}

// evaluating is a loaded run that evaluates the validation rows, makes samples and asks tasks between its steps.
type evaluating struct {
	loaded
	answering *sampledWindows // samples the answers that the run trains on; nil = the run samples none
}

// running is a run that makes its steps.
type running struct {
	evaluating
	schedule  func(step int) float64 // learning rate of a step, counted from 0
	pending   *pendingWindow         // the queued step whose results are not read yet; nil = none
	ahead     *pendingWindow         // the step whose gradients are queued behind pending; nil = none
	watch     *gradientWatch         // nil = the run is past its first steps
	stopAsked bool                   // the results of a step say that a rank must stop

	baseFinite bool // the base model was searched for values that are not finite
}

// start allocates the memory, loads the base model and the adapter, and resumes if configured.
func (p *prepared) start(ctx context.Context) (_ *running, err error) {
	c := p.spec.Training
	from, err := p.begin()
	if err != nil {
		return nil, err
	}
	plan := p.planReport()
	p.env.report(plan.String(), append(plan.brief(), p.notesOnPEFT()...))
	for _, note := range p.notesOnPEFT() {
		if p.env.Quiet { // the plan reports it otherwise
			p.env.Logf("%s", note)
		}
	}
	r := &running{schedule: Schedules[c.LRScheduler](c, p.total)}
	r.loaded = loaded{prepared: p, step: p.found.Step.train, async: p.On.Capabilities().Async}
	r.recorder = &recorder{at: p.at, config: c, total: p.total, world: p.world, logf: p.env.Logf, precision: p.On.Precision(),
		observers: observers{&metricsFile{}}, objective: r.step.Objective}
	r.result = &r.recorder.result
	if err := r.openReference(); err != nil {
		return nil, err
	}
	p.at.enter(phaseLoad)
	if err := p.resumeStart(from); err != nil {
		return nil, err
	}
	if from == "" && p.Net.Start.ReadsInputs() {
		if err := p.learnInputs(ctx); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil && r.memory != nil {
			err = errors.Join(err, r.memory.Close())
		}
	}()
	if err = p.allHave(r.hold(ctx)); err != nil {
		return nil, err
	}
	if r.recorder.scale, err = r.step.StartScaling(r.memory, c.LossScale); err != nil {
		return nil, err
	}
	p.record()
	if err := r.openAnswers(); err != nil {
		return nil, err
	}
	r.saver = &saver{prepared: p, memory: r.memory, step: r.step, pipeline: r.pipeline, recorder: r.recorder, saved: -1}
	if err = r.saver.loadReference(); err != nil {
		return nil, err
	}
	if err = r.precompute(ctx); err != nil {
		return nil, err
	}
	p.at.enter(phaseResume)
	if from != "" {
		err = r.saver.restore(from)
	} else {
		err = r.saver.initAdapter()
	}
	if err != nil {
		return nil, err
	}
	if err = r.saver.sameReference(from); err != nil {
		return nil, err
	}
	r.watch = watchGradients(r.memory, r.step.Program, r.recorder.progress.Optimizer)
	if err := r.compareRanks(); err != nil {
		return nil, err
	}
	session.FreeGarbage(r.memory.Bytes().Total()) // the buffers that the adapter was initialised or read with
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.at.enter(phaseSteps) // from here on the run has a state to save
	return r, r.announce()
}

// begin finds the checkpoint to resume from, "" = none, and checks disk space for new ones. Rank 0 does so for all
// ranks.
func (p *prepared) begin() (from string, err error) {
	if p.env.team.leads() {
		if from, err = resumeFrom(p.spec.Training.Resume, p.spec.OutputDir, p.ownFiles(), p.env); err != nil {
			return "", err
		}
		p.at.taken(p.spec.OutputDir, p.env)
		if err := p.room(from); err != nil {
			return "", err
		}
	}
	return p.env.team.leaders("the checkpoint to resume from", from)
}

// hold allocates the memory, loads the base model and prepares the plans.
func (r *loaded) hold(ctx context.Context) (err error) {
	if r.memory, err = r.Hold(ctx, r.found.Step.programs()...); err != nil {
		r.memory = nil
		return err
	}
	r.at.enter(phaseCapture)
	return r.bind()
}

// allHave returns err, or an out-of-memory error if any rank had one: then all ranks shrink or stop.
func (p *prepared) allHave(err error) error {
	refused := errors.Is(err, graph.ErrOutOfMemory) && !errors.Is(err, graph.ErrDeviceLost)
	if p.env.team == nil || err != nil && !refused {
		return err
	}
	any, terr := p.env.team.anyOf("whether the memory was there", refused)
	switch {
	case terr != nil:
		return errors.Join(err, terr)
	case any && err == nil:
		return fmt.Errorf("the device of another rank: %w", graph.ErrOutOfMemory)
	}
	return err
}

// bind prepares the training step and the evaluation.
func (r *loaded) bind() error {
	var err error
	if r.pipeline, err = step.NewPipeline(r.found.Step.budgets(), r.memory, r.memory.Runs, r.On, r.env.team.rank(), r.accumulate(), r.spec.Seed); err != nil {
		return err
	}
	if eval := r.found.Step.eval; eval != nil {
		if r.evaluator, err = eval.Bind(r.memory, r.memory.Runs[len(r.found.Step.budgets())]); err != nil {
			return err
		}
		if r.spec.Training.sharing() > 1 {
			r.evaluator.Share(r.env.team.rank()%r.spec.Training.sharing(), r.joinLosses)
		}
	}
	if plan := r.found.Step.sample; plan != nil {
		return plan.Bind(r.sampler.Generator, r.memory, r.memory.Runs[len(r.memory.Runs)-len(plan.Programs()):])
	}
	return nil
}

// announce calls Start of the observers and writes the first files of a run. The metrics come first, because they mark
// the folder as a run's.
func (r *loaded) announce() error {
	if !r.env.team.leads() {
		r.recorder.observers = nil
		r.result.MaxSteps, r.result.HeldBytes = r.total, r.memory.Bytes().Total()
		return nil
	}
	if r.spec.Training.GradNormSteps > 0 {
		r.recorder.observers = append(r.recorder.observers, &gradNormsFile{})
	}
	if len(r.spec.Training.SamplePrompts) > 0 {
		r.recorder.observers = append(r.recorder.observers, newSamplesFile(r.env.Logf))
	}
	if r.sampled {
		r.recorder.observers = append(r.recorder.observers, newCompletionsFile(r.env.Logf))
	}
	for _, name := range r.spec.Training.ReportTo {
		r.recorder.observers = append(r.recorder.observers, Observers[name](r.opened))
	}
	r.recorder.observers = append(r.recorder.observers, r.env.Observers...)
	step, held := r.recorder.step(), r.memory.Bytes().Total()
	r.result.MaxSteps, r.result.Resumed, r.result.Steps, r.result.HeldBytes, r.result.Losses = r.total, step, step, held, r.recorder.progress.Losses
	r.result.EvalBefore = r.recorder.progress.EvalBefore
	r.result.Skipped = r.recorder.progress.Skipped
	r.recorder.uses(r.partPlan(step + 1))
	info := RunInfo{Dir: r.spec.OutputDir, Total: r.total, Done: step, History: r.recorder.state.LogHistory, HeldBytes: held, Numbers: r.step.Objective.Numbers()}
	if err := r.recorder.observers.each(func(o Observer) error { return o.Start(info) }); err != nil {
		return err
	}
	if err := r.writeDataReport(); err != nil {
		return err
	}
	// A finished run keeps the plan that it trained with, whose limit was the free memory at that time.
	if step < r.total || !exists(r.spec.OutputDir, PlanReportFile) {
		if err := r.writePlanReport(); err != nil {
			return err
		}
	}
	if r.env.Config == nil {
		return nil
	}
	if err := atomicfile.Write(filepath.Join(r.spec.OutputDir, ConfigFile), r.env.Config); err != nil {
		return fmt.Errorf("save the configuration: %w", err)
	}
	return nil
}

// finish ends a run that did all its steps: it writes the adapter to output_dir and checks the expectations.
func (r *loaded) finish(ctx context.Context) error {
	r.recorder.sum()
	if !r.env.team.leads() {
		return nil
	}
	r.at.enter(phaseFinish)
	if res := r.result; res.StepMs != nil && res.DataMs != nil && !r.sampled { // sampling is no loading of data
		if slow := slowData(*res.DataMs, res.StepMs.Median, len(r.recorder.data.ms), r.async, r.data.Streaming()); slow != "" {
			r.env.Logf("%s", slow)
		}
	}
	last, err := r.lastWeights()
	if err != nil {
		return err
	}
	if err := r.loadBest(); err != nil {
		return err
	}
	sums, err := r.saver.writeFolder()
	if err != nil {
		return err
	}
	r.result.AdapterDir = r.spec.OutputDir
	m, err := r.manifest(ctx)
	m.EndedEarly, m.ResultStep = r.result.EndedEarly, r.result.ResultStep
	if err == nil {
		m.Files, err = r.withCheckpoint(sums)
		if m.ResultStep > 0 {
			m.LastAdapter = cmp.Or(last, m.Files[path.Join(filepath.Base(r.result.Checkpoint), adapter.WeightsFile)])
		}
	}
	if err == nil {
		err = m.Write(r.spec.OutputDir)
	}
	if err != nil {
		return err
	}
	return r.judge(m.Base)
}

// lastWeights returns the SHA-256 of a whole model's weights after the last step, in the types of the result, if the
// result may have the weights of another step; "" otherwise. A checkpoint has an adapter's, but not a model's.
func (r *loaded) lastWeights() (string, error) {
	if !r.whole() || !r.spec.Training.LoadBestModelAtEnd {
		return "", nil
	}
	return r.saver.weightsSum()
}

// writeFolder writes the adapter, or the whole model, to output_dir and returns the files' SHA-256.
func (s *saver) writeFolder() (map[string]string, error) {
	if s.whole() {
		return s.writeModel()
	}
	files, err := s.adapterFiles()
	if err != nil {
		return nil, err
	}
	vectors, err := s.vectorFiles()
	if err != nil {
		return nil, err
	}
	maps.Copy(files, vectors)
	sums := replay.Sums(files)
	// The weights last: their presence marks the adapter as complete.
	for _, name := range []string{adapter.ConfigFile, adapter.WeightsFile} {
		if err := atomicfile.Write(filepath.Join(s.spec.OutputDir, name), files[name]); err != nil {
			return nil, fmt.Errorf("save the adapter: %w", err)
		}
		delete(files, name)
	}
	for name, data := range files {
		path := filepath.Join(s.spec.OutputDir, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = atomicfile.Write(path, data)
		}
		if err != nil {
			return nil, fmt.Errorf("save the tokenizer: %w", err)
		}
	}
	return sums, nil
}

// judge checks the expectations; base is the hash of the base weights.
func (r *loaded) judge(base string) error {
	p := r.recorder.progress
	o := Outcome{Losses: p.Losses, HeldBytes: r.result.HeldBytes, EvalBefore: p.EvalBefore, EvalLoss: p.EvalLoss,
		Reference: r.reference, Subject: r.subject,
		Numbers: lastNumbers(r.recorder.state.LogHistory, r.spec.Expect.bounded())}
	o.Subject.Base = base
	var err error
	if r.result.Expect, err = r.spec.Expect.Judge(o); err != nil {
		return err
	}
	for _, j := range r.result.Expect {
		if j.Comparison != nil {
			if err := o.writeReferenceCurve(r.spec.OutputDir, j.Comparison); err != nil {
				return err
			}
		}
	}
	return MissedOf(r.result.Expect)
}

// openReference reads the curve that the run is compared with, and reports at once if it belongs to another subject.
func (r *loaded) openReference() (err error) {
	name := r.spec.Expect.Reference
	if r.reference, err = OpenReference(name, r.env.Env); err != nil || r.reference == nil {
		return err
	}
	if r.spec.Dataset.Streaming {
		return fmt.Errorf("expect.reference: %w", errStreamed)
	}
	if r.subject, err = r.rowsSubject(); err != nil {
		return err
	}
	r.subject.Base = r.reference.Subject.Base // the base is hashed at the end, which takes a while
	if why := r.subject.difference(r.reference.Subject); why != nil {
		r.env.Logf("expect.reference: this run will fail its comparison with %s: %s", name, strings.Join(why, ", "))
	}
	return nil
}
