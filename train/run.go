package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
)

// ErrNotFinite is in the error of a run whose loss or gradient stopped being a number.
var ErrNotFinite = errors.New("loss or gradient is not finite")

// Start trains: it plans, loads, then runs the loop to its last step, or until it is interrupted.
func Start(ctx context.Context, s Spec, env Env) (Result, error) {
	p, err := prepare(ctx, s, env)
	if err != nil {
		return Result{}, err
	}
	defer p.close() //nolint:errcheck // read only
	return p.train(ctx)
}

func (p *prepared) train(ctx context.Context) (Result, error) {
	r, err := p.start(ctx)
	if err != nil {
		return Result{}, err
	}
	defer r.end()
	err = r.loop(ctx)
	return r.result, r.explain(err)
}

// loop runs the steps. One, from top to bottom: take the micro-batches of one optimizer step; queue forward and
// backward of each, gradients and loss adding up; see to the step before, whose numbers have come by then: log,
// stop where it must be; clip and update. Where a step is evaluated or saved its numbers are waited for at once.
func (r *running) loop(ctx context.Context) error {
	for r.state.GlobalStep < r.total {
		if err := ctx.Err(); err != nil {
			return err
		}
		next := r.nextStep()
		if err := r.gradients(next); err != nil {
			return err
		}
		if r.waiting != nil {
			if err := r.finishStep(ctx); err != nil {
				return err
			}
			if r.interrupted() {
				return r.stop(next.before)
			}
		}
		if err := r.update(next); err != nil {
			return err
		}
		if r.waitsFor(next) {
			if err := r.finishStep(ctx); err != nil {
				return err
			}
			if r.interrupted() && r.state.GlobalStep < r.total {
				return r.stop(r.loader.State())
			}
		}
	}
	return r.finish(ctx)
}

// running is a run that holds its memory.
type running struct {
	*prepared
	memory   graph.Store
	run      graph.Runner
	evalRun  graph.Runner
	numbers  graph.Reader // of a step
	scale    float64      // of the loss, in the step on its way; 0 without loss scaling
	waiting  *optimizerStep
	in       batchMemory
	evalIn   batchMemory
	schedule func(step int) float64
	metrics  *Metrics
	state    State
	progress cursor
	result   Result
	began    time.Time
	tokens   int64 // since began
	samples  int64
	saved    int // step of the newest checkpoint
	clock    stepClock
}

// cursor is what a checkpoint keeps besides tensors and State's own fields.
type cursor struct {
	Data      dataset.State `json:"data"`
	Losses    []float64     `json:"losses"` // of every step
	NLL       float64       `json:"nll"`    // of the whole run, a sum
	Trained   int64         `json:"trained_tokens"`
	SinceNLL  float64       `json:"nll_since_log"`
	SinceLog  int64         `json:"trained_since_log"`
	Optimizer int           `json:"optimizer_steps"`
	Base      string        `json:"base"` // fingerprint of the base weights
}

// start takes the memory, loads the base model and the adapter, and resumes where that is asked for.
func (p *prepared) start(ctx context.Context) (_ *running, err error) {
	s := p.spec
	from, err := resumeFrom(s.Training.Resume, s.OutputDir, p.env)
	if err != nil {
		return nil, err
	}
	p.env.log("%s", strings.TrimRight(p.report.String(), "\n"))
	p.env.log("%s", p.planReport())
	r := &running{prepared: p, schedule: Schedules[s.Training.LRScheduler](s.Training, p.total), saved: -1}
	defer func() {
		if err != nil && r.memory != nil {
			r.memory.Close() //nolint:errcheck // the first error is what matters
		}
	}()
	if err := r.bind(ctx); err != nil {
		return nil, err
	}
	if from != "" {
		err = r.restore(from)
	} else {
		err = r.initAdapter()
	}
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.OutputDir, 0o755); err != nil {
		return nil, fmt.Errorf("make output_dir: %w", err)
	}
	if p.env.Config != nil {
		if err := writeFileAtomically(filepath.Join(s.OutputDir, ConfigFile), p.env.Config); err != nil {
			return nil, fmt.Errorf("save the configuration: %w", err)
		}
	}
	if r.metrics, err = OpenMetrics(filepath.Join(s.OutputDir, MetricsFile), r.state.LogHistory); err != nil {
		return nil, err
	}
	r.result.MaxSteps, r.result.Resumed, r.result.HeldBytes = p.total, r.state.GlobalStep, r.memory.Bytes().Total()
	r.result.Steps, r.result.Losses = r.state.GlobalStep, r.progress.Losses
	r.began = time.Now()
	if p.env.Progress != nil {
		p.env.Progress.Start(p.total, r.state.GlobalStep)
	}
	return r, nil
}

