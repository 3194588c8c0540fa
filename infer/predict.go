package infer

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
)

// Predictor computes what models with a head give for texts: scores of labels, or vectors (embeddings). Its models are
// adapters whose task is not causal, side by side over one base model. A Predictor is not safe for concurrent use: one
// goroutine owns it.
//
// A text's numbers depend only on its own tokens and its model, to the last bit. They do not depend on the texts that
// are computed with it.
type Predictor struct {
	*session.Session
	models []PredictorModel
	maxLen int
	memory *session.Memory
	need   graph.Bytes
	// planned has the steps, ascending by their tokens, and steps the same after hold.
	planned []*predictStep
	steps   []*predictRun
	pad     int32
}

// PredictorModel is a model of a Predictor.
type PredictorModel struct {
	Name string
	Task adapter.Task
	Head adapter.Head
	// Pooling is how a model for FEATURE_EXTRACTION makes a vector of a text.
	Pooling  adapter.Pooling
	from, to int       // its rows of the heads
	bias     []float32 // of its head; nil = none
	dir      string    // the adapter's folder; "" = the base model's
}

// PredictorOptions sizes a predictor.
type PredictorOptions struct {
	// Adapters are the models; none = the base model itself, which then has a classification head or gives vectors.
	Adapters []NamedAdapter
	// Name is the name of the model if it is the base model.
	Name string
	// Pooling makes the base model give vectors in this way, though its checkpoint is for another task; nil = the
	// checkpoint says how.
	Pooling *adapter.Pooling
	// MaxLen is the most tokens of a text; 0 = DefaultMaxLen or the model's context length if that is less, or less if
	// memory is short.
	MaxLen int
}

// DefaultMaxLen is the default of PredictorOptions.MaxLen, in tokens.
const DefaultMaxLen = 8192

// Passage is a text of Predict in tokens.
type Passage struct {
	Model int // index in Predictor.Models
	IDs   []int32
}

// Prediction holds what a model gives for a passage.
type Prediction struct {
	// Numbers are the scores [L] of a text, the scores [T,L] of each of its tokens, or its vector [C].
	Numbers []float32
}

// ErrWritesText is returned for a model that writes text and has nothing to predict.
var ErrWritesText = errors.New("the model writes text, and gives neither scores nor vectors")

