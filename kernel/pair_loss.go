package kernel

import (
	"fmt"
	"math"
	"slices"
)

// PairForm is a loss of a preference pair, by TRL's name of it.
type PairForm int

// The losses of a preference pair. docs/OBJECTIVES.md has their formulas and sources.
const (
	PairSigmoid PairForm = iota
	PairHinge
	PairIPO
	PairEXO
	PairNCA
	PairRobust
	PairBCO
	PairSPPO
	PairAOT
	PairAOTUnpaired
	PairAPOZero
	PairAPODown
	PairDiscoPOP
	PairSigmoidNorm
	PairSFT
	PairForms // the number of forms
)

// PairFormNames are TRL's names of the losses, in the order of PairForm.
var PairFormNames = [PairForms]string{"sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair",
	"sppo_hard", "aot", "aot_unpaired", "apo_zero", "apo_down", "discopop", "sigmoid_norm", "sft"}

// Divergence is the f-divergence from the reference that a PairLoss bounds.
type Divergence int

// The divergences of a PairLoss.
const (
	ReverseKL Divergence = iota
	ForwardKL
	JensenShannon
	AlphaDivergence
	Divergences // the number of divergences
)

// DivergenceNames are TRL's names of the divergences, in the order of Divergence.
var DivergenceNames = [Divergences]string{"reverse_kl", "forward_kl", "js_divergence", "alpha_divergence"}

// PairLoss computes the loss of preference pairs from the summed log-probabilities of their answers under the policy
// and under a reference (DPO and its kin), with the gradient for the policy's sums.
//
//	policy f[S], reference f[S], counts f[S], pairs i32[P,2], scale f[1],
//	(tail f[S], reference tail f[S] if Tail), (entropies f[S] if Weighted), (scaling if Scaled)
//	  -> loss f[], (dpolicy f[S] if Grad), (dtail f[S] if Grad and Tail),
//	     rewards of the chosen f[], of the rejected f[], accuracy f[], margins f[],
//	     log-probabilities of the chosen f[], of the rejected f[]
//
// pairs[k] are the sequences of the chosen and of the rejected answer of pair k; a negative index means that there is
// no pair k. counts are the numbers of an answer's tokens. loss is scale times the sum over pairs and over Weights; the
// other scalars are sums over pairs that nothing scales.
//
// Every form is a function of a pair's log-ratios d = policy - reference, and a few also of counts. PairAOT,
// PairAOTUnpaired and PairSFT are functions of all pairs of the batch together, as TRL has them: their results depend
// on which pairs share a micro-batch. All arithmetic is in float64.
type PairLoss struct {
	Weights    [PairForms]float64 // weight of each form in the loss; 0 leaves it out
	Beta       float64            // strength of the pull to the reference, above 0
	Smoothing  float64            // share of wrong labels that robust, exo_pair and aot assume, 0 to below 0.5
	Tau        float64            // temperature of discopop's mixture, above 0
	Divergence Divergence         // divergence that takes the place of d in the forms of margins
	Alpha      float64            // coefficient of AlphaDivergence, not 1
	// Tail subtracts the share 1 - TailWeight of tail and of reference tail from the sums. These are the sums over the
	// tokens behind the length of the pair's shorter answer (length desensitisation).
	Tail       bool
	TailWeight float64
	// Weighted multiplies each pair's loss by how likely the policy finds both answers (WPO): for each answer by exp of
	// the mean over its tokens of log p - log(sum over v of p_v²). entropies are the sums of the second term, the
	// collision entropies. The gradient takes the factor for a constant.
	Weighted bool
	Grad     bool // computes dpolicy and dtail
	Scaled   bool // multiplies the gradients, but not the loss, by the loss scale
}

// Name returns "pair_loss".
func (PairLoss) Name() string { return "pair_loss" }

// Shape returns the types of the loss, the gradients and the six sums.
func (o PairLoss) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, o.patterns()...)
	if err != nil {
		return nil, err
	}
	for i := 1; i < len(in); i++ {
		if i != 3 && in[i].DType != in[0].DType {
			return nil, fmt.Errorf("input %d is %v, input 0 is %v: they must have one element type", i, in[i], in[0])
		}
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	one, sums := T(in[0].DType), T(in[0].DType, d.At('S'))
	out := []Type{one}
	if o.Grad {
		out = append(out, sums)
	}
	if o.Grad && o.Tail {
		out = append(out, sums)
	}
	return append(out, slices.Repeat([]Type{one}, pairSums)...), nil
}

