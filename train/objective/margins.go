package objective

import (
	"slices"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// The names of the objectives over pairs that need no reference, and of their sections.
const (
	cpoName   = "cpo"
	simpoName = "simpo"
	orpoName  = "orpo"
)

// CPOConfig is the section of training.objective: cpo. It has the keys and defaults of TRL's CPOConfig.
type CPOConfig struct {
	// LossType is the loss of a pair: sigmoid and hinge take sums of log-probabilities, ipo and simpo averages over
	// tokens. alphapo is simpo without the negative log-likelihood.
	LossType string `yaml:"loss_type" default:"sigmoid" choices:"sigmoid hinge ipo simpo alphapo" resume:"steers"`
	// Beta is the factor of the margin between both answers; 0.1 is usual for sigmoid, 2 for simpo.
	Beta float64 `yaml:"beta" default:"0.1" range:"(0,inf)" resume:"steers"`
	// LabelSmoothing is the share of pairs whose answers are taken to be the wrong way round; sigmoid and simpo use it.
	LabelSmoothing float64 `yaml:"label_smoothing" range:"[0,0.5)" resume:"steers"`
	// CPOAlpha is the weight of the negative log-likelihood of the chosen answers.
	CPOAlpha float64 `yaml:"cpo_alpha" default:"1" range:"[0,inf)" resume:"steers"`
	// SimPOGamma is the margin that simpo wants between both answers.
	SimPOGamma float64 `yaml:"simpo_gamma" default:"0.5" range:"[0,inf)" resume:"steers"`
	// Alpha bends a log-probability x to (1 - exp(-alpha x)) / alpha, as AlphaPO does; 0 leaves it as it is.
	Alpha float64 `yaml:"alpha" range:"[0,inf)" resume:"steers"`
}

func (CPOConfig) problems() []error { return nil }

// SimPOConfig is the section of training.objective: simpo, which is cpo with loss_type: simpo and cpo_alpha: 0.
type SimPOConfig struct {
	// Beta is the factor of the margin between the answers' average log-probabilities; 2 is SimPO's own.
	Beta float64 `yaml:"beta" default:"2" range:"(0,inf)" resume:"steers"`
	// SimPOGamma is the margin that the loss wants between both answers.
	SimPOGamma float64 `yaml:"simpo_gamma" default:"0.5" range:"[0,inf)" resume:"steers"`
	// LabelSmoothing is the share of pairs whose answers are taken to be the wrong way round.
	LabelSmoothing float64 `yaml:"label_smoothing" range:"[0,0.5)" resume:"steers"`
}

func (SimPOConfig) problems() []error { return nil }

// ORPOConfig is the section of training.objective: orpo. It has the key and default of TRL's ORPOConfig.
type ORPOConfig struct {
	// Beta is the weight of the odds ratio beside the negative log-likelihood of the chosen rows; the paper calls it
	// lambda.
	Beta float64 `yaml:"beta" default:"0.1" range:"(0,inf)" resume:"steers"`
}

func (ORPOConfig) problems() []error { return nil }

// marginForms are the forms of the losses of cpo.
var marginForms = map[string]kernel.MarginForm{
	"sigmoid": kernel.MarginSigmoid, "hinge": kernel.MarginHinge, "ipo": kernel.MarginIPO, "simpo": kernel.MarginSimPO,
	"alphapo": kernel.MarginSimPO,
}

func newCPO(c Config) Objective {
	s := settings(c.CPO)
	k := kernel.MarginLoss{Form: marginForms[s.LossType], Beta: s.Beta, Smoothing: s.LabelSmoothing,
		Gamma: s.SimPOGamma, Alpha: s.Alpha, Likelihood: s.CPOAlpha}
	if s.LossType == "alphapo" {
		k.Likelihood = 0
	}
	return margins{loss: k}
}

func newSimPO(c Config) Objective {
	s := settings(c.SimPO)
	return margins{loss: kernel.MarginLoss{Form: kernel.MarginSimPO, Beta: s.Beta, Smoothing: s.LabelSmoothing,
		Gamma: s.SimPOGamma}}
}

func newORPO(c Config) Objective {
	return margins{loss: kernel.MarginLoss{Form: kernel.MarginOdds, Beta: settings(c.ORPO).Beta, Likelihood: 1},
		prompts: true}
}

// margins is a loss of preference pairs that needs no reference: CPO (Xu et al. 2024), SimPO (Meng et al. 2024) and
// ORPO (Hong et al. 2024). To the loss of a pair it may add the negative log-likelihood of the chosen row.
type margins struct {
	loss    kernel.MarginLoss
	prompts bool // the negative log-likelihood counts the prompts' tokens too
}

const (
	nameLikelihood = "likelihood labels"
	nameAllLabels  = "all labels"
)

// Divisor is the number of pairs.
func (margins) Divisor() Count { return Groups }

// Numbers are TRL's rewards and log-probabilities, and the negative log-likelihood where the loss has it.
func (o margins) Numbers() []Number {
	all := pairNumbers()
	if o.loss.Likelihood != 0 {
		all = append(all, Number{Name: "nll_loss", Unit: "nats/token", Per: Groups})
	}
	return all
}

// CheckRows refuses rows that are not pairs.
func (margins) CheckRows(r *dataset.Report) error { return checkPairs(r) }

// Declare adds the data of pairs, labels of the likelihood's tokens, and where these are others than the answers' the
// labels of all of them.
func (o margins) Declare(n *nn.Net, prefix string, s session.Shape) Inputs {
	in := append(declarePairs(n, prefix, s, false), n.Batch(prefix+nameLikelihood, kernel.T(kernel.I32, s.Tokens)))
	if o.prompts {
		in = append(in, n.Batch(prefix+nameAllLabels, kernel.T(kernel.I32, s.Tokens)))
	}
	return in
}

// Bind finds the data of Declare in the memory of a plan.
func (o margins) Bind(b *session.Batch) (Filler, error) {
	pairs, err := bindPairs(b, false)
	if err != nil {
		return nil, err
	}
	f := &marginFiller{pairFiller: pairs}
	if f.likelihood, err = b.Int32s(nameLikelihood); err != nil {
		return nil, err
	}
	if o.prompts {
		f.all, err = b.Int32s(nameAllLabels)
	}
	return f, err
}

// marginFiller writes a micro-batch's pairs and the labels of its likelihood.
type marginFiller struct {
	*pairFiller
	likelihood []int32 // labels of the chosen rows
	// all are labels of the chosen rows with their prompts, and of the rejected answers; nil = prompts don't count.
	all []int32
}

// Fill writes a micro-batch and returns its trained tokens, those of the answers.
func (f *marginFiller) Fill(b dataset.Batch, own session.Part) int {
	trained := f.pairFiller.Fill(b, own)
	for i := range f.likelihood {
		f.likelihood[i] = dataset.Ignore
	}
	if f.all != nil {
		copy(f.all, f.labels)
	}
	for _, chosen := range chosenOf(f.pairs) {
		from, to := b.CuSeqlens[chosen], b.CuSeqlens[chosen+1]
		copy(f.likelihood[from:to], f.labels[from:to])
		if f.all != nil {
			copy(f.likelihood[from:to-1], b.IDs[from+1:to])
			copy(f.all[from:to], f.likelihood[from:to])
		}
	}
	return trained
}

// chosenOf returns the sequences of the chosen answers.
func chosenOf(pairs []int32) (all []int32) {
	for k := 0; k < len(pairs); k += 2 {
		if pairs[k] >= 0 {
			all = append(all, pairs[k])
		}
	}
	return all
}

// Train builds the loss with its gradient.
func (o margins) Train(n *nn.Net, at Network, in Inputs) Outcome { return o.build(n, at, in, true) }

// Eval builds the loss without a gradient.
func (o margins) Eval(n *nn.Net, at Network, in Inputs) Outcome { return o.build(n, at, in, false) }

func (o margins) build(n *nn.Net, at Network, in Inputs, grad bool) Outcome {
	checkUnbalanced(n)
	p, likelihood := pairsIn(in[:4]), in[4]
	labels := in[len(in)-1]
	if !o.prompts {
		labels = p.labels
	}
	each := n.Apply(kernel.LinearLogProbs{Chunk: at.LossRows, Cap: at.LogitCap, Grad: grad}, at.Hidden, at.Head, labels)
	answers, counts := p.sums(n, each, p.labels)
	chosen, trained := p.sums(n, each, likelihood)
	values := []*graph.Value{answers, counts, chosen, trained, p.pairs, p.scale}
	if at.Scaling != nil {
		values = append(values, at.Scaling)
	}
	k := o.loss
	k.Grad, k.Scaled = grad, at.Scaling != nil
	out := n.ApplyAll(k, values...)
	if n.Err() != nil {
		return Outcome{}
	}
	sums := slices.Clone(out[len(out)-len(pairNumbers())-1:])
	return Outcome{Loss: out[0], Sums: sums[:len(o.Numbers())]}
}
