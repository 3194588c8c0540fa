package kernel

import (
	"fmt"
	"math"
	"slices"
)

// PolicyForm is a loss of a token of a sampled answer as a function of the policy's probability ratio.
type PolicyForm int

// The forms of a PolicyLoss. docs/OBJECTIVES.md has their formulas and sources.
const (
	PolicyClip  PolicyForm = iota // clipped ratio times advantage (PPO, GRPO, DAPO, GSPO, RLOO)
	PolicyCISPO                   // capped ratio, held constant, times advantage times log-probability
	PolicySAPO                    // sigmoid of the ratio in place of the clip
	PolicyVESPO                   // smooth weight of the whole answer, held constant, times log-probability
	PolicyForms                   // the number of forms
)

// RatioLevel is the part of an answer that has one probability ratio.
type RatioLevel int

// The levels of a ratio.
const (
	RatioToken RatioLevel = iota // each token has its own
	RatioMean                    // the answer has one, of the mean log-ratio of its tokens (GSPO)
	RatioSum                     // the answer has one, of the sum of its log-ratios (RLOO)
	RatioLevels
)

// PolicyLoss computes the loss of sampled answers with advantages (GRPO and its kin), with the gradient for every
// token's log-probability.
//
//	logp f[M], old f[M], labels i32[M], starts i32[S+1], answers f[S,6], scale f[1], entropies f[M],
//	(reference f[M] if Beta is not 0), (scaling if Scaled)
//	  -> loss f[], (dlogp f[M] if Grad), the sums f[] in the order of PolicySums
//
// With EntropyBonus, logp is f[2,M], log-probabilities and then entropies as LinearLogProbs gives them, there is no
// input entropies, and dlogp is f[2,M].
//
// Sequence s is the tokens from starts[s] up to, but without, starts[s+1]. Its labelled tokens are its answer.
// old are the log-probabilities with which the answers were sampled; NaN means that they are the policy's own, so that
// the ratio is one and only its gradient counts. answers[s] holds three numbers, each as the sum of two, so that fp32
// holds them with 48 bits: the advantage of the answer, the factor of the sum of its tokens' losses, and the factor of
// the sum of its tokens' entropies in the bonus. loss is scale times the sum over
// all answers; the other scalars are sums that nothing scales. All arithmetic is in float64.
type PolicyLoss struct {
	Form  PolicyForm
	Level RatioLevel
	// Low and High bound the ratio: PolicyClip clips it to 1-Low to 1+High, PolicyCISPO to at most High.
	Low, High float64
	Delta     float64 // the largest ratio of the term that is not clipped (PolicyClip); 0 = unbounded
	Beta      float64 // weight of the KL divergence from the reference; 0 = there is no reference
	// WeighKL multiplies each token's KL divergence by the ratio, which makes its gradient unbiased off-policy.
	WeighKL bool
	// Above and Below are the temperatures of PolicySAPO for advantages above zero and for others.
	Above, Below float64
	// K and Lambda are the exponents of PolicyVESPO's weight for advantages of zero or more, KBelow and LambdaBelow for
	// others.
	K, Lambda, KBelow, LambdaBelow float64
	// TopEntropy is the share of the batch's tokens with the highest entropies whose loss counts; 1 = all.
	TopEntropy float64
	// OffPolicy leaves out answers of negative advantage whose mean old log-probability exceeds the policy's by more; 0
	// = none.
	OffPolicy float64
	// EntropyBonus is the weight of the tokens' entropies, which the loss is lowered by; 0 = none.
	EntropyBonus float64
	Grad         bool // computes dlogp
	Scaled       bool // multiplies dlogp, but not the loss, by the loss scale
}

// The sums of a PolicyLoss beside the loss, each over all answers.
const (
	PolicyEntropy = iota // entropies of the tokens
	PolicyKL             // KL divergences of the tokens from the reference, as the loss has them
	PolicyLow            // tokens, or answers that have one ratio, below the clip with a negative advantage
	PolicyHigh           // tokens, or answers that have one ratio, above the clip with a positive advantage
	PolicyPhi            // weights of PolicyVESPO, one an answer
	PolicyGap            // absolute differences of the tokens' log-probabilities from the old ones
	PolicySums           // the number of sums
)

// Name returns "policy_loss".
func (PolicyLoss) Name() string { return "policy_loss" }

// patterns are the shapes of the inputs.
func (o PolicyLoss) patterns() []string {
	p := []string{"f[M]", "f[M]", "i32[M]", "i32[B]", "f[S,6]", "f[1]"}
	if o.EntropyBonus != 0 {
		p[0] = "f[2,M]"
	} else {
		p = append(p, "f[M]")
	}
	if o.Beta != 0 {
		p = append(p, "f[M]")
	}
	return withScaling(o.Scaled, p...)
}