// pairSums is the number of sums over pairs beside the loss.
const pairSums = 6

func (o PairLoss) patterns() []string {
	p := []string{"f[S]", "f[S]", "f[S]", "i32[P,2]", "f[1]"}
	if o.Tail {
		p = append(p, "f[S]", "f[S]")
	}
	if o.Weighted {
		p = append(p, "f[S]")
	}
	return withScaling(o.Scaled, p...)
}

// check checks the attributes.
func (o PairLoss) check() error {
	anyForm := false
	for i, w := range o.Weights {
		if math.IsNaN(w) || math.IsInf(w, 0) {
			return fmt.Errorf("attribute Weights is %v for %s, want a finite number", w, PairFormNames[i])
		}
		anyForm = anyForm || w != 0
	}
	switch {
	case !anyForm:
		return fmt.Errorf("attribute Weights has no form")
	case !(o.Beta > 0) || math.IsInf(o.Beta, 0):
		return fmt.Errorf("attribute Beta is %v, want a number above 0", o.Beta)
	case !(o.Smoothing >= 0 && o.Smoothing < 0.5):
		return fmt.Errorf("attribute Smoothing is %v, want 0 to below 0.5", o.Smoothing)
	case o.Weights[PairEXO] != 0 && o.Smoothing == 0:
		return fmt.Errorf("attribute Smoothing is 0, and exo_pair takes its logarithm")
	case o.Weights[PairDiscoPOP] != 0 && !(o.Tau > 0):
		return fmt.Errorf("attribute Tau is %v, want a number above 0", o.Tau)
	case o.Divergence < 0 || o.Divergence >= Divergences:
		return fmt.Errorf("attribute Divergence is %d, want 0 to %d", o.Divergence, Divergences-1)
	case o.Divergence == AlphaDivergence && (o.Alpha == 1 || math.IsNaN(o.Alpha) || math.IsInf(o.Alpha, 0)):
		return fmt.Errorf("attribute Alpha is %v, want a finite number other than 1", o.Alpha)
	case o.Tail && !(o.TailWeight >= 0 && o.TailWeight <= 1):
		return fmt.Errorf("attribute TailWeight is %v, want 0 to 1", o.TailWeight)
	}
	return nil
}

// Terminal marks the end of a graph: the gradient belongs to the loss itself.
func (PairLoss) Terminal() {}

// Grads returns the gradients that the forward pass computed.
func (o PairLoss) Grads() Backward {
	grads := make([]Ref, len(o.patterns()))
	if o.Grad {
		grads[0] = Out(1)
	}
	if o.Grad && o.Tail {
		grads[5] = Out(2)
	}
	return Backward{Grads: grads}
}

// sorts reports whether a form sorts the pairs.
func (o PairLoss) sorts() bool { return o.Weights[PairAOT] != 0 || o.Weights[PairAOTUnpaired] != 0 }

// Scratch holds the pairs in the order of two lists of numbers, where a form sorts them.
func (o PairLoss) Scratch(in []Type, _ int) int64 {
	if !o.sorts() {
		return 0
	}
	return T(I32, 2*in[3].Shape[0]).Bytes()
}

// CPU binds the float64 or the float32 body.
func (o PairLoss) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], bindPairLoss[float32], bindPairLoss[float64])(c, o, in, out)
}

// pairLoss is a bound PairLoss.
type pairLoss[F Float] struct {
	PairLoss
	policy, reference, counts []F
	tail, referenceTail       []F // nil = there are none
	entropies                 []F // nil = pairs have no weights
	pairs                     []int32
	scale, scaling            []F
	loss, dpolicy, dtail      []F // no gradients = they are not wanted
	sums                      [pairSums][]F
	// byFirst and bySecond are the pairs in the ascending order of their first and of their second sort key; nil = no
	// form sorts.
	byFirst, bySecond []int32
}

func bindPairLoss[F Float](c *CPU, o PairLoss, in, out []Tensor) func() {
	p := &pairLoss[F]{PairLoss: o, policy: Floats[F](in[0]), reference: Floats[F](in[1]), counts: Floats[F](in[2]),
		pairs: in[3].I32(), scale: Floats[F](in[4]), scaling: lossScaling[F](o.Scaled, in, len(in)-1)}
	rest := in[5:]
	if o.Tail {
		p.tail, p.referenceTail, rest = Floats[F](rest[0]), Floats[F](rest[1]), rest[2:]
	}
	if o.Weighted {
		p.entropies = Floats[F](rest[0])
	}
	p.loss, out = Floats[F](out[0]), out[1:]
	if o.Grad {
		p.dpolicy, out = Floats[F](out[0]), out[1:]
	}
	if o.Grad && o.Tail {
		p.dtail, out = Floats[F](out[0]), out[1:]
	}
	for i := range p.sums {
		p.sums[i] = Floats[F](out[i])
	}
	if n := in[3].Shape[0]; o.sorts() && n > 0 {
		order := NewTensor(T(I32, 2*n), c.Scratch).I32()
		p.byFirst, p.bySecond = order[:n], order[n:]
	}
	return p.run
}

