// Package infer runs a model without training it: it evaluates the loss over a data set, computes logits and generates
// text.
package infer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
)

// ErrNotFinite is wrapped by the error of a model whose loss or logits are infinite or NaN.
var ErrNotFinite = errors.New("not finite")

// EvalReport is the loss of a model, with or without an adapter, over a data set.
type EvalReport struct {
	Data          string `json:"data"`
	Adapter       string `json:"adapter,omitempty"`
	Rows          int    `json:"rows"`
	Tokens        int64  `json:"tokens"`         // without padding
	TrainedTokens int64  `json:"trained_tokens"` // tokens that the loss counts
	// negative log-likelihood, summed over the trained tokens
	NLL        float64    `json:"nll"`
	Loss       float64    `json:"eval_loss"`  // NLL / TrainedTokens
	Perplexity Perplexity `json:"perplexity"` // exp(Loss)
	// standard error of Loss over rows; 0 with a single row
	StdErr float64 `json:"eval_loss_stderr,omitempty"`
	// Objective is the name of the objective whose loss was measured; "" = the model's own loss.
	Objective string `json:"objective,omitempty"`
	// Reference is what the objective compared the model with: "base" or an adapter's folder; "" = nothing.
	Reference string `json:"reference,omitempty"`
	// Numbers are what the objective reports beside the loss, such as the accuracy; nil for cross-entropy.
	Numbers map[string]float64 `json:"numbers,omitempty"`
	// what Groups are made by: BySource or the name of a field
	By       string        `json:"by,omitempty"`
	Groups   []GroupLoss   `json:"groups,omitempty"`
	Duration time.Duration `json:"duration_ns"`
}

const (
	segmentEval = "eval"
	evalPrefix  = "eval " // prefix of the names of an evaluation's data
)

// EvalStep is a planned forward pass that ends with the loss.
type EvalStep struct {
	session.Program
	out       objective.Outcome
	objective objective.Objective
	tokens    int // of all ranks that share a batch's tokens
}

// PlanEval plans the evaluation of micro-batches of shape s with an objective.
func PlanEval(nw session.Network, s session.Shape, by objective.Objective, on graph.Machine) (*EvalStep, error) {
	nw.Adapter.Dropout = 0 // dropout is for training only
	e := &EvalStep{objective: by, tokens: s.Tokens}
	n, trained, in := nw.Declare(evalPrefix, s)
	data := e.objective.Declare(n, evalPrefix, nw.Own(s))
	n.Segment(segmentEval)
	at := objective.NetworkOf(by, nw, n, in)
	at.LossRows = nw.LossRows(on)
	e.out = e.objective.Eval(n, at, data)
	if err := n.Err(); err != nil {
		return nil, fmt.Errorf("plan the evaluation: %w", err)
	}
	outputs := []*graph.Value{e.out.Loss}
	if e.out.Each != nil {
		outputs = append(outputs, e.out.Each)
	} else if nw.Ranks > 1 {
		return nil,
			errors.New(
				"plan the evaluation: the objective has no loss per token, which ranks that share a batch's tokens " +
					"would add up")
	}
	plan, err := on.Compile(n.Builder, slices.Concat(outputs, e.out.Sums, e.out.Outputs)...)
	if err != nil {
		return nil, fmt.Errorf("plan the evaluation: %w", err)
	}
	e.Program = session.Program{Net: n, Trained: trained, Plan: plan}
	return e, nil
}

// Evaluator is an EvalStep bound to memory.
type Evaluator struct {
	step  *EvalStep
	run   graph.Runner
	batch *session.Batch
	data  objective.Filler
	own   session.Part // this rank's part of each batch
	// gathers the losses of the ranks that share a batch; nil = this rank has the whole batch
	join func(losses []float32) (all []float32, err error)
}

// Bind makes an evaluation ready to run in the memory to which its plan was bound.
func (e *EvalStep) Bind(m graph.Store, run graph.Runner) (*Evaluator, error) {
	v := &Evaluator{step: e, run: run}
	if err := run.Prepare(segmentEval); err != nil {
		return nil, err
	}
	var err error
	if v.batch, err = session.BindBatch(m, evalPrefix); err != nil {
		return nil, err
	}
	v.data, err = e.objective.Bind(v.batch)
	return v, err
}