// Shape returns the types of the loss, the gradient and the sums.
func (o PolicyLoss) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, o.patterns()...)
	if err != nil {
		return nil, err
	}
	for i := range in {
		if i != 2 && i != 3 && in[i].DType != in[0].DType {
			return nil, fmt.Errorf("input %d is %v, input 0 is %v: they must have one element type", i, in[i], in[0])
		}
	}
	if d.At('B') != d.At('S')+1 {
		return nil, fmt.Errorf("input 3 is %v and input 4 is %v: there must be one start more than answers", in[3],
			in[4])
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	one := T(in[0].DType)
	out := []Type{one}
	if o.Grad {
		out = append(out, in[0])
	}
	return append(out, slices.Repeat([]Type{one}, PolicySums)...), nil
}

// check checks the attributes.
func (o PolicyLoss) check() error {
	switch {
	case o.Form < 0 || o.Form >= PolicyForms:
		return fmt.Errorf("attribute Form is %d, want 0 to %d", o.Form, PolicyForms-1)
	case o.Level < 0 || o.Level >= RatioLevels:
		return fmt.Errorf("attribute Level is %d, want 0 to %d", o.Level, RatioLevels-1)
	case !(o.Low >= 0) || !(o.High >= 0) || !(o.Delta >= 0):
		return fmt.Errorf("attributes Low, High and Delta are %v, %v and %v, want 0 or more", o.Low, o.High, o.Delta)
	case o.Form == PolicySAPO && (!(o.Above > 0) || !(o.Below > 0)):
		return fmt.Errorf("attributes Above and Below are %v and %v, want numbers above 0", o.Above, o.Below)
	case !(o.TopEntropy > 0 && o.TopEntropy <= 1):
		return fmt.Errorf("attribute TopEntropy is %v, want above 0 to 1", o.TopEntropy)
	}
	for _, x := range []float64{o.Beta, o.K, o.Lambda, o.KBelow, o.LambdaBelow, o.OffPolicy, o.EntropyBonus} {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("an attribute is %v, want a finite number", x)
		}
	}
	return nil
}

// Terminal marks the end of a graph: the gradient belongs to the loss itself.
func (PolicyLoss) Terminal() {}

// Grads returns the gradient that the forward pass computed.
func (o PolicyLoss) Grads() Backward {
	grads := make([]Ref, len(o.patterns()))
	if o.Grad {
		grads[0] = Out(1)
	}
	return Backward{Grads: grads}
}

// Scratch holds the entropies of the answers' tokens in their order, where a quantile of them is wanted.
func (o PolicyLoss) Scratch(in []Type, _ int) int64 {
	if o.TopEntropy >= 1 {
		return 0
	}
	return T(F64, in[1].Shape[0]).Bytes()
}

// ScratchGPU holds the limit of entropies and the loss and sums of each answer.
func (PolicyLoss) ScratchGPU(in, _ []Type, _ int) int64 {
	return T(F64, 1+(PolicySums+1)*in[4].Shape[0]).Bytes()
}

// Stored keeps everything in fp32, labels and starts as they are.
func (o PolicyLoss) Stored(in []DType) (want, out []DType) {
	results := 1 + PolicySums
	if o.Grad {
		results++
	}
	want, out = pairStored(in, 2, results)
	want[3] = I32
	return want, out
}

// CPU binds the float64 or the float32 body.
func (o PolicyLoss) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], bindPolicyLoss[float32], bindPolicyLoss[float64])(c, o, in, out)
}

// policyLoss is a bound PolicyLoss.
type policyLoss[F Float] struct {
	PolicyLoss
	logp, old, entropies []F
	reference            []F // nil = there is none
	labels, starts       []int32
	answers              []F // [S,6]
	scale, scaling       []F
	loss                 []F
	dlogp, dentropies    []F // nil = not wanted
	sums                 [PolicySums][]F
	sorted               []float64 // scratch for a quantile; nil = none is wanted
	limit                float64   // the least entropy of a token whose loss counts
	total                [PolicySums]float64
}

