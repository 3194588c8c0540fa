package objective

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// The names of objectives over a classification head. The first is also the name of their section.
const (
	classificationName = "classification"
	tokenClassesName   = "token_classification"
	rerankName         = "rerank"
)

// Values of ClassificationConfig.ProblemType.
const (
	SingleLabel = "single_label"
	MultiLabel  = "multi_label"
	Regression  = "regression"
)

// ClassificationConfig is the section of training.objective: classification and token_classification.
type ClassificationConfig struct {
	// ProblemType is what a row has: one label of several (cross-entropy), any number of labels (multi_label, binary
	// cross-entropy of each), or numbers (regression, squared error). Tokens have one label of several.
	ProblemType string `yaml:"problem_type" default:"single_label" resume:"fixed"`
	// Labels lists the names of the labels, in the order of their numbers. Rows have names or numbers. Empty means that
	// rows have numbers alone.
	Labels []string `yaml:"labels,omitempty" resume:"fixed"`
	// NumLabels is the number of labels, or of numbers of a regression. 0 means as many as Labels, and 1 for a
	// regression.
	NumLabels int `yaml:"num_labels" range:"[0,100000]" resume:"fixed"`
}

// Choices returns the values of problem_type.
func (ClassificationConfig) Choices() map[string][]string {
	return map[string][]string{"problem_type": {SingleLabel, MultiLabel, Regression}}
}

func (ClassificationConfig) objectives() []string {
	return []string{classificationName, tokenClassesName}
}

// Count returns the number of scores of the head.
func (c ClassificationConfig) Count() int {
	switch {
	case c.NumLabels > 0:
		return c.NumLabels
	case len(c.Labels) > 0:
		return len(c.Labels)
	case c.ProblemType == Regression:
		return 1
	}
	return 0
}

func (c ClassificationConfig) problems() (all []error) {
	bad := func(format string, args ...any) { all = append(all, fmt.Errorf("classification."+format, args...)) }
	for i, name := range c.Labels {
		if name == "" || slices.Contains(c.Labels[:i], name) {
			bad("labels: %q is empty or is listed twice", name)
		}
	}
	switch {
	case c.Count() == 0:
		bad("labels: is empty: list the names of the labels, or set classification.num_labels where rows have numbers")
	case len(c.Labels) > 0 && c.NumLabels > 0 && c.NumLabels != len(c.Labels):
		bad("num_labels: is %d, and classification.labels lists %d: remove one of them", c.NumLabels, len(c.Labels))
	case c.Count() == 1 && c.ProblemType == SingleLabel:
		bad("labels: one label is always the right one: list at least two, or set classification.problem_type to " +
			"regression")
	}
	return all
}

// classes is the loss of a classification head over whole sequences or over tokens.
type classes struct {
	ClassificationConfig
	form   kernel.ClassForm
	tokens bool // each token has a label
}

func newClassification(c Config) Objective {
	s := settings(c.Classification)
	form := map[string]kernel.ClassForm{SingleLabel: kernel.ClassSingle, MultiLabel: kernel.ClassMulti,
		Regression: kernel.ClassRegression}[s.ProblemType]
	return classes{ClassificationConfig: s, form: form}
}

func newTokenClassification(c Config) Objective {
	return classes{ClassificationConfig: settings(c.Classification), tokens: true}
}

// newRerank returns the loss of a reranker: binary cross-entropy of one score of two texts, as CrossEncoder of
// sentence-transformers has it.
func newRerank(Config) Objective {
	return classes{ClassificationConfig: ClassificationConfig{ProblemType: MultiLabel, NumLabels: 1},
		form: kernel.ClassMulti}
}

// Names of a micro-batch's data.
const (
	nameClasses = "classes"
	nameTargets = "targets"
)

// Divisor is the number of sequences, or of tokens with a label.
func (o classes) Divisor() Count {
	if o.tokens {
		return Tokens
	}
	return Sequences
}

// Numbers are the accuracy, or the mean absolute error of a regression, and those of whole evaluations.
func (o classes) Numbers() []Number {
	if o.form == kernel.ClassRegression {
		return append([]Number{{Name: "mae", Per: o.Divisor()}}, o.judgedNumbers()...)
	}
	return append([]Number{{Name: "accuracy", Per: o.Divisor(), HigherIsBetter: true}}, o.judgedNumbers()...)
}

// Aim says which targets rows have.
func (o classes) Aim() dataset.Aim {
	kind := [...]dataset.AimKind{dataset.AimClass, dataset.AimLabels, dataset.AimNumbers}[o.form]
	if o.tokens {
		kind = dataset.AimTokens
	}
	return dataset.Aim{Kind: kind, Names: o.Labels, Count: o.Count()}
}

// CheckRows refuses rows without a label.
func (o classes) CheckRows(r *dataset.Report) error { return checkAimed(r, o.Aim()) }

