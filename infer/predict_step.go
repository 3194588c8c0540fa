package infer

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
)

// predictStep is a planned forward pass over texts that lie end to end in a fixed number of tokens. It ends with the
// values that the predictor's models need; the others are nil.
type predictStep struct {
	session.Program
	prefix            string
	tokens, sequences int
	vectors           *graph.Value // f[S,C], the pooled hidden states of each text
	scores            *graph.Value // f[S,L], the scores of each text by the heads of all models
	each              *graph.Value // f[M,L], the scores of each token
	bias              *graph.Value // f[L], of the head of a single adapter
}

// Names of a step's data, after its prefix.
const (
	segmentPredict = "predict"
	nameSpans      = "pooled tokens"
)

// sequencesIn is the most texts of a step of so many tokens. It is above the number of rows for which GEMMs on a CPU
// sum in another order.
func sequencesIn(tokens int) int { return min(max(8, tokens/8), 64) }

// newStep plans a step of so many tokens. All steps have positions below maxLen, for they share a table of rotations.
func (p *Predictor) newStep(tokens, maxLen int) (*predictStep, error) {
	nw := p.Net
	nw.Adapter.Dropout = 0
	s := &predictStep{prefix: fmt.Sprintf("predict %d ", tokens), tokens: tokens, sequences: sequencesIn(tokens)}
	n, trained, in := nw.Declare(s.prefix, session.Shape{Tokens: tokens, Sequences: s.sequences + 1, MaxLen: maxLen})
	in.Real = nil // a token's result does not depend on padding elsewhere
	spans := n.Batch(s.prefix+nameSpans, kernel.T(kernel.I32, s.sequences, 2))
	n.Segment(segmentPredict)
	hidden := nw.Hidden(n, in)
	var head *graph.Value
	switch {
	case nw.Several != nil:
		head = nw.Several.Scores(n, nw.Config.HiddenSize)
	case p.models[0].Task.HasScores():
		head, s.bias = nw.Scores(n)
	}
	if err := n.Err(); err != nil {
		return nil, fmt.Errorf("plan predictions: %w", err)
	}
	outputs := s.outputs(n, p.models, hidden, spans, head)
	if err := n.Err(); err != nil {
		return nil, fmt.Errorf("plan predictions: %w", err)
	}
	plan, err := p.On.Compile(n.Builder, outputs...)
	if err != nil {
		return nil, fmt.Errorf("plan predictions: %w", err)
	}
	s.Program = session.Program{Net: n, Trained: trained, Plan: plan}
	return s, nil
}

// outputs builds what the models need of the hidden states [M,C], and returns these values.
func (s *predictStep) outputs(n *nn.Net, models []PredictorModel, hidden, spans, head *graph.Value) []*graph.Value {
	has := func(task string) bool {
		return slices.ContainsFunc(models, func(m PredictorModel) bool { return m.Task.Type == task })
	}
	var all []*graph.Value
	var pooled *graph.Value
	if has(adapter.FeatureExtraction) || has(adapter.SequenceClassification) {
		pooled = n.Apply(kernel.Pool{}, hidden, spans)
	}
	if has(adapter.FeatureExtraction) {
		s.vectors = pooled
		all = append(all, pooled)
	}
	if has(adapter.SequenceClassification) {
		s.scores = n.Apply(kernel.MatMul{TransB: true, FP32Out: true}, pooled, head)
		all = append(all, s.scores)
	}
	if has(adapter.TokenClassification) {
		s.each = n.Apply(kernel.MatMul{TransB: true, FP32Out: true}, hidden, head)
		all = append(all, s.each)
	}
	if s.bias != nil {
		all = append(all, s.bias)
	}
	return all
}

// predictRun is a predictStep bound to memory.
type predictRun struct {
	step         *predictStep
	run          graph.Runner
	batch        *session.Batch
	spans, which []int32 // nil for heads over tokens alone; nil for a network with one adapter
}

func (s *predictStep) bind(m graph.Store, run graph.Runner) (*predictRun, error) {
	r := &predictRun{step: s, run: run}
	var err error
	if r.batch, err = session.BindBatch(m, s.prefix); err != nil {
		return nil, err
	}
	if s.vectors != nil || s.scores != nil {
		if r.spans, err = r.batch.Int32s(nameSpans); err != nil {
			return nil, err
		}
	}
	if _, several := m.Tensor(s.prefix + session.AdapterRows); several == nil {
		r.which, err = r.batch.Int32s(session.AdapterRows)
	}
	return r, errors.Join(err, run.Prepare(segmentPredict))
}