func bindPolicyLoss[F Float](c *CPU, o PolicyLoss, in, out []Tensor) func() {
	M := in[1].Shape[0]
	p := &policyLoss[F]{PolicyLoss: o, logp: Floats[F](in[0]), old: Floats[F](in[1]), labels: in[2].I32(),
		starts: in[3].I32(), answers: Floats[F](in[4]), scale: Floats[F](in[5]),
		scaling: lossScaling[F](o.Scaled, in, len(in)-1)}
	rest := in[6:]
	if o.EntropyBonus != 0 {
		p.logp, p.entropies = p.logp[:M], p.logp[M:]
	} else {
		p.entropies, rest = Floats[F](rest[0]), rest[1:]
	}
	if o.Beta != 0 {
		p.reference = Floats[F](rest[0])
	}
	p.loss, out = Floats[F](out[0]), out[1:]
	if o.Grad {
		p.dlogp, out = Floats[F](out[0]), out[1:]
		if o.EntropyBonus != 0 {
			p.dlogp, p.dentropies = p.dlogp[:M], p.dlogp[M:]
		}
	}
	for i := range p.sums {
		p.sums[i] = Floats[F](out[i])
	}
	if o.TopEntropy < 1 {
		p.sorted = NewTensor(T(F64, M), c.Scratch).F64()
	}
	return p.run
}

func (p *policyLoss[F]) run() {
	clear(p.dlogp)
	clear(p.dentropies)
	p.limit, p.total = math.Inf(-1), [PolicySums]float64{}
	if p.sorted != nil {
		p.limit = p.quantile(1 - p.TopEntropy)
	}
	loss := 0.0
	for s := range len(p.starts) - 1 {
		loss += p.answer(s)
	}
	p.loss[0] = F(loss * float64(p.scale[0]))
	for i, x := range p.total {
		p.sums[i][0] = F(x)
	}
}

// tokens yields the labelled tokens of a sequence.
func (p *policyLoss[F]) tokens(s int) func(yield func(t int) bool) {
	return func(yield func(t int) bool) {
		first, end := tokensOf(p.starts, s, len(p.labels))
		for t := first; t < end; t++ {
			if p.labels[t] != Untrained && !yield(t) {
				return
			}
		}
	}
}

// quantile returns the q-quantile of the entropies of all answers' tokens, interpolated linearly between two of them.
func (p *policyLoss[F]) quantile(q float64) float64 {
	n := 0
	for s := range len(p.starts) - 1 {
		for t := range p.tokens(s) {
			p.sorted[n] = float64(p.entropies[t])
			n++
		}
	}
	if n == 0 {
		return 0
	}
	slices.Sort(p.sorted[:n])
	at := q * float64(n-1)
	low := int(at)
	high := min(low+1, n-1)
	return p.sorted[low] + (at-float64(low))*(p.sorted[high]-p.sorted[low])
}

// answerRatio is what the tokens of an answer have in common.
type answerRatio struct {
	n               int     // tokens
	mean, sum       float64 // log-ratio: mean and sum over the tokens
	clamped         float64 // sum of the log-ratios, each from -20 to 20
	factor, entropy float64 // factors of the answer's losses and entropies
	advantage       float64
	kept            bool // the answer is not left out as off-policy
}

// d returns the log-ratio of a token.
func (p *policyLoss[F]) d(t int) float64 {
	if old := float64(p.old[t]); !math.IsNaN(old) {
		return float64(p.logp[t]) - old
	}
	return 0 * float64(p.logp[t]) // NaN stays NaN
}

// ratio measures an answer.
func (p *policyLoss[F]) ratio(s int) (a answerRatio) {
	own := p.answers[6*s:][:6]
	for i, to := range []*float64{&a.advantage, &a.factor, &a.entropy} {
		*to = float64(own[2*i]) + float64(own[2*i+1])
	}
	for t := range p.tokens(s) {
		d := p.d(t)
		a.n++
		a.sum += d
		a.clamped += min(max(d, -20), 20)
	}
	a.mean = a.sum / float64(max(a.n, 1))
	a.kept = !(p.OffPolicy != 0 && a.advantage < 0 && -a.mean > p.OffPolicy)
	return a
}

// answer returns the loss of an answer, and adds its gradients and sums.
func (p *policyLoss[F]) answer(s int) (loss float64) {
	a := p.ratio(s)
	if a.n == 0 {
		return 0
	}
	common := [RatioLevels]float64{RatioMean: math.Exp(a.mean), RatioSum: math.Exp(a.sum)}[p.Level]
	phi := p.phi(a)
	if p.Form == PolicyVESPO {
		p.total[PolicyPhi] += phi
	}
	if p.Level != RatioToken {
		p.count(common, a.advantage)
	}
	dcommon := 0.0 // gradient of the answer's loss for its common ratio
	for t := range p.tokens(s) {
		w := common
		if p.Level == RatioToken {
			w = math.Exp(p.d(t))
			p.count(w, a.advantage)
		}
		x := p.token(t, w, phi, a)
		loss += x.loss
		p.total[PolicyEntropy] += float64(p.entropies[t])
		if !math.IsNaN(float64(p.old[t])) {
			p.total[PolicyGap] += math.Abs(p.d(t))
		}
		if p.Level == RatioToken {
			x.dlogp += x.dratio * w
		} else {
			dcommon += x.dratio
		}
		p.add(t, x.dlogp, a)
	}
	if p.Level == RatioToken || p.dlogp == nil {
		return loss
	}
	each := dcommon * common
	if p.Level == RatioMean {
		each /= float64(a.n)
	}
	for t := range p.tokens(s) {
		p.dlogp[t] += F(each * p.by())
	}
	return loss
}