// Share makes the evaluator one of several ranks that share each batch. place is this rank's index, and join gathers
// the losses of all ranks into one list.
func (v *Evaluator) Share(place int, join func(own []float32) (all []float32, err error)) {
	v.own, v.join = session.PartOf(v.step.tokens, place, v.step.Net.Ranks()), join
}

// Sum is a loss summed over rows, with the sums from which the objective's numbers are computed.
type Sum struct {
	NLL       float64 // the objective's loss, not divided by anything
	Trained   int64   // tokens that the loss counts
	Sequences int64
	Groups    int64 // number of row groups, each of which stays in one batch
	Tokens    int64 // without padding
	Batches   int
	Sums      []float64 // objective.Outcome.Sums; this rank's share if several ranks share a batch
	Judged    objective.Judged
}

// Values returns the values of an objective's numbers, given the mean loss.
func (s Sum) Values(o objective.Objective, loss float64) []objective.Value {
	return append(objective.Values(o.Numbers(), loss, s.Sums, s.Counts()), objective.JudgedValues(o, s.Judged)...)
}

// Counts returns the numbers by which an objective divides.
func (s Sum) Counts() objective.Counts {
	return objective.Counts{Tokens: s.Trained, Sequences: s.Sequences, Groups: s.Groups}
}

// Run sums the loss over a loader's rows. It calls see, unless nil, after each batch with the number of batches done;
// an error of see ends the evaluation.
func (v *Evaluator) Run(ctx context.Context, l *dataset.Loader, see func(batches int) error) (Sum, error) {
	return v.RunRows(ctx, l, nil, see)
}

// RunRows does what Run does and calls tell with the loss of each row; row is the row's index in the loader.
func (v *Evaluator) RunRows(ctx context.Context, l *dataset.Loader, tell func(row int, of RowLoss),
	see func(batches int) error) (Sum, error) {
	var all Sum
	err := v.each(ctx, l, tell, func(one Sum) error {
		all.Add(one)
		if see != nil {
			return see(all.Batches)
		}
		return nil
	})
	return all, err
}

// Add adds o to the sum.
func (s *Sum) Add(o Sum) {
	s.NLL, s.Trained, s.Sequences = s.NLL+o.NLL, s.Trained+o.Trained, s.Sequences+o.Sequences
	s.Groups, s.Tokens, s.Batches = s.Groups+o.Groups, s.Tokens+o.Tokens, s.Batches+o.Batches
	if s.Sums == nil && o.Sums != nil {
		s.Sums = make([]float64, len(o.Sums))
	}
	for i, x := range o.Sums {
		s.Sums[i] += x
	}
	s.Judged.Add(o.Judged)
}

// Each calls see with the sum of each of the loader's batches. An error of see ends the evaluation.
func (v *Evaluator) Each(ctx context.Context, l *dataset.Loader, see func(Sum) error) error {
	return v.each(ctx, l, nil, see)
}

func (v *Evaluator) each(ctx context.Context, l *dataset.Loader, tell func(row int, of RowLoss),
	see func(Sum) error) error {
	for b, err := range l.Epoch(0) {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		v.batch.Fill(b, v.own)
		v.data.Scale(1)
		one := Sum{
			Trained: int64(v.data.Fill(b, v.own)), Sequences: int64(b.Count()), Groups: int64(len(b.Rows)),
			Tokens: int64(b.Tokens), Batches: 1,
		}
		each, err := v.losses()
		if err != nil {
			return err
		}
		one.NLL = total(each)
		if one.Sums, err = v.sums(); err != nil {
			return err
		}
		if one.Judged, err = v.judged(); err != nil {
			return err
		}
		if tell != nil {
			for k, row := range b.Rows {
				from, n := b.Starts[k], b.Length(k)
				r := RowLoss{NLL: total(each[from : from+n]), Tokens: int64(n)}
				for _, label := range b.Labels[from+1 : from+n] { // nothing predicts the first token
					if label != dataset.Ignore {
						r.Trained++
					}
				}
				tell(row, r)
			}
		}
		if err := see(one); err != nil {
			return err
		}
	}
	return nil
}

// RowLoss is a row's loss, summed over its trained tokens.
type RowLoss struct {
	NLL             float64
	Tokens, Trained int64
}

