package objective

import (
	"math"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// crossEntropy is the mean of the trained tokens' negative log-likelihoods. In training, models whose configuration asks for
// it add how unevenly their experts are used.
type crossEntropy struct{}

const (
	nameLabels = "labels"
	nameScale  = "loss scale"
)

func (crossEntropy) Divisor() Count { return Tokens }

// perplexity is the exponential of a mean negative log-likelihood.
func perplexity(of string) Number { return Number{Name: "ppl", Of: of, Derive: math.Exp} }

func (crossEntropy) Numbers() []Number { return []Number{perplexity(Loss)} }

func (crossEntropy) Declare(n *nn.Net, prefix string, tokens int) Inputs {
	return Inputs{n.Batch(prefix+nameLabels, kernel.T(kernel.I32, tokens)), n.Batch(prefix+nameScale, kernel.T(n.Float(), 1))}
}

func (crossEntropy) Train(n *nn.Net, at Network, in Inputs) Outcome {
	loss := n.Apply(kernel.LinearCrossEntropy{Chunk: at.LossRows, Grad: true, Scaled: at.Scaling != nil, Cap: at.LogitCap}, at.values(in)...)
	return Outcome{Loss: balanced(n, loss, at, in)}
}

// balanced adds to the loss how unevenly the experts of a model are used, where its configuration asks for it.
func balanced(n *nn.Net, loss *graph.Value, at Network, in Inputs) *graph.Value {
	if b := n.Balance(); b != nil {
		return b.Add(n, loss, in[0], in[1], at.Scaling)
	}
	return loss
}

func (crossEntropy) Eval(n *nn.Net, at Network, in Inputs) Outcome {
	out := n.ApplyAll(kernel.LinearCrossEntropy{Chunk: at.LossRows, Cap: at.LogitCap}, at.Hidden, at.Head, in[0], in[1])
	if n.Err() != nil {
		return Outcome{}
	}
	return Outcome{Loss: out[0], Each: out[1]}
}

func (crossEntropy) Bind(b *session.Batch) (Filler, error) {
	labels, err := b.Int32s(nameLabels)
	if err != nil {
		return nil, err
	}
	scale, err := b.Float32s(nameScale)
	if err != nil {
		return nil, err
	}
	return &labelled{labels: labels, scale: scale}, nil
}

// labelled is a cross-entropy's data: each place's next token, and the scale.
type labelled struct {
	labels []int32
	scale  []float32
	whole  []int32 // of all ranks, where this one has a part
}

func (l *labelled) Fill(b dataset.Batch, own session.Part) int {
	if own == (session.Part{}) {
		return ShiftLabels(l.labels, b.Labels, b.CuSeqlens)
	}
	if len(l.whole) < len(b.Labels) {
		l.whole = make([]int32, len(b.Labels))
	}
	trained := ShiftLabels(l.whole, b.Labels, b.CuSeqlens)
	own.Copy(l.labels, l.whole[:len(b.Labels)], dataset.Ignore)
	return trained
}

func (l *labelled) Scale(s float32) { l.scale[0] = s }

// ShiftLabels writes to each place what it must predict, the next token's label, and returns how many
// places are trained. A sequence's last place predicts nothing. cu are the sequences' borders. dst may be longer.
func ShiftLabels(dst, labels, cu []int32) (trained int) {
	dst = dst[:len(labels)]
	copy(dst, labels[1:])
	dst[len(labels)-1] = dataset.Ignore
	for _, end := range cu {
		if end > 0 {
			dst[end-1] = dataset.Ignore
		}
	}
	for _, l := range dst {
		if l != dataset.Ignore {
			trained++
		}
	}
	return trained
}
