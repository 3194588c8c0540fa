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
//
// The step, from top to bottom: take the micro-batches of one optimizer step; run forward and backward of
// each, gradients and loss adding up; clip and update; log, evaluate and save where it is due.
func Start(ctx context.Context, s Spec, env Env) (Result, error) {
	p, err := prepare(ctx, s, env)
	if err != nil {
		return Result{}, err
	}
	defer p.close() //nolint:errcheck // read only
	r, err := p.start(ctx)
	if err != nil {
		return Result{}, err
	}
	defer r.end()
	for r.state.GlobalStep < r.total {
		if err := ctx.Err(); err != nil {
			return r.result, err
		}
		before := r.loader.State()
		window, trained := r.loader.NextWindow(s.Training.GradientAccumulationSteps)
		lr := r.schedule(r.state.GlobalStep)
		loss, norm, err := r.gradients(window, trained)
		if err != nil {
			return r.result, err
		}
		if math.IsNaN(loss) || math.IsInf(loss, 0) || math.IsNaN(norm) || math.IsInf(norm, 0) {
			return r.result, r.notFinite(window, before, loss, norm)
		}
		if err := r.update(lr); err != nil {
			return r.result, err
		}
		if err := r.finishStep(ctx, window, trained, loss, norm, lr); err != nil {
			return r.result, err
		}
		if r.interrupted() && r.state.GlobalStep < r.total {
			r.result.Stopped = true
			r.count()
			return r.result, r.save()
		}
	}
	return r.result, r.finish(ctx)
}

// running is a run that holds its memory.
type running struct {
	*prepared
	memory   graph.Store
	run      graph.Runner
	evalRun  graph.Runner
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
func (p *prepared) start(ctx context.Context) (*running, error) {
	s := p.spec
	from, err := resumeFrom(s.Training.Resume, s.OutputDir, p.env)
	if err != nil {
		return nil, err
	}
	p.env.log("%s", strings.TrimRight(p.report.String(), "\n"))
	p.env.log("%s", p.planReport())
	r := &running{prepared: p, schedule: Schedules[s.Training.LRScheduler](s.Training, p.total), saved: -1}
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
	if r.eval != nil {
		if r.evalRun, err = r.on.Bind(r.eval.plan, r.memory); err != nil {
			return err
		}
		r.evalIn, err = bindBatch(r.memory, evalPrefix)
	}
	return err
}

// gradients runs forward and backward over a step's micro-batches and returns the loss, its sum over
// trained tokens divided by their number in the whole window, and the gradients' norm.
func (r *running) gradients(window []dataset.Batch, trained int) (loss, norm float64, err error) {
	if err := r.run.Run(segmentBegin); err != nil {
		return 0, 0, err
	}
	for i, b := range window {
		r.in.fill(b)
		r.in.scale[0] = 1 / float32(trained)
		r.in.setCounter(r.spec.Seed, r.state.GlobalStep, i)
		if err := r.in.put(); err != nil {
			return 0, 0, err
		}
		if err := r.run.Run(segmentMicro); err != nil {
			return 0, 0, err
		}
	}
	if err := r.run.Run(segmentNorm); err != nil {
		return 0, 0, err
	}
	l, err := r.run.Read(r.step.loss)
	if err != nil {
		return 0, 0, err
	}
	n, err := r.run.Read(r.step.norm)
	if err != nil {
		return 0, 0, err
	}
	return float64(l.F32()[0]), float64(n.F32()[0]), nil
}

func (r *running) update(lr float64) error {
	for i, v := range hyper(r.spec.Training, lr, r.progress.Optimizer+1) {
		r.in.hyper[i] = float32(v)
	}
	if err := r.in.put(); err != nil {
		return err
	}
	r.progress.Optimizer++
	return r.run.Run(segmentUpdate)
}

// finishStep counts the step, and logs, evaluates and saves where that is due.
func (r *running) finishStep(ctx context.Context, window []dataset.Batch, trained int, loss, norm, lr float64) error {
	c := r.spec.Training
	r.state.GlobalStep++
	step := r.state.GlobalStep
	tokens := 0
	for _, b := range window {
		tokens += b.Tokens
		r.samples += int64(len(b.Rows))
	}
	r.tokens += int64(tokens)
	r.state.TokensSeen += int64(tokens)
	last := window[len(window)-1]
	r.state.Epoch = epochOf(r.loader, last)
	p := &r.progress
	p.Losses = append(p.Losses, loss)
	p.NLL, p.Trained = p.NLL+loss*float64(trained), p.Trained+int64(trained)
	p.SinceNLL, p.SinceLog = p.SinceNLL+loss*float64(trained), p.SinceLog+int64(trained)
	r.result.Steps, r.result.Losses = step, p.Losses

	rate := float64(r.tokens) / time.Since(r.began).Seconds()
	if step%c.LoggingSteps == 0 || step == r.total {
		mean := p.SinceNLL / float64(p.SinceLog)
		p.SinceNLL, p.SinceLog = 0, 0
		err := r.metrics.Append(StepMetrics{
			Step: step, Epoch: r.state.Epoch, Loss: mean, PPL: math.Exp(mean), GradNorm: norm, GradNormClipped: clipped(norm, c.MaxGradNorm),
			LearningRate: lr, TokensSeen: r.state.TokensSeen, TokensPerSecond: rate,
			TokensTotal: r.state.TokensSeen, TokensTrainable: p.Trained, MemoryGiB: float64(r.result.HeldBytes) / (1 << 30),
		})
		if err != nil {
			return err
		}
	}
	evalLoss := math.NaN()
	best := false
	if r.eval != nil && (c.EvalSteps > 0 && step%c.EvalSteps == 0 || step == r.total) {
		var err error
		if evalLoss, err = r.evaluate(ctx); err != nil {
			return err
		}
		best = r.state.Better(evalLoss)
	}
	if r.env.Progress != nil {
		r.env.Progress.Step(StepInfo{Step: step, Epoch: r.state.Epoch, Loss: loss, GradNorm: norm, LearningRate: lr,
			Tokens: int64(tokens), TokensPerSecond: rate, EvalLoss: evalLoss})
	}
	if best || c.SaveSteps > 0 && step%c.SaveSteps == 0 || step == r.total {
		return r.save()
	}
	return nil
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

func (r *running) interrupted() bool {
	select {
	case <-r.env.Interrupted:
		return r.env.Interrupted != nil
	default:
		return false
	}
}

// notFinite saves the state before the step and says where it happened.
func (r *running) notFinite(window []dataset.Batch, before dataset.State, loss, norm float64) error {
	var rows []string
	for _, b := range window {
		rows = append(rows, r.loader.Where(b)...)
	}
	where := fmt.Errorf("step %d: %w: loss %v, gradient norm %v; rows %s", r.state.GlobalStep+1, ErrNotFinite, loss, norm, strings.Join(rows, " "))
	r.progress.Data = before
	if err := r.saveAt(before); err != nil {
		return errors.Join(where, err)
	}
	return fmt.Errorf("%w; the state before the step is in %s", where, r.result.Checkpoint)
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
	return r.spec.Expect.Check(p.Losses, r.result.HeldBytes)
}

// count sums up the run so far in the result.
func (r *running) count() {
	p := r.progress
	r.result.Duration, r.result.Tokens = time.Since(r.began), r.state.TokensSeen
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