// losses runs the step on the batch that was written. It returns each token's loss at the position that predicts the
// token, or one total if the objective has no loss per token.
func (v *Evaluator) losses() ([]float32, error) {
	if err := v.batch.Put(); err != nil {
		return nil, err
	}
	if err := v.run.Run(segmentEval); err != nil {
		return nil, err
	}
	of := v.step.out.Each
	if of == nil {
		of = v.step.out.Loss
	}
	t, err := v.run.Read(of)
	if err != nil {
		return nil, err
	}
	if v.join != nil {
		return v.join(t.F32())
	}
	return t.F32(), nil
}

// sums returns the sums of the objective's numbers for the batch that losses ran.
func (v *Evaluator) sums() (all []float64, err error) {
	for _, of := range v.step.out.Sums {
		t, err := v.run.Read(of)
		if err != nil {
			return nil, err
		}
		all = append(all, float64(t.F32()[0]))
	}
	return all, nil
}

// judged returns the records of the batch that losses ran, for an objective that has some.
func (v *Evaluator) judged() (j objective.Judged, err error) {
	f, ok := v.data.(objective.JudgedFiller)
	if !ok || v.step.out.Outputs == nil {
		return j, nil
	}
	var outputs [][]float32
	for _, of := range v.step.out.Outputs {
		t, err := v.run.Read(of)
		if err != nil {
			return j, err
		}
		outputs = append(outputs, t.F32())
	}
	return f.Judged(outputs), nil
}

// Again repeats the step on the last batch, so that other ranks can complete their collective operations.
func (v *Evaluator) Again() error {
	_, err := v.losses()
	return err
}

func total(losses []float32) (sum float64) {
	for _, x := range losses {
		sum += float64(x)
	}
	return sum
}

// EvalOptions selects what Evaluate measures.
type EvalOptions struct {
	session.Options
	AdapterDir string // adapter folder in PEFT's format; empty = the base model
	Data       dataset.Config
	Seed       uint64
	BatchSize  int
	// Objective computes the loss; nil = cross-entropy, with the loss of each row. ObjectiveName is its name.
	Objective     objective.Objective
	ObjectiveName string
	// Reference is the folder of the adapter that an objective with a reference compares the model with; "" = the base
	// model is the reference.
	Reference string
	// Loader returns a loader of the set's validation rows; nil = batches of up to BatchSize of the longest rows.
	Loader func(s *session.Session, set *dataset.Set) (*dataset.Loader, error)
	By     string // row field by which losses are grouped; "" = by source, if there are several
	// Progress is called with the number of finished batches; nil = no reports.
	Progress func(done, of int)
}

// Evaluate measures the loss of a base model, with the adapter in AdapterDir unless that is empty. It uses the
// validation rows of the data, or all rows if the data has no validation set.
func Evaluate(ctx context.Context, o EvalOptions, env session.Env) (report EvalReport, err error) {
	s, err := session.Open(ctx, o.Options, env)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.UseAdapter(o.AdapterDir); err != nil {
		return report, err
	}
	if err := o.measure(); err != nil {
		return report, err
	}
	if objective.Refers(o.Objective) {
		report.Reference = "base"
		if o.Reference != "" {
			report.Reference = o.Reference
			if s.Net.Reference, err = adapter.OpenReference(o.Reference); err != nil {
				return report, fmt.Errorf("training.reference: %w", err)
			}
			defer s.Net.Reference.Close() //nolint:errcheck // read only
		}
	}
	set, err := o.load(ctx, s)
	if err != nil {
		return report, err
	}
	tables, err := newTables(ctx, s, set, o) // reads rows as they are in their files
	if err != nil {
		return report, err
	}
	loader, err := o.loader(s, set)
	if err != nil {
		return report, err
	}
	report.Data, report.Adapter, report.Rows = title(o.Data), o.AdapterDir, loader.Len()
	began := time.Now()
	tell := tables.add
	if o.ObjectiveName != objective.Default {
		tell = nil // its loss has no parts by token
	}
	sum, err := evaluate(ctx, s, loader, o.Objective, tell, o.Progress)
	if err != nil {
		return EvalReport{}, err
	}
	report.Tokens, report.TrainedTokens, report.NLL, report.Loss = sum.Tokens, sum.Trained, sum.NLL,
		sum.NLL/float64(sum.Counts().Of(o.Objective.Divisor()))
	if tell == nil {
		report.Objective, report.Numbers = o.ObjectiveName, map[string]float64{}
		for _, v := range sum.Values(o.Objective, report.Loss) {
			report.Numbers[v.Name] = v.Value
		}
	}
	report.Duration = time.Since(began)
	if tell != nil {
		report.Perplexity = Perplexity(math.Exp(report.Loss))
		report.StdErr, report.By, report.Groups = tables.all.stdErr(), tables.by, tables.groups()
	}
	if math.IsNaN(report.Loss) || math.IsInf(report.Loss, 0) {
		return EvalReport{}, fmt.Errorf("evaluate %s: %w", o.Model, s.BlameNotFinite(ctx,
			fmt.Errorf("the loss is %v: %w", report.Loss, ErrNotFinite)))
	}
	return report, nil
}

