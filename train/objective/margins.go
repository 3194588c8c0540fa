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

// inert returns the keys that the loss of the section doesn't read.
func (c CPOConfig) inert() []inertKey {
	simpo := c.LossType == "simpo" || c.LossType == "alphapo"
	return []inertKey{
		{"label_smoothing", c.LabelSmoothing != 0 && c.LossType != "sigmoid" && !simpo,
			"with cpo.loss_type: " + c.LossType + "; sigmoid, simpo and alphapo use it"},
		{"simpo_gamma", c.SimPOGamma != 0.5 && !simpo,
			"with cpo.loss_type: " + c.LossType + "; simpo and alphapo use it"},
		{"cpo_alpha", c.CPOAlpha != 1 && c.LossType == "alphapo",
			"with cpo.loss_type: alphapo, which adds no negative log-likelihood; simpo with cpo.alpha does"},
	}
}

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
	return marginObjective{loss: k}
}

func newSimPO(c Config) Objective {
	s := settings(c.SimPO)
	return marginObjective{loss: kernel.MarginLoss{Form: kernel.MarginSimPO, Beta: s.Beta, Smoothing: s.LabelSmoothing,
		Gamma: s.SimPOGamma}}
}

func newORPO(c Config) Objective {
	return marginObjective{loss: kernel.MarginLoss{Form: kernel.MarginOdds, Beta: settings(c.ORPO).Beta, Likelihood: 1},
		likelihoodOfPrompts: true}
}

// marginObjective is a loss of preference pairs that needs no reference: CPO (Xu et al. 2024), SimPO (Meng et al. 2024)
// and ORPO (Hong et al. 2024). To the loss of a pair it may add the negative log-likelihood of the chosen row.
type marginObjective struct {
	loss                kernel.MarginLoss
	likelihoodOfPrompts bool // the negative log-likelihood counts the tokens of prompts too
}

const (
	nameLikelihood = "likelihood labels"
	nameAllLabels  = "all labels"
	nameWholeRows  = "whole rows" // the first token of each sequence, a chosen one's with the prefix that it continues
)

// Divisor is the number of pairs.
func (marginObjective) Divisor() Count { return Groups }

// Numbers are TRL's rewards and log-probabilities, the negative log-likelihood where the loss has it, the odds of ORPO,
// and mean logits.
func (o marginObjective) Numbers() []Number {
	all := pairNumbers()
	if o.loss.Likelihood != 0 {
		all = append(all, Number{Name: "nll_loss", Unit: "nats/token", Per: Groups})
	}
	if o.loss.Form == kernel.MarginOdds {
		all = append(all, Number{Name: "log_odds_chosen", Per: Groups, HigherIsBetter: true},
			Number{Name: "log_odds_ratio", Per: Groups, HigherIsBetter: true})
	}
	return append(all, answerReport{}.numbers()...)
}

// SharesPrompts reports that a pair's answers may continue one prompt.
func (marginObjective) SharesPrompts() bool { return true }

// CheckRows refuses rows that are not pairs.
func (marginObjective) CheckRows(r *dataset.Report) error { return checkPairs(r) }

// Declare adds the data of pairs and the labels of the tokens whose likelihood is added. Where these are not only the
// answers' tokens, it also adds the labels of both.
func (o marginObjective) Declare(n *nn.Net, prefix string, s session.Shape) Inputs {
	in := append(declarePairs(n, prefix, s, false), n.Batch(prefix+nameLikelihood, kernel.T(kernel.I32, s.Tokens)))
	if o.likelihoodOfPrompts && s.Prefixes {
		in = append(in, n.Batch(prefix+nameWholeRows, kernel.T(kernel.I32, s.Sequences+1)))
	}
	if o.likelihoodOfPrompts {
		in = append(in, n.Batch(prefix+nameAllLabels, kernel.T(kernel.I32, s.Tokens)))
	}
	return in
}

// Bind finds the data of Declare in the memory of a plan.
func (o marginObjective) Bind(b *session.Batch) (Filler, error) {
	pairs, err := bindPairs(b, false)
	if err != nil {
		return nil, err
	}
	f := &marginFiller{pairFiller: pairs}
	if f.likelihood, err = b.Int32s(nameLikelihood); err != nil {
		return nil, err
	}
	if !o.likelihoodOfPrompts {
		return f, nil
	}
	if f.all, err = b.Int32s(nameAllLabels); err != nil {
		return nil, err
	}
	f.whole, _ = b.Int32s(nameWholeRows) // it is not there where no sequence continues another
	return f, nil
}

// marginFiller writes a micro-batch's pairs and the labels of its likelihood.
type marginFiller struct {
	*pairFiller
	likelihood []int32 // labels of the chosen rows
	// all are labels of the chosen rows with their prompts, and of the rejected answers; nil = prompts don't count.
	all []int32
	// whole [S+1] are the sequences' first tokens, where a chosen sequence begins with the prefix that it continues and
	// the prefix has no token; nil = no sequence continues another.
	whole []int32
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
	copy(f.whole, b.CuSeqlens)
	for _, chosen := range chosenOf(f.pairs) {
		from, to := b.CuSeqlens[chosen], b.CuSeqlens[chosen+1]
		if f.whole != nil && b.Prefixes != nil && chosen > 0 && b.Prefixes[chosen] == chosen-1 {
			from = b.CuSeqlens[chosen-1]
			f.whole[chosen] = from
		}
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

// marginNumbers is the number of the sums of kernel.MarginLoss.
const marginNumbers = 9

// Train builds the loss with its gradient.
func (o marginObjective) Train(n *nn.Net, at Network, in Inputs) Outcome {
	return o.build(n, at, in, true)
}

// Eval builds the loss without a gradient.
func (o marginObjective) Eval(n *nn.Net, at Network, in Inputs) Outcome {
	return o.build(n, at, in, false)
}

func (o marginObjective) build(n *nn.Net, at Network, in Inputs, grad bool) Outcome {
	refuseBalanceLoss(n)
	p, likelihood := pairInputsOf(in[:4]), in[4]
	labels := in[len(in)-1]
	if !o.likelihoodOfPrompts {
		labels = p.labels
	}
	head := kernel.LinearLogProbs{Chunk: at.LossRows, Cap: at.LogitCap, Grad: grad, Statistics: true}
	ofTokens := n.ApplyAll(head, at.Hidden, at.Head, labels)
	if n.Err() != nil {
		return Outcome{}
	}
	logProbs := ofTokens[0]
	answers, counts := p.sums(n, logProbs, p.labels)
	reported := answerReport{}.sums(n, ofTokens[len(ofTokens)-1], p, p.pairs)
	if len(in) > 6 { // Declare added the whole rows
		p.borders = in[5]
	}
	chosen, trained := p.sums(n, logProbs, likelihood)
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
	all := out[len(out)-marginNumbers:]
	sums := slices.Clone(all[:len(pairNumbers())])
	if o.loss.Likelihood != 0 {
		sums = append(sums, all[len(pairNumbers())])
	}
	if o.loss.Form == kernel.MarginOdds {
		sums = append(sums, all[marginNumbers-2:]...)
	}
	return Outcome{Loss: out[0], Sums: append(sums, reported...)}
}
