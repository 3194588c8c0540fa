package objective

import (
	"errors"
	"fmt"
	"math"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// contrastiveName is the name of the objective of vectors of texts.
const contrastiveName = "contrastive"

// Values of EmbeddingConfig.Pooling.
const (
	poolMean = "mean"
	poolLast = "last"
)

// EmbeddingConfig is the section of training.objective: contrastive.
type EmbeddingConfig struct {
	// Pooling makes the vector of a text from the vectors of its tokens: mean, or last, the vector of the last token.
	Pooling string `yaml:"pooling" default:"mean" resume:"fixed"`
	// Normalize compares texts by the cosine of the angle of their vectors, and saves that vectors have the length 1.
	// Without it they are compared by dot products.
	Normalize bool `yaml:"normalize" default:"true" resume:"fixed"`
	// Temperature divides the similarities in the loss. 0.05 is the scale of 20 of sentence-transformers.
	Temperature float64 `yaml:"temperature" default:"0.05" range:"(0,1000]" resume:"steers"`
}

// Choices returns the values of pooling.
func (EmbeddingConfig) Choices() map[string][]string {
	return map[string][]string{"pooling": {poolMean, poolLast}}
}

func (EmbeddingConfig) objectives() []string { return []string{contrastiveName} }

func (EmbeddingConfig) problems() []error { return nil }

// contrastive is the loss of vectors of texts (van den Oord et al. 2018), MultipleNegativesRankingLoss of
// sentence-transformers: of all texts of a micro-batch that are not anchors, an anchor's own positive shall be the most
// similar one. The positives and hard negatives of the other rows are its negatives.
type contrastive struct{ EmbeddingConfig }

func newContrastive(c Config) Objective { return contrastive{settings(c.Embedding)} }

// nameContrast is the name of a micro-batch's anchors and candidates, i32[S].
const nameContrast = "targets of anchors"

// Divisor is the number of rows.
func (contrastive) Divisor() Count { return Groups }

// Numbers are means over the rows of a micro-batch, in the order of the sums of kernel.ContrastiveLoss, and those of
// whole evaluations.
func (contrastive) Numbers() []Number {
	return append([]Number{
		{Name: "accuracy", Per: Groups, HigherIsBetter: true},
		{Name: "similarity", Per: Groups, HigherIsBetter: true},
		{Name: "similarity_others", Per: Groups},
	}, contrastive{}.judgedNumbers()...)
}

// Aim reads texts that belong together.
func (contrastive) Aim() dataset.Aim { return dataset.Aim{Kind: dataset.AimPairs} }

// Read changes nothing: the format of the rows says what they are.
func (contrastive) Read(*dataset.Config, int) {}

// CheckBatch refuses micro-batches of one row, whose anchor has no other text to be told from.
func (contrastive) CheckBatch(batchSize int) error {
	if batchSize == 1 {
		return errors.New("training.batch_size: is 1, and the negatives of an anchor are the texts of the other rows " +
			"of its micro-batch: set it to 2 or more, as many as fit")
	}
	return nil
}

// BatchTerm is the negatives of an anchor, which are texts of other rows.
func (contrastive) BatchTerm() string { return "the negatives of an anchor are texts" }

// CheckRows refuses rows that are not texts that belong together, and training rows with a score.
func (contrastive) CheckRows(r *dataset.Report) error {
	switch g := r.Groups; {
	case g.Rows < r.Kept:
		return fmt.Errorf("it learns from texts that belong together, and %d of %d rows are none: write "+
			"dataset.format: pairs with an anchor and a positive, with dataset.fields where the columns have other "+
			"names", r.Kept-g.Rows, r.Kept)
	case g.Aimed > 0 && r.Val != nil:
		return fmt.Errorf("%d of %d training rows have a score, by which only evaluations compare texts: name rows "+
			"with scores in dataset.val_path", g.Aimed, r.Kept)
	}
	return nil
}

func (contrastive) scores() int { return 0 }

// Pooling returns how an objective makes vectors of texts; false for an objective without vectors.
func Pooling(o Objective) (p adapter.Pooling, ok bool) {
	c, ok := o.(contrastive)
	return adapter.Pooling{Last: c.Pooling == poolLast, Normalise: c.Normalize}, ok
}

func (contrastive) checkTask(t adapter.Task) error {
	if t.Type != adapter.FeatureExtraction {
		return wrongTask(adapter.FeatureExtraction, t.Type)
	}
	return nil
}

// Declare adds pooled tokens, anchors and candidates, and the scale.
func (contrastive) Declare(n *nn.Net, prefix string, s session.Shape) Inputs {
	checkWhole(n)
	return Inputs{declareSpans(n, prefix, s), n.Batch(prefix+nameContrast, kernel.T(kernel.I32, s.Sequences)),
		n.Batch(prefix+nameScale, kernel.T(n.Float(), 1))}
}

// Bind finds the data of Declare in the memory of a plan.
func (o contrastive) Bind(b *session.Batch) (Filler, error) {
	f := &contrastFiller{contrastive: o}
	err := bindInts(b, map[string]*[]int32{nameSpans: &f.spans, nameContrast: &f.targets})
	return f, errors.Join(err, bindFloats(b, map[string]*[]float32{nameScale: &f.scale}))
}

// contrastFiller writes a micro-batch's anchors and candidates.
type contrastFiller struct {
	contrastive
	spans, targets []int32 // [S,2], [S]
	scale          []float32
	rows           []contrastRow // of the batch that was written
}

// contrastRow is a row's sequences and its score, which is not a number for a row without one.
type contrastRow struct {
	own   []int32
	score float32
}

// Fill writes a micro-batch and returns its trained tokens, the last ones of texts. The first sequence of a row is an
// anchor, the second its positive, the others are its hard negatives. The sequences of a row with a score are neither.
func (f *contrastFiller) Fill(b dataset.Batch, _ session.Part) int {
	groups, segments := b.Sequences()
	if f.Pooling == poolLast {
		eachSpan(f.spans, b, segments, func(_, to int32) (int32, int32) { return to - 1, to })
	} else {
		eachSpan(f.spans, b, segments, func(from, to int32) (int32, int32) { return from, to })
	}
	for s := range f.targets {
		f.targets[s] = dataset.Ignore
	}
	f.rows = f.rows[:0]
	for k := range b.Rows {
		row := contrastRow{segments[groups[k]:groups[k+1]], float32(math.NaN())}
		if targets := b.RowTargets(k); len(targets) > 0 {
			row.score = targets[0]
		}
		own := row.own
		if f.rows = append(f.rows, row); len(own) < 2 || row.score == row.score {
			continue
		}
		f.targets[own[0]] = own[1]
		for _, s := range own[1:] {
			f.targets[s] = kernel.ContrastCandidate
		}
	}
	return trainedIn(b)
}

// Scale sets what the loss is multiplied with.
func (f *contrastFiller) Scale(s float32) { f.scale[0] = s }

// Train builds the loss with its gradient.
func (o contrastive) Train(n *nn.Net, at Network, in Inputs) Outcome { return o.build(n, at, in, true) }

// Eval builds the loss without a gradient.
func (o contrastive) Eval(n *nn.Net, at Network, in Inputs) Outcome { return o.build(n, at, in, false) }

func (o contrastive) build(n *nn.Net, at Network, in Inputs, grad bool) Outcome {
	refuseBalanceLoss(n)
	if n.Err() != nil {
		return Outcome{}
	}
	vectors := n.Apply(kernel.Pool{}, at.Hidden, in[0])
	values := []*graph.Value{vectors, in[1], in[2]}
	if at.Scaling != nil {
		values = append(values, at.Scaling)
	}
	out := n.ApplyAll(kernel.ContrastiveLoss{Temperature: o.Temperature, Dot: !o.Normalize, Grad: grad,
		Scaled: at.Scaling != nil}, values...)
	if n.Err() != nil {
		return Outcome{}
	}
	of := Outcome{Loss: out[0], Sums: out[len(out)-3:]}
	if !grad {
		of.Outputs = values[:1]
	}
	return of
}