// together returns how many of the listed passages, from the first, one call of the step computes.
func (r *predictRun) together(passages []Passage, list []int) (n int) {
	tokens := 0
	for _, i := range list {
		if tokens += len(passages[i].IDs); tokens > r.step.tokens || n == r.step.sequences {
			break
		}
		n++
	}
	return n
}

// predict computes the listed passages, which fit together, and writes their predictions to out.
func (r *predictRun) predict(p *Predictor, passages []Passage, list []int, out []Prediction) error {
	starts := r.fill(p, passages, list)
	if err := r.batch.Put(); err != nil {
		return err
	}
	if err := r.run.Run(segmentPredict); err != nil {
		return err
	}
	values, err := r.read(p)
	if err != nil {
		return err
	}
	for k, i := range list {
		m := p.models[passages[i].Model]
		numbers := values.of(m, k, starts[k], len(passages[i].IDs))
		if err := p.finish(m, numbers); err != nil {
			return err
		}
		out[i].Numbers = numbers
	}
	return nil
}

// fill writes the passages end to end, and padding as a text of its own behind them. It returns each passage's first
// token.
func (r *predictRun) fill(p *Predictor, passages []Passage, list []int) (starts []int) {
	b, at := r.batch, 0
	clear(b.IDs)
	for t := range r.which {
		r.which[t] = -1
	}
	for k, i := range list {
		of := passages[i]
		starts = append(starts, at)
		b.Cu[k] = int32(at)
		if r.spans != nil {
			from, to := p.models[of.Model].span(of.IDs, p.pad)
			r.spans[2*k], r.spans[2*k+1] = int32(at+from), int32(at+to)
		}
		for t, id := range of.IDs {
			r.place(at+t, t, id)
			if r.which != nil {
				r.which[at+t] = int32(of.Model)
			}
		}
		at += len(of.IDs)
	}
	for t := at; t < r.step.tokens; t++ {
		r.place(t, t-at, 0)
	}
	for k := 2 * len(list); k < len(r.spans); k++ {
		r.spans[k] = int32(at)
	}
	b.Cu[len(list)] = int32(at)
	for k := len(list) + 1; k < len(b.Cu); k++ {
		b.Cu[k] = int32(r.step.tokens)
	}
	return starts
}

// place writes a token and its position.
func (r *predictRun) place(at, position int, id int32) {
	if r.batch.IDs[at] = id; r.batch.Positions != nil {
		r.batch.Positions[at] = int32(position)
	}
}

// span returns the tokens [from,to) of a text whose mean stands for it: all of them, or the last one.
func (m PredictorModel) span(ids []int32, pad int32) (from, to int) {
	switch {
	case m.Task.HasScores():
		last := objective.LastToken(ids, pad)
		return last, last + 1
	case m.Pooling.Last:
		return len(ids) - 1, len(ids)
	}
	return 0, len(ids)
}

// predicted are the values of a step on the host, row by row. They are valid until the next run.
type predicted struct {
	vectors, scores, each []float32
	hidden, labels        int // width of vectors, and of scores and each
}

// read reads the step's values, and keeps the bias of the head of a single adapter.
func (r *predictRun) read(p *Predictor) (v predicted, err error) {
	v.hidden = p.Base.Config.HiddenSize
	for _, to := range []struct {
		value *graph.Value
		to    *[]float32
	}{{r.step.vectors, &v.vectors}, {r.step.scores, &v.scores}, {r.step.each, &v.each}} {
		if to.value == nil {
			continue
		}
		t, err := r.run.Read(to.value)
		if err != nil {
			return v, err
		}
		if *to.to = t.F32(); to.to != &v.vectors {
			v.labels = t.Shape[1]
		}
	}
	if r.step.bias != nil && p.models[0].bias == nil {
		t, err := r.run.Read(r.step.bias)
		if err != nil {
			return v, err
		}
		p.models[0].bias = slices.Clone(t.F32())
	}
	return v, nil
}

// of returns a copy of what a model gives for the text at place k of the step, whose n tokens begin at from.
func (v predicted) of(m PredictorModel, k, from, n int) []float32 {
	switch m.Task.Type {
	case adapter.FeatureExtraction:
		return slices.Clone(v.vectors[k*v.hidden:][:v.hidden])
	case adapter.SequenceClassification:
		return slices.Clone(v.scores[k*v.labels:][m.from:m.to])
	}
	numbers := make([]float32, 0, n*m.Task.Labels)
	for t := range n {
		numbers = append(numbers, v.each[(from+t)*v.labels:][m.from:m.to]...)
	}
	return numbers
}
