package objective

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// dpoName is the objective's name in Objectives, and its section's.
const dpoName = "dpo"

// DPOConfig is the section of training.objective: dpo. It has the keys and defaults of TRL's DPOConfig.
type DPOConfig struct {
	// LossType lists the losses of a pair whose weighted sum is minimised. sigmoid is DPO itself.
	LossType []string `yaml:"loss_type" default:"sigmoid" resume:"steers"`
	// LossWeights are the weights of the losses in LossType, in their order. Empty = 1 each.
	LossWeights []string `yaml:"loss_weights" form:"numbers" resume:"steers"`
	// Beta is how strongly the loss holds the model near the reference: a smaller one lets it move further. 0.1 is
	// usual, ipo wants 0.01 to 1.
	Beta float64 `yaml:"beta" default:"0.1" range:"(0,inf)" resume:"steers"`
	// LabelSmoothing is the share of pairs whose answers are taken to be the wrong way round, 0 to below 0.5. Only
	// robust, exo_pair, aot and aot_unpaired use it; exo_pair needs it above 0, and 1e-3 is usual.
	LabelSmoothing float64 `yaml:"label_smoothing" range:"[0,0.5)" resume:"steers"`
	// FDivergenceType is the divergence from the reference that the loss bounds.
	FDivergenceType string `yaml:"f_divergence_type" default:"reverse_kl" resume:"steers"`
	// FAlphaDivergenceCoef is the coefficient of alpha_divergence, which must not be 1.
	FAlphaDivergenceCoef float64 `yaml:"f_alpha_divergence_coef" default:"0.5" range:"[0,inf)" resume:"steers"`
	// DiscopopTau is the temperature of discopop's mixture of losses.
	DiscopopTau float64 `yaml:"discopop_tau" default:"0.05" range:"(0,inf)" resume:"steers"`
	// LDAlpha is the weight of an answer's tokens behind the length of the pair's shorter answer (LD-DPO), 0 to 1. 1 =
	// all tokens count alike.
	LDAlpha float64 `yaml:"ld_alpha" default:"1" range:"[0,1]" resume:"fixed"`
	// UseWeighting multiplies each pair's loss by how likely the model finds both answers (WPO).
	UseWeighting bool `yaml:"use_weighting" resume:"fixed"`
}

// Choices are the names of losses and of divergences.
func (DPOConfig) Choices() map[string][]string {
	return map[string][]string{"loss_type": kernel.PairFormNames[:], "f_divergence_type": kernel.DivergenceNames[:]}
}

// weights returns the weight of each loss.
func (c DPOConfig) weights() (all [kernel.PairForms]float64, err error) {
	if len(c.LossWeights) > 0 && len(c.LossWeights) != len(c.LossType) {
		return all, fmt.Errorf("dpo.loss_weights: %d weights for %d losses in dpo.loss_type: give one for each",
			len(c.LossWeights), len(c.LossType))
	}
	for i, name := range c.LossType {
		weight := 1.
		if len(c.LossWeights) > 0 {
			if weight, err = strconv.ParseFloat(c.LossWeights[i], 64); err != nil || weight-weight != 0 {
				return all, fmt.Errorf("dpo.loss_weights: %q is not a finite number", c.LossWeights[i])
			}
			if weight < 0 {
				return all, fmt.Errorf("dpo.loss_weights: the weight of %s is %s, which would make its loss larger: give "+
					"at least 0", name, c.LossWeights[i])
			}
		}
		if form := slices.Index(kernel.PairFormNames[:], name); form >= 0 { // another name is an error of loss_type
			all[form] += weight
		}
	}
	return all, nil
}

func (c DPOConfig) problems() (all []error) {
	w, err := c.weights()
	switch {
	case err != nil:
		all = append(all, err)
	case len(c.LossType) == 0:
		all = append(all, errors.New("dpo.loss_type: names no loss; write sigmoid for DPO itself"))
	case w == [kernel.PairForms]float64{} && c.known():
		all = append(all, fmt.Errorf("dpo.loss_weights: the weights of %s are 0 in all: nothing would be learnt",
			strings.Join(c.LossType, ", ")))
	}
	if w[kernel.PairEXO] != 0 && c.LabelSmoothing == 0 {
		all = append(all, errors.New("dpo.label_smoothing: exo_pair takes its logarithm, so it must be above 0; "+
			"1e-3 is usual"))
	}
	if c.FDivergenceType == kernel.DivergenceNames[kernel.AlphaDivergence] && c.FAlphaDivergenceCoef == 1 {
		all = append(all, errors.New("dpo.f_alpha_divergence_coef: 1 is the limit that reverse_kl has; write "+
			"dpo.f_divergence_type: reverse_kl"))
	}
	return all
}

// known reports whether all losses are known by their names.
func (c DPOConfig) known() bool {
	return !slices.ContainsFunc(c.LossType, func(name string) bool {
		return !slices.Contains(kernel.PairFormNames[:], name)
	})
}