// NewPredictor opens a base model with adapters and allocates the predictor's memory.
func NewPredictor(ctx context.Context, o session.Options, po PredictorOptions, env session.Env) (*Predictor, error) {
	s, err := session.Open(ctx, o, env)
	if err != nil {
		return nil, err
	}
	p, err := predictorOn(s, po)
	if err == nil {
		err = p.hold(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return p, nil
}

// predictorOn plans a predictor for a session. Closing the predictor closes the session.
func predictorOn(s *session.Session, o PredictorOptions) (*Predictor, error) {
	p := &Predictor{Session: s, pad: s.Base.PadID()}
	var err error
	if len(o.Adapters) == 0 {
		err = p.useBase(o)
	} else {
		err = p.useAdapters(o.Adapters)
	}
	if err != nil {
		return nil, err
	}
	return p, p.open(o)
}

// useBase makes the base model itself the model.
func (p *Predictor) useBase(o PredictorOptions) (err error) {
	m := PredictorModel{Name: o.Name, Task: p.Base.Task()}
	switch {
	case o.Pooling != nil && m.Task.HasScores():
		return fmt.Errorf("predict: %s has a classification head, and no vectors of texts", p.Base.Name)
	case o.Pooling != nil:
		m.Task, m.Pooling = adapter.Task{Type: adapter.FeatureExtraction}, *o.Pooling
	case m.Task.Type == "":
		return &refusal{"predict: " + p.Base.Name + " writes text: name an adapter whose task gives scores or " +
			"vectors, or the pooling, mean or last, that makes vectors of its hidden states", ErrWritesText}
	case m.Task.HasScores():
		if m.Head, err = adapter.ReadModelHead(p.Base.Dir, m.Task.Labels); err == nil {
			m.bias, err = session.ScoreBias(p.Base)
		}
	default:
		m.Pooling, err = adapter.ReadPooling(p.Base.Dir)
	}
	m.to = m.Task.Labels
	p.models = []PredictorModel{m}
	return err
}

// useAdapters makes adapters the models. One alone may be of any method.
func (p *Predictor) useAdapters(adapters []NamedAdapter) (err error) {
	dirs := make([]string, len(adapters))
	for i, a := range adapters {
		dirs[i] = a.Dir
	}
	if len(dirs) == 1 {
		err = p.UseAdapter(dirs[0])
	} else {
		err = p.UseHeads(dirs)
	}
	if err != nil {
		return err
	}
	for i, task := range p.AdapterTasks() {
		m := PredictorModel{Name: adapters[i].Name, Task: task, dir: dirs[i]}
		if err := task.CheckScores(); err != nil {
			return &refusal{fmt.Sprintf("%s: %v", dirs[i], err), ErrWritesText}
		}
		if m.Pooling, err = adapter.ReadPooling(dirs[i]); err == nil && task.HasScores() {
			m.Head, err = adapter.ReadHead(dirs[i], task.Labels)
		}
		if err != nil {
			return err
		}
		if m.to = task.Labels; p.Net.Several != nil {
			m.from, m.to = p.Net.Several.ScoreRange(i)
		}
		p.models = append(p.models, m)
	}
	return nil
}

// open plans the predictor.
func (p *Predictor) open(o PredictorOptions) error {
	if longest := p.Base.Config.LongestRow(); o.MaxLen > longest {
		return refuse(ErrTooLong, "texts of %d tokens exceed the model's %d positions", o.MaxLen, longest)
	}
	maxLen := o.MaxLen
	if maxLen == 0 {
		maxLen = min(DefaultMaxLen, p.Base.Config.MaxPositions)
		if limit, both := p.Base.Config.LongRope(maxLen); both {
			maxLen = limit // longer texts have other frequencies, which would apply to all texts
		}
	}
	steps, err := p.plan(maxLen)
	for o.MaxLen == 0 && maxLen/2 >= leastMaxLen && errors.Is(err, session.ErrDoesNotFit) {
		maxLen /= 2
		steps, err = p.plan(maxLen)
	}
	if err != nil {
		return err
	}
	p.maxLen, p.planned = maxLen, steps
	plans := make([]*graph.Plan, len(steps))
	for i, s := range steps {
		plans[i] = s.Plan
	}
	p.need, err = graph.Need(plans...)
	return err
}

// hold allocates the memory of a planned predictor and loads the weights.
func (p *Predictor) hold(ctx context.Context) (err error) {
	programs := make([]*session.Program, len(p.planned))
	for i, s := range p.planned {
		programs[i] = &s.Program
	}
	if p.memory, err = p.Hold(ctx, programs...); err != nil {
		return err
	}
	for i, s := range p.planned {
		run, err := s.bind(p.memory, p.memory.Runs[i])
		if err != nil {
			return errors.Join(err, p.release())
		}
		p.steps = append(p.steps, run)
	}
	if p.Net.Several != nil { // Hold has read the biases
		for i := range p.models {
			p.models[i].bias = p.Net.Several.ScoreBias(i)
		}
	}
	return nil
}

// plan plans the steps for texts of up to maxLen tokens.
func (p *Predictor) plan(maxLen int) (steps []*predictStep, err error) {
	var programs []*session.Program
	for _, tokens := range p.sizes(maxLen) {
		s, err := p.newStep(tokens, maxLen)
		if err != nil {
			return nil, err
		}
		steps, programs = append(steps, s), append(programs, &s.Program)
	}
	return steps, p.CheckFits(programs...)
}

// sizes returns the tokens of the steps, ascending. A text is always computed by the smallest step that holds it, so
// that its numbers come from GEMMs of one shape whatever is computed with it. On a GPU short texts share larger steps.
func (p *Predictor) sizes(maxLen int) (all []int) {
	tokens, factor := 16, 2
	if p.On.Capabilities().SeparateHost {
		tokens, factor = 512, 4
	}
	for ; tokens < maxLen; tokens *= factor {
		all = append(all, tokens)
	}
	return append(all, maxLen)
}

// Close releases the memory, the mapped weights, the adapters and the device.
func (p *Predictor) Close() error { return errors.Join(p.release(), p.Session.Close()) }

func (p *Predictor) release() error {
	if p.memory == nil {
		return nil
	}
	err := p.memory.Close()
	p.memory, p.steps = nil, nil
	return err
}

// Models returns the models in the order of the options.
func (p *Predictor) Models() []PredictorModel { return p.models }

// MaxLen returns the most tokens of a text.
func (p *Predictor) MaxLen() int { return p.maxLen }

// Need returns the predictor's memory in bytes, by category.
func (p *Predictor) Need() graph.Bytes { return p.need }

// Predict computes passages and returns a prediction for each, in their order.
func (p *Predictor) Predict(ctx context.Context, passages []Passage) ([]Prediction, error) {
	out := make([]Prediction, len(passages))
	waiting := make([][]int, len(p.steps)) // passages by step
	for i, passage := range passages {
		if err := p.check(passage); err != nil {
			return nil, fmt.Errorf("predict text %d of %d: %w", i+1, len(passages), err)
		}
		s := p.stepOf(len(passage.IDs))
		waiting[s] = append(waiting[s], i)
	}
	for s, list := range waiting {
		for len(list) > 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			n := p.steps[s].together(passages, list)
			if err := p.steps[s].predict(p, passages, list[:n], out); err != nil {
				return nil, err
			}
			list = list[n:]
		}
	}
	return out, nil
}

// stepOf returns the index of the smallest step that holds a text of so many tokens.
func (p *Predictor) stepOf(tokens int) int {
	for i, s := range p.steps {
		if tokens <= s.step.tokens {
			return i
		}
	}
	return len(p.steps) - 1
}

// check refuses a passage that cannot be computed.
func (p *Predictor) check(of Passage) error {
	switch {
	case of.Model < 0 || of.Model >= len(p.models):
		return refuse(ErrUnknownAdapter, "model %d of %d", of.Model, len(p.models))
	case len(of.IDs) == 0:
		return errors.New("the text has no token")
	case len(of.IDs) > p.maxLen:
		return refuse(ErrTooLong, "the text has %d tokens, and a text may have %d", len(of.IDs), p.maxLen)
	}
	for i, id := range of.IDs {
		if id < 0 || int(id) >= p.Base.Config.VocabSize {
			return fmt.Errorf("token %d is %d, outside the model's vocabulary of 0 to %d", i, id,
				p.Base.Config.VocabSize-1)
		}
	}
	return nil
}

// finish makes the numbers of a passage from what a step computed: it adds the head's bias, or divides a vector by its
// length.
func (p *Predictor) finish(m PredictorModel, numbers []float32) error {
	for i, x := range numbers {
		if m.bias != nil {
			numbers[i] = x + m.bias[i%len(m.bias)]
		}
		if x-x != 0 {
			return fmt.Errorf("predict: model %s: number %d is %v: %w", m.Name, i, x, ErrNotFinite)
		}
	}
	if !m.Task.HasScores() && m.Pooling.Normalise {
		Normalise(numbers)
	}
	return nil
}

// Normalise divides a vector by its length, unless that is zero.
func Normalise(vector []float32) {
	sum := 0.
	for _, x := range vector {
		sum += float64(x) * float64(x)
	}
	length := math.Sqrt(sum)
	for i, x := range vector {
		if length > 0 {
			vector[i] = float32(float64(x) / length)
		}
	}
}