// answerPair is a pair's numbers: of the chosen answer at 0, of the rejected at 1.
type answerPair struct {
	at     [2]int     // sequences
	s, r   [2]float64 // summed log-probabilities of the policy and of the reference
	n      [2]float64 // tokens
	weight float64    // factor of the pair's loss
}

// d returns the log-ratio of an answer.
func (p answerPair) d(side int) float64 { return p.s[side] - p.r[side] }

// pair returns the numbers of pair k; ok is false for an index without a pair.
func (p *pairLoss[F]) pair(k int) (a answerPair, ok bool) {
	a.weight = 1
	for side := range a.at {
		i := int(p.pairs[2*k+side])
		if i < 0 || i >= len(p.policy) {
			return a, false
		}
		a.at[side], a.n[side] = i, float64(p.counts[i])
		a.s[side], a.r[side] = float64(p.policy[i]), float64(p.reference[i])
		if p.entropies != nil {
			a.weight *= math.Exp((a.s[side] + float64(p.entropies[i])) / a.n[side])
		}
		if p.tail != nil {
			a.s[side] -= (1 - p.TailWeight) * float64(p.tail[i])
			a.r[side] -= (1 - p.TailWeight) * float64(p.referenceTail[i])
		}
	}
	return a, true
}

func (p *pairLoss[F]) run() {
	clear(p.dpolicy)
	clear(p.dtail)
	loss := p.batchForms()
	var sums [pairSums]float64
	for k := range len(p.pairs) / 2 {
		a, ok := p.pair(k)
		if !ok {
			continue
		}
		v, g := p.lossOfPair(a)
		loss += a.weight * v
		for side, at := range a.at {
			p.add(at, a.weight*g[side])
		}
		chosen, rejected := p.Beta*a.d(0), p.Beta*a.d(1)
		preferred := 0.0
		if chosen > rejected {
			preferred = 1
		}
		for i, x := range [pairSums]float64{chosen, rejected, preferred, chosen - rejected, a.s[0], a.s[1]} {
			sums[i] += x
		}
	}
	p.loss[0] = F(loss * float64(p.scale[0]))
	for i, x := range sums {
		p.sums[i][0] = F(x)
	}
}

// add adds to the gradient of the loss for the policy's sum of a sequence.
func (p *pairLoss[F]) add(sequence int, g float64) {
	if p.dpolicy == nil {
		return
	}
	g *= float64(p.scale[0]) * float64(p.scaling[LossScaleNow])
	p.dpolicy[sequence] += F(g)
	if p.dtail != nil {
		p.dtail[sequence] -= F((1 - p.TailWeight) * g)
	}
}

// lossOfPair returns the weighted sum of the forms that are functions of one pair, and its gradient for s.
func (p *pairLoss[F]) lossOfPair(a answerPair) (v float64, g [2]float64) {
	for form, w := range p.Weights {
		if w == 0 {
			continue
		}
		x, d := p.form(PairForm(form), a)
		v += w * x
		g[0] += w * d[0]
		g[1] += w * d[1]
	}
	return v, g
}

// batchForms returns the weighted sum of the forms that are functions of all pairs of the batch, and adds their
// gradients.
func (p *pairLoss[F]) batchForms() (loss float64) {
	if w := p.Weights[PairSFT]; w != 0 {
		loss = w * p.likelihood(w)
	}
	for _, form := range []PairForm{PairAOT, PairAOTUnpaired} {
		if w := p.Weights[form]; w != 0 {
			loss += w * p.transport(form, w)
		}
	}
	return loss
}

