package objective

import (
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// crossEntropy is the sum of the trained tokens' negative log-likelihoods, times a scale; in training, of a model that asks for
// it, with how unevenly its experts are used.
type crossEntropy struct{}

const (
	nameLabels = "labels"
	nameScale  = "loss scale"
)

func (crossEntropy) Declare(n *nn.Net, prefix string, tokens int) Inputs {
	return Inputs{n.Batch(prefix+nameLabels, kernel.T(kernel.I32, tokens)), n.Batch(prefix+nameScale, kernel.T(n.Float(), 1))}
}

func (crossEntropy) Train(n *nn.Net, at Network, in Inputs) *graph.Value {
	values := []*graph.Value{at.Hidden, at.Head, in[0], in[1]}
	if at.Scaling != nil {
		values = append(values, at.Scaling)
	}
	loss := n.Apply(kernel.LinearCrossEntropy{Chunk: at.LossRows, Grad: true, Scaled: at.Scaling != nil, Cap: at.LogitCap}, values...)
	if b := n.Balance(); b != nil {
		loss = b.Add(n, loss, in[0], in[1], at.Scaling)
	}
	return loss
}

func (crossEntropy) Eval(n *nn.Net, at Network, in Inputs) (loss, each *graph.Value) {
	out := n.ApplyAll(kernel.LinearCrossEntropy{Chunk: at.LossRows, Cap: at.LogitCap}, at.Hidden, at.Head, in[0], in[1])
	if n.Err() != nil {
		return nil, nil
	}
	return out[0], out[1]
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