// by is the factor of gradients.
func (p *policyLoss[F]) by() float64 { return float64(p.scale[0]) * float64(p.scaling[LossScaleNow]) }

// add adds to the gradient for a token's log-probability, and that of the bonus for its entropy.
func (p *policyLoss[F]) add(t int, dlogp float64, a answerRatio) {
	if p.dlogp != nil {
		p.dlogp[t] += F(dlogp * p.by())
	}
	if p.dentropies != nil {
		p.dentropies[t] = F(-p.EntropyBonus * a.entropy * p.by())
	}
}

// count counts a ratio outside of the bounds.
func (p *policyLoss[F]) count(w, advantage float64) {
	low, high := 1-p.Low, 1+p.High
	if p.Form == PolicyCISPO {
		low, high = math.Inf(-1), p.High
	}
	if w < low && advantage < 0 {
		p.total[PolicyLow]++
	}
	if w > high && advantage > 0 {
		p.total[PolicyHigh]++
	}
}

// tokenTerm is the loss of a token and its gradients, for the ratio and for the log-probability itself.
type tokenTerm struct{ loss, dratio, dlogp float64 }

// token returns the loss of a token whose ratio is w.
func (p *policyLoss[F]) token(t int, w, phi float64, a answerRatio) (x tokenTerm) {
	if a.kept && float64(p.entropies[t]) >= p.limit || math.IsNaN(float64(p.entropies[t])) {
		x = p.surrogate(float64(p.logp[t]), w, phi, a.advantage)
	}
	if p.reference != nil {
		q := float64(p.reference[t]) - float64(p.logp[t])
		kl, dkl := math.Exp(q)-q-1, 1-math.Exp(q)
		if p.WeighKL {
			x.dratio += p.Beta * kl
			kl, dkl = kl*w, dkl*w
		}
		x.loss, x.dlogp = x.loss+p.Beta*kl, x.dlogp+p.Beta*dkl
		p.total[PolicyKL] += kl
	}
	x.loss, x.dratio, x.dlogp = x.loss*a.factor, x.dratio*a.factor, x.dlogp*a.factor
	x.loss -= p.EntropyBonus * a.entropy * float64(p.entropies[t])
	return x
}

// surrogate returns the loss of a token without KL divergence and factor.
func (p *policyLoss[F]) surrogate(logp, w, phi, advantage float64) (x tokenTerm) {
	switch p.Form {
	case PolicyCISPO:
		x.dlogp = -min(w, p.High) * advantage
		x.loss = x.dlogp * logp
	case PolicySAPO:
		tau := p.Below
		if advantage > 0 {
			tau = p.Above
		}
		z := tau * (w - 1)
		x.loss, x.dratio = -4/tau*sigmoid(z)*advantage, -4*sigmoidSlope(z)*advantage
	case PolicyVESPO:
		x.dlogp = -phi * advantage
		x.loss = x.dlogp * logp
	default:
		free, dfree := w, 1.0
		if p.Delta > 0 && w > p.Delta {
			free, dfree = p.Delta, 0
		}
		clipped, dclipped := min(max(w, 1-p.Low), 1+p.High), 1.0
		if clipped != w {
			dclipped = 0
		}
		if clipped*advantage < free*advantage {
			free, dfree = clipped, dclipped
		}
		x.loss, x.dratio = -free*advantage, -dfree*advantage
	}
	return x
}

// phi returns PolicyVESPO's weight of an answer.
func (p *policyLoss[F]) phi(a answerRatio) float64 {
	if p.Form != PolicyVESPO {
		return 0
	}
	k, lambda := p.K, p.Lambda
	if a.advantage < 0 {
		k, lambda = p.KBelow, p.LambdaBelow
	}
	log := min(max(a.clamped, math.Log(1e-8)), 20)
	return math.Exp(lambda + k*log - lambda*math.Exp(log))
}

// Cost counts some functions for each token.
func (o PolicyLoss) Cost(in, out []Type, _ Content) Cost {
	return Cost{moved(in, out), int64(in[1].Shape[0]) * 32}
}