// inert returns the keys that the losses of the section don't read.
func (c DPOConfig) inert() []inertKey {
	w, _ := c.weights()
	without := func(forms ...kernel.PairForm) bool {
		return !slices.ContainsFunc(forms, func(f kernel.PairForm) bool { return w[f] != 0 })
	}
	return []inertKey{
		{"label_smoothing", c.LabelSmoothing != 0 &&
			without(kernel.PairRobust, kernel.PairEXO, kernel.PairAOT, kernel.PairAOTUnpaired),
			"without robust, exo_pair, aot or aot_unpaired in dpo.loss_type (sigmoid ignores it, as in TRL)"},
		{"discopop_tau", c.DiscopopTau != 0.05 && without(kernel.PairDiscoPOP), "without discopop in dpo.loss_type"},
		{"f_divergence_type", c.FDivergenceType != kernel.DivergenceNames[kernel.ReverseKL] &&
			without(kernel.PairSigmoid, kernel.PairHinge, kernel.PairIPO, kernel.PairEXO, kernel.PairRobust,
				kernel.PairDiscoPOP, kernel.PairSigmoidNorm),
			"with dpo.loss_type: " + strings.Join(c.LossType, ", ") + "; sigmoid, hinge, ipo, exo_pair, robust, " +
				"discopop " +
				"and sigmoid_norm use it"},
		{"f_alpha_divergence_coef", c.FAlphaDivergenceCoef != 0.5 &&
			c.FDivergenceType != kernel.DivergenceNames[kernel.AlphaDivergence],
			"but with dpo.f_divergence_type: alpha_divergence"},
	}
}

// dpo is Direct Preference Optimization (Rafailov et al. 2023) and the losses that share its form: each is a function
// of how much more likely than the reference the policy finds both answers of a pair.
type dpo struct {
	DPOConfig
	knownReference
}

func newDPO(c Config) Objective { return dpo{DPOConfig: settings(c.DPO)} }

// Divisor is the number of pairs.
func (dpo) Divisor() Count { return Groups }

// dpoReport is what TRL's DPOTrainer logs of tokens.
var dpoReport = answerReport{entropy: true, accuracy: true}

// Numbers are TRL's rewards and log-probabilities, and what it logs of tokens.
func (dpo) Numbers() []Number { return append(pairNumbers(), dpoReport.numbers()...) }

// Reference reports whether the reference is computed in the step.
func (o dpo) Reference() bool { return o.precomputed == nil }

// referenceForm is the sums of answers and, where the tokens of a tail count less, those of the tails. A pair's tails
// follow from its own two answers.
func (o dpo) referenceForm() ReferenceForm { return ReferenceForm{Tails: o.tail()} }

func (o dpo) reading(values *ReferenceValues) Objective {
	o.precomputed = values
	return o
}

// SharesPrompts reports that a pair's answers may continue one prompt.
func (dpo) SharesPrompts() bool { return true }

// CheckRows refuses rows that are not pairs.
func (dpo) CheckRows(r *dataset.Report) error { return checkPairs(r) }

func (o dpo) tail() bool { return o.LDAlpha != 1 }

func (o dpo) Declare(n *nn.Net, prefix string, s session.Shape) Inputs {
	return o.declare(n, prefix, s, o.referenceForm(), declarePairs(n, prefix, s, o.tail()))
}

func (o dpo) Bind(b *session.Batch) (Filler, error) {
	own, err := bindPairs(b, o.tail())
	if err != nil {
		return nil, err
	}
	return o.bind(b, o.referenceForm(), own)
}

func (o dpo) Train(n *nn.Net, at Network, in Inputs) Outcome { return o.build(n, at, in, true) }

func (o dpo) Eval(n *nn.Net, at Network, in Inputs) Outcome { return o.build(n, at, in, false) }

// build records the loss of a batch, with a gradient or without.
func (o dpo) build(n *nn.Net, at Network, in Inputs, grad bool) Outcome {
	refuseBalanceLoss(n)
	in, referenceSums, referenceTails := o.take(in, o.referenceForm())
	p := pairInputsOf(in)
	loss := o.kernel(grad, at.Scaling != nil)
	head := kernel.LinearLogProbs{Chunk: at.LossRows, Cap: at.LogitCap}
	var reference, counts *graph.Value
	if o.precomputed == nil {
		reference = n.Apply(head, at.Reference, at.Head, p.labels)
		referenceSums, counts = p.sums(n, reference, p.labels)
	}
	head.Grad, head.Statistics = grad, true
	if o.UseWeighting {
		head.Entropy = kernel.EntropyCollision
	}
	policy := n.ApplyAll(head, at.Hidden, at.Head, p.labels)
	if n.Err() != nil {
		return Outcome{}
	}
	policySums, own := p.sums(n, policy[0], p.labels)
	if o.precomputed != nil {
		counts = own
	}
	values := []*graph.Value{policySums, referenceSums, counts, p.pairs, p.scale}
	if p.tail != nil {
		own, _ := p.sums(n, policy[0], p.tail)
		if o.precomputed == nil {
			referenceTails, _ = p.sums(n, reference, p.tail)
		}
		values = append(values, own, referenceTails)
	}
	if o.UseWeighting {
		entropies, _ := p.sums(n, policy[len(policy)-2].Constant(), p.labels)
		values = append(values, entropies)
	}
	if at.Scaling != nil {
		values = append(values, at.Scaling)
	}
	out := n.ApplyAll(loss, values...)
	sums := dpoReport.sums(n, policy[len(policy)-1], p, p.pairs)
	return Outcome{Loss: out[0], Sums: slices.Concat(out[len(out)-len(pairNumbers()):], sums)}
}

// kernel returns the operation that computes the loss of pairs.
func (o dpo) kernel(grad, scaled bool) kernel.PairLoss {
	weights, _ := o.weights() // problems has checked them
	return kernel.PairLoss{
		Weights: weights, Beta: o.Beta, Smoothing: o.LabelSmoothing, Tau: o.DiscopopTau, Alpha: o.FAlphaDivergenceCoef,
		Divergence: kernel.Divergence(slices.Index(kernel.DivergenceNames[:], o.FDivergenceType)),
		Tail:       o.tail(), TailWeight: o.LDAlpha, Weighted: o.UseWeighting, Grad: grad, Scaled: scaled,
	}
}
