package objective

import (
	"math"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// crossEntropy is the mean of the trained tokens' negative log-likelihoods. In training, models whose configuration asks
// for it add how unevenly their experts are used.
type crossEntropy struct {
	weighted bool // each token's loss is multiplied by a weight of its own
}

const (
	nameLabels  = "labels"
	nameScale   = "loss scale"
	nameWeights = "weights"
)

// Divisor returns Tokens, also where tokens have weights: a weight of one half then halves what a token contributes.
func (crossEntropy) Divisor() Count { return Tokens }

// TrainsHead reports that the loss has a gradient for the vocabulary head.
func (crossEntropy) TrainsHead() bool { return true }

// perplexity is the exponential of a mean negative log-likelihood.
func perplexity(of string) Number { return Number{Name: "ppl", Of: of, Derive: math.Exp} }

// Numbers returns the perplexity, and where tokens have weights also the negative log-likelihood without them.
func (o crossEntropy) Numbers() []Number {
	if o.weighted {
		return []Number{{Name: "nll", Unit: "nats/token", Per: Tokens}, perplexity("nll")}
	}
	return []Number{perplexity(Loss)}
}

// Declare adds labels, the scale and, where tokens have some, weights.
func (o crossEntropy) Declare(n *nn.Net, prefix string, s session.Shape) Inputs {
	in := Inputs{n.Batch(prefix+nameLabels, kernel.T(kernel.I32, s.Tokens)),
		n.Batch(prefix+nameScale, kernel.T(n.Float(), 1))}
	if o.weighted {
		in = append(in, n.Batch(prefix+nameWeights, kernel.T(n.Float(), s.Tokens)))
	}
	return in
}

// Train builds the loss with its gradient.
func (o crossEntropy) Train(n *nn.Net, at Network, in Inputs) Outcome {
	if o.weighted {
		k := kernel.SmoothedCrossEntropy{Chunk: at.LossRows, Grad: true, Scaled: at.Scaling != nil, Weighted: true,
			Cap: at.LogitCap, Head: at.headGradient()}
		out := n.ApplyAll(k, at.values(in)...)
		if n.Err() != nil {
			return Outcome{}
		}
		return Outcome{Loss: balanced(n, out[0], at, in), Sums: out[3:4]}
	}
	k := kernel.LinearCrossEntropy{Chunk: at.LossRows, Grad: true, Scaled: at.Scaling != nil, Cap: at.LogitCap,
		Head: at.headGradient()}
	loss := n.Apply(k, at.values(in)...)
	return Outcome{Loss: balanced(n, loss, at, in)}
}

// balanced adds to the loss how unevenly the experts of a model are used, where its configuration asks for it.
func balanced(n *nn.Net, loss *graph.Value, at Network, in Inputs) *graph.Value {
	if b := n.Balance(); b != nil {
		return b.Add(n, loss, in[0], in[1], at.Scaling)
	}
	return loss
}

// Eval builds the loss alone.
func (o crossEntropy) Eval(n *nn.Net, at Network, in Inputs) Outcome {
	if o.weighted {
		k := kernel.SmoothedCrossEntropy{Chunk: at.LossRows, Weighted: true, Cap: at.LogitCap}
		out := n.ApplyAll(k, append([]*graph.Value{at.Hidden, at.Head}, in...)...)
		if n.Err() != nil {
			return Outcome{}
		}
		return Outcome{Loss: out[0], Each: out[1], Sums: out[2:3]}
	}
	out := n.ApplyAll(kernel.LinearCrossEntropy{Chunk: at.LossRows, Cap: at.LogitCap}, at.Hidden, at.Head, in[0], in[1])
	if n.Err() != nil {
		return Outcome{}
	}
	return Outcome{Loss: out[0], Each: out[1]}
}

// Bind finds labels, scale and weights in the memory of a plan.
func (o crossEntropy) Bind(b *session.Batch) (Filler, error) {
	l := &labelled{}
	var err error
	if l.labels, err = b.Int32s(nameLabels); err != nil {
		return nil, err
	}
	if l.scale, err = b.Float32s(nameScale); err != nil {
		return nil, err
	}
	if o.weighted {
		l.weights, err = b.Float32s(nameWeights)
	}
	return l, err
}

// labelled is a cross-entropy's data: each place's next token, and the scale.
type labelled struct {
	labels  []int32
	scale   []float32
	weights []float32 // of each place's next token; nil = all are one
	whole   []int32   // labels of all ranks, where this one has a part
}

// Fill writes the part's labels and weights.
func (l *labelled) Fill(b dataset.Batch, own session.Part) int {
	if l.weights != nil {
		l.weigh(b, own)
	}
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

// weigh writes to each place of the part the weight of the token that it must predict.
func (l *labelled) weigh(b dataset.Batch, own session.Part) {
	if own == (session.Part{}) {
		own.To = len(b.Labels)
	}
	for t := own.From; t < own.To; t++ {
		w := float32(1)
		if b.Weights != nil && t+1 < len(b.Weights) {
			w = b.Weights[t+1]
		}
		l.weights[t-own.From] = w
	}
}

// Scale sets what the loss is multiplied with.
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