// likelihood returns PairSFT: the mean negative log-likelihood of the tokens of all chosen answers, once for each pair
// with the pair's weight. Its gradient is multiplied by w.
func (p *pairLoss[F]) likelihood(w float64) float64 {
	var chosen, tokens, weight float64
	for k := range len(p.pairs) / 2 {
		if a, ok := p.pair(k); ok {
			chosen, tokens, weight = chosen+a.s[0], tokens+a.n[0], weight+a.weight
		}
	}
	if tokens == 0 {
		return 0
	}
	for k := range len(p.pairs) / 2 {
		if a, ok := p.pair(k); ok {
			p.add(a.at[0], -w*weight/tokens)
		}
	}
	return -weight * chosen / tokens
}

// sortKeys returns the two numbers by which a form sorts the pairs: PairAOT compares margins of the policy with those
// of the reference, PairAOTUnpaired log-ratios of the chosen answers with those of the rejected.
func sortKeys(form PairForm, a answerPair) (first, second float64) {
	if form == PairAOT {
		return a.s[0] - a.s[1], a.r[0] - a.r[1]
	}
	return a.d(0), a.d(1)
}

// before tells whether a number comes ahead of another in an ascending order, in which NaN is the largest number.
// earlier decides between equal ones. The order is total, so that every rank is taken once whatever the numbers are.
func before(a, b float64, earlier bool) bool {
	switch {
	case a < b:
		return true
	case a > b:
		return false
	case math.IsNaN(a) != math.IsNaN(b):
		return math.IsNaN(b)
	}
	return earlier
}

// sort sets byFirst and bySecond for a form. Pairs with equal keys keep their order.
func (p *pairLoss[F]) sort(form PairForm) {
	n := len(p.pairs) / 2
	for k := range n {
		a, ok := p.pair(k)
		if !ok {
			continue
		}
		x, y := sortKeys(form, a)
		rankFirst, rankSecond := 0, 0
		for other := range n {
			b, ok := p.pair(other)
			if !ok {
				continue
			}
			u, v := sortKeys(form, b)
			if before(u, x, other < k) {
				rankFirst++
			}
			if before(v, y, other < k) {
				rankSecond++
			}
		}
		p.byFirst[rankFirst], p.bySecond[rankSecond] = int32(k), int32(k)
	}
}

// transport returns the loss of a form that sorts the pairs (optimal transport), and adds its gradient multiplied by w.
// The loss at rank i has the weight of pair i of the batch, as TRL has it.
func (p *pairLoss[F]) transport(form PairForm, w float64) (loss float64) {
	p.sort(form)
	rank := 0
	for k := range len(p.pairs) / 2 {
		own, ok := p.pair(k)
		if !ok {
			continue
		}
		a, _ := p.pair(int(p.byFirst[rank]))
		b, _ := p.pair(int(p.bySecond[rank]))
		rank++
		x, _ := sortKeys(form, a)
		_, y := sortKeys(form, b)
		z := p.Beta * (x - y)
		loss += own.weight * ((1-p.Smoothing)*softplus(-z) + p.Smoothing*softplus(z))
		g := w * own.weight * p.Beta * (p.Smoothing*sigmoid(z) - (1-p.Smoothing)*sigmoid(-z))
		p.add(a.at[0], g)
		if form == PairAOT {
			p.add(a.at[1], -g)
		} else {
			p.add(b.at[1], -g)
		}
	}
	return loss
}

// Stored keeps everything in fp32, and pairs as they are.
func (o PairLoss) Stored(in []DType) (want, out []DType) {
	return pairStored(in, 3, 1+o.gradients()+pairSums)
}

// gradients is the number of outputs that are gradients.
func (o PairLoss) gradients() int {
	switch {
	case !o.Grad:
		return 0
	case o.Tail:
		return 2
	}
	return 1
}

// pairStored returns fp32 for inputs and results but the pairs.
func pairStored(in []DType, pairs, results int) (want, out []DType) {
	want, out = slices.Repeat([]DType{F32}, len(in)), slices.Repeat([]DType{F32}, results)
	want[pairs] = I32
	return want, out
}

// ScratchGPU returns memory for the gradients of pairs in fp64 and for two orders of them.
func (PairLoss) ScratchGPU(in, _ []Type, _ int) int64 { return pairScratchGPU(in[3]) }

// pairScratchGPU returns the scratch of a loss of pairs in bytes.
func pairScratchGPU(pairs Type) int64 { return 24 * int64(max(pairs.Shape[0], 1)) }

// Cost counts some functions for each pair.
func (o PairLoss) Cost(in, out []Type, _ Content) Cost {
	forms := 0
	for _, w := range o.Weights {
		if w != 0 {
			forms++
		}
	}
	return Cost{moved(in, out), int64(in[3].Shape[0]) * int64(16*forms+16)}
}