func (o classes) scores() int { return o.Count() }

func (o classes) checkTask(t adapter.Task) error {
	want := adapter.SequenceClassification
	if o.tokens {
		want = adapter.TokenClassification
	}
	switch {
	case t.Type != want:
		return wrongTask(want, t.Type)
	case t.Labels != o.Count():
		return fmt.Errorf("the run has %d labels, and the adapter's head has %d", o.Count(), t.Labels)
	}
	return nil
}

// Declare adds classes and the scale, and for whole sequences pooled tokens, and targets where a row has several.
func (o classes) Declare(n *nn.Net, prefix string, s session.Shape) Inputs {
	checkWhole(n)
	rows := s.Tokens
	if !o.tokens {
		rows = s.Sequences
	}
	in := Inputs{n.Batch(prefix+nameClasses, kernel.T(kernel.I32, rows)),
		n.Batch(prefix+nameScale, kernel.T(n.Float(), 1))}
	if !o.tokens {
		in = append(in, declareSpans(n, prefix, s))
	}
	if o.form != kernel.ClassSingle {
		in = append(in, n.Batch(prefix+nameTargets, kernel.T(n.Float(), rows, o.Count())))
	}
	return in
}

// Bind finds the data of Declare in the memory of a plan.
func (o classes) Bind(b *session.Batch) (Filler, error) {
	f := &classFiller{classes: o}
	ints, floats := map[string]*[]int32{nameClasses: &f.labels}, map[string]*[]float32{nameScale: &f.scale}
	if !o.tokens {
		ints[nameSpans] = &f.spans
	}
	if o.form != kernel.ClassSingle {
		floats[nameTargets] = &f.targets
	}
	return f, errors.Join(bindInts(b, ints), bindFloats(b, floats))
}

// classFiller writes a micro-batch's labels.
type classFiller struct {
	classes
	labels, spans  []int32   // [S] or [M], [S,2]
	targets, scale []float32 // [S,L] or nil, [1]
}

// Fill writes a micro-batch and returns how many rows or tokens have a label.
func (f *classFiller) Fill(b dataset.Batch, _ session.Part) (labelled int) {
	for i := range f.labels {
		f.labels[i] = dataset.Ignore
	}
	clear(f.targets)
	groups, segments := b.Sequences()
	if !f.tokens {
		lastTokens(f.spans, b, segments)
	}
	for k := range b.Rows {
		targets := b.RowTargets(k)
		if f.tokens {
			for t, x := range targets {
				f.labels[b.Starts[k]+t] = int32(x)
			}
			continue
		}
		if len(targets) == 0 {
			continue
		}
		s := int(segments[groups[k]])
		if f.labels[s] = 0; f.form == kernel.ClassSingle {
			f.labels[s] = int32(targets[0])
		} else {
			copy(f.targets[s*f.Count():][:f.Count()], targets)
		}
	}
	for _, l := range f.labels {
		if l != dataset.Ignore {
			labelled++
		}
	}
	return labelled
}

// Scale sets what the loss is multiplied with.
func (f *classFiller) Scale(s float32) { f.scale[0] = s }

// Train builds the loss with its gradient.
func (o classes) Train(n *nn.Net, at Network, in Inputs) Outcome { return o.build(n, at, in, true) }

// Eval builds the loss without a gradient.
func (o classes) Eval(n *nn.Net, at Network, in Inputs) Outcome { return o.build(n, at, in, false) }

func (o classes) build(n *nn.Net, at Network, in Inputs, grad bool) Outcome {
	refuseBalanceLoss(n)
	if n.Err() != nil {
		return Outcome{}
	}
	k := kernel.ClassLoss{Form: o.form, Bias: at.ScoreBias != nil, Grad: grad, Scaled: at.Scaling != nil}
	values := []*graph.Value{nil, in[0]}
	if o.tokens {
		values[0] = n.Apply(kernel.MatMul{TransB: true, FP32Out: true}, at.Hidden, at.Scores)
	} else {
		values[0] = scoresOf(n, at, in[2])
	}
	if o.form != kernel.ClassSingle {
		values = append(values, in[len(in)-1])
	}
	if k.Bias {
		values = append(values, at.ScoreBias)
	}
	if values = append(values, in[1]); k.Scaled {
		values = append(values, at.Scaling)
	}
	out := n.ApplyAll(k, values...)
	if n.Err() != nil {
		return Outcome{}
	}
	sum := out[len(out)-2]
	if o.form == kernel.ClassRegression {
		sum = out[len(out)-1]
	}
	of := Outcome{Loss: out[0], Sums: []*graph.Value{sum}}
	if !grad {
		if of.Outputs = values[:1]; k.Bias {
			of.Outputs = []*graph.Value{values[0], at.ScoreBias}
		}
	}
	return of
}
