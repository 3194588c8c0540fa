package objective

import (
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// The names of objectives in Objectives that are a function of each label's log-probability.
const (
	dftName   = "dft"
	focalName = "focal"
)

// FocalConfig is the section of training.objective: focal.
type FocalConfig struct {
	// Gamma is the exponent of the factor (1 - p) of each token's loss, where p is the probability of the label. A
	// higher exponent gives less weight to tokens that the model already predicts. 0 would be cross-entropy; 2 is the
	// choice of the paper (Lin et al. 2017).
	Gamma float64 `yaml:"gamma" default:"2" range:"(0,inf)" resume:"steers"`
}

func (FocalConfig) problems() []error { return nil }

// byToken is the mean over the trained tokens of a function of the log-probability of each token's label. It needs what
// crossEntropy needs of a batch.
type byToken struct {
	crossEntropy
	form  kernel.TokenForm
	gamma float64 // of the focal loss
}

// TrainsHead reports that the loss has no gradient for the vocabulary head.
func (byToken) TrainsHead() bool { return false }

func newDFT(Config) Objective { return byToken{form: kernel.TokenDFT} }

func newFocal(c Config) Objective {
	return byToken{form: kernel.TokenFocal, gamma: settings(c.Focal).Gamma}
}

// Numbers returns the negative log-likelihood and its exponential.
func (byToken) Numbers() []Number {
	return []Number{{Name: "nll", Unit: "nats/token", Per: Tokens}, perplexity("nll")}
}

// Train builds log-probabilities with their slopes and the loss over them.
func (o byToken) Train(n *nn.Net, at Network, in Inputs) Outcome {
	logp := n.ApplyAll(kernel.LinearLogProbs{Chunk: at.LossRows, Grad: true, Cap: at.LogitCap}, at.Hidden, at.Head, in[0])
	if n.Err() != nil {
		return Outcome{}
	}
	values := append([]*graph.Value{logp[0]}, at.values(in)[2:]...)
	out := n.ApplyAll(kernel.TokenLoss{Form: o.form, Gamma: o.gamma, Grad: true, Scaled: at.Scaling != nil,
		Weighted: o.weighted}, values...)
	if n.Err() != nil {
		return Outcome{}
	}
	return Outcome{Loss: balanced(n, out[0], at, in), Sums: out[3:]}
}

// Eval builds the same loss without slopes.
func (o byToken) Eval(n *nn.Net, at Network, in Inputs) Outcome {
	logp := n.ApplyAll(kernel.LinearLogProbs{Chunk: at.LossRows, Cap: at.LogitCap}, at.Hidden, at.Head, in[0])
	if n.Err() != nil {
		return Outcome{}
	}
	out := n.ApplyAll(kernel.TokenLoss{Form: o.form, Gamma: o.gamma, Weighted: o.weighted},
		append([]*graph.Value{logp[0]}, in...)...)
	if n.Err() != nil {
		return Outcome{}
	}
	return Outcome{Loss: out[0], Each: out[1], Sums: out[2:]}
}