// bind takes memory and gives it to the plans.
func (r *running) bind(ctx context.Context) error {
	plans := []*graph.Plan{r.step.plan}
	if r.eval != nil {
		plans = append(plans, r.eval.plan)
	}
	var err error
	if r.memory, err = r.on.NewStore(plans...); err != nil {
		return err
	}
	if err := r.base.load(ctx, r.step.net, r.memory, r.on.Workers()); err != nil {
		return err
	}
	if r.run, err = r.on.Bind(r.step.plan, r.memory); err != nil {
		return err
	}
	if r.in, err = bindBatch(r.memory, ""); err != nil {
		return err
	}
	if r.numbers, err = r.run.Reader(r.step.numbers()...); err != nil {
		return err
	}
	if err := prepareStep(r.run, r.spec.Training.GradientAccumulationSteps); err != nil {
		return err
	}
	if r.eval != nil {
		if r.evalRun, err = r.on.Bind(r.eval.plan, r.memory); err != nil {
			return err
		}
		if err := r.evalRun.Prepare(segmentEval); err != nil {
			return err
		}
		r.evalIn, err = bindBatch(r.memory, evalPrefix)
	}
	return err
}

func clipped(norm, most float64) float64 {
	if most > 0 {
		return math.Min(norm, most)
	}
	return norm
}

// epochOf is how far into the data a batch ends, in epochs.
func epochOf(l *dataset.Loader, b dataset.Batch) float64 {
	if b.Last {
		return float64(b.Epoch + 1)
	}
	return float64(b.Epoch) + float64(l.State().Position)/float64(l.Batches(b.Epoch))
}

// evaluate is the mean loss over the validation rows' trained tokens.
func (r *running) evaluate(ctx context.Context) (float64, error) {
	began := time.Now()
	var nll float64
	trained, batches := 0, 0
	for b := range r.val.Epoch(0) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		r.evalIn.scale[0] = 1
		trained += r.evalIn.fill(b)
		sum, err := r.evalIn.evaluate(r.evalRun, r.eval)
		if err != nil {
			return 0, err
		}
		nll += sum
		batches++
	}
	loss := nll / float64(trained)
	r.result.EvalLoss = &loss
	took := time.Since(began).Seconds()
	return loss, r.metrics.Append(EvalMetrics{
		Step: r.state.GlobalStep, Epoch: r.state.Epoch, Loss: loss, PPL: math.Exp(loss), Runtime: took,
		SamplesPerSecond: float64(r.val.Len()) / took, StepsPerSecond: float64(batches) / took,
	})
}

// stop ends an interrupted run after its last finished step; data is where the next batch comes from.
func (r *running) stop(data dataset.State) error {
	r.result.Stopped = true
	r.count()
	return r.saveAt(data)
}

func (r *running) interrupted() bool {
	select {
	case <-r.env.Interrupted:
		return r.env.Interrupted != nil
	default:
		return false
	}
}

// finish ends a run that did all its steps: the adapter goes to output_dir, and the expectations are checked.
func (r *running) finish(ctx context.Context) error {
	r.count()
	p, took := r.progress, r.result.Duration
	if r.tokens > 0 { // a finished run that is started again adds nothing
		done := float64(r.state.GlobalStep - r.result.Resumed)
		if err := r.metrics.Append(EndMetrics{Step: r.state.GlobalStep, Epoch: r.state.Epoch, Loss: r.result.MeanLoss, Runtime: took.Seconds(),
			SamplesPerSecond: float64(r.samples) / took.Seconds(), StepsPerSecond: done / took.Seconds()}); err != nil {
			return err
		}
	}
	files, err := r.adapterFiles()
	if err != nil {
		return err
	}
	for _, name := range []string{adapter.ConfigFile, adapter.WeightsFile} { // the weights last: their presence says that the adapter is whole
		if err := writeFileAtomically(filepath.Join(r.spec.OutputDir, name), files[name]); err != nil {
			return fmt.Errorf("save the adapter: %w", err)
		}
		delete(files, name)
	}
	for name, data := range files {
		if err := writeFileAtomically(filepath.Join(r.spec.OutputDir, name), data); err != nil {
			return fmt.Errorf("save the tokenizer: %w", err)
		}
	}
	r.result.AdapterDir = r.spec.OutputDir
	if err := r.writeManifest(ctx); err != nil {
		return err
	}
	if r.result.Expect, err = r.spec.Expect.Judge(p.Losses, r.result.HeldBytes); err != nil {
		return err
	}
	return r.spec.Expect.Check(p.Losses, r.result.HeldBytes)
}

// count sums up the run so far in the result.
func (r *running) count() {
	p := r.progress
	r.result.Duration, r.result.Tokens, r.result.StepMs = time.Since(r.began), r.state.TokensSeen, r.clock.times()
	if p.Trained > 0 {
		r.result.MeanLoss = p.NLL / float64(p.Trained)
	}
	if n := len(p.Losses); n > 0 {
		r.result.FirstLoss, r.result.LastLoss = p.Losses[0], p.Losses[n-1]
	}
}

func (r *running) end() {
	r.memory.Close()  //nolint:errcheck // what was to be kept is saved
	r.metrics.Close() //nolint:errcheck // every line was written and checked
	if r.env.Progress != nil {
		r.env.Progress.End()
	}
}

func (r *running) cursorBytes(data dataset.State) (json.RawMessage, error) {
	r.progress.Data, r.progress.Base = data, r.base.fingerprint()
	return json.Marshal(r.progress)
}