// measure checks the objective, and sets the default.
func (o *EvalOptions) measure() error {
	if o.Objective == nil {
		o.Objective, o.ObjectiveName = objective.Of(objective.Default, objective.Config{}), objective.Default
	}
	_, sampled := o.Objective.(objective.Sampled)
	switch {
	case sampled:
		return fmt.Errorf("evaluate: training.objective: %s has no loss of validation rows: measure what answers are "+
			"worth with --task, or write --set training.objective=%s for rows with answers", o.ObjectiveName,
			objective.Default)
	case o.AdapterDir == "" && o.AdapterConfig.Task.Type != "":
		return errors.New("evaluate: the base model has no head for the task: name the run's adapter with --adapter")
	case o.By != "" && o.ObjectiveName != objective.Default:
		return fmt.Errorf("%w %q: training.objective: %s has no loss of single rows: leave --by out", ErrNoField,
			o.By, o.ObjectiveName)
	}
	return nil
}

// load reads the data. Without validation rows all rows are evaluated.
func (o *EvalOptions) load(ctx context.Context, s *session.Session) (*dataset.Set, error) {
	set, rows, err := s.LoadData(ctx, o.Data, o.Seed)
	if err == nil {
		err = objective.CheckRows(o.ObjectiveName, o.Objective, rows)
	}
	if err != nil {
		return nil, err
	}
	if set.Val.Len() == 0 {
		if set.Streaming() {
			return nil, errors.New("evaluate: with dataset.streaming only validation rows can be evaluated: name " +
				"them in dataset.val_path, or add --set dataset.streaming=false")
		}
		set.Val = set.Train // both come from the same sources
	}
	return set, nil
}

// loader returns the loader of the rows that are evaluated.
func (o *EvalOptions) loader(s *session.Session, set *dataset.Set) (*dataset.Loader, error) {
	if o.Loader == nil {
		return set.ValLoader(o.BatchSize, 0)
	}
	return o.Loader(s, set)
}

// title returns the name of the data's single source, or "" for several.
func title(c dataset.Config) string {
	if len(c.Sources) == 1 {
		return c.Sources[0].Title()
	}
	return c.Title()
}

// ShapeOf returns the shape of a loader's largest batch.
func ShapeOf(l *dataset.Loader) session.Shape {
	s := l.Shape()
	return session.Shape{Tokens: slices.Max(s.Budgets), Sequences: s.Borders - 1, MaxLen: s.Longest,
		Prefixes: s.Prefixes}
}

func evaluate(ctx context.Context, s *session.Session, loader *dataset.Loader, by objective.Objective,
	tell func(row int, of RowLoss), progress func(done, of int)) (sum Sum, err error) {
	shape := ShapeOf(loader)
	if most := s.Base.Config.LongestRow(); shape.MaxLen > most {
		return sum, fmt.Errorf("dataset.max_length: sequences of %d tokens are longer than the model's %d positions",
			shape.MaxLen, most)
	}
	step, err := PlanEval(s.Net, shape, by, s.On)
	if err != nil {
		return sum, err
	}
	if err := s.CheckFits(&step.Program); err != nil {
		return sum, err
	}
	m, err := s.Hold(ctx, &step.Program)
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if s.Net.Reference != nil {
		if _, err := s.Net.Reference.Fill(step.Trained, m); err != nil {
			return sum, fmt.Errorf("training.reference: %w", err)
		}
	}
	v, err := step.Bind(m, m.Runs[0])
	if err != nil {
		return sum, err
	}
	return v.RunRows(ctx, loader, tell, func(batches int) error {
		if progress != nil {
			progress(batches, loader.Batches(0))
		}
		return nil
	})
}
