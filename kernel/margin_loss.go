package kernel

import (
	"fmt"
	"math"
	"slices"
)

// MarginForm is a loss of a preference pair that needs no reference.
type MarginForm int

// The losses of MarginLoss. docs/OBJECTIVES.md has their formulas and sources.
const (
	MarginSigmoid MarginForm = iota // CPO
	MarginHinge
	MarginIPO
	MarginSimPO // SimPO, and with Alpha AlphaPO
	MarginOdds  // ORPO
	MarginForms // the number of forms
)

// MarginLoss computes a loss of preference pairs that needs no reference (CPO, SimPO, ORPO) from the summed
// log-probabilities of their answers, with the gradient for the sums.
//
//	policy f[S], counts f[S], likelihood f[S], trained f[S], pairs i32[P,2], scale f[1], (scaling if Scaled)
//	  -> loss f[], (dpolicy f[S], dlikelihood f[S] if Grad),
//	     rewards of the chosen f[], of the rejected f[], accuracy f[], margins f[],
//	     log-probabilities of the chosen f[], of the rejected f[], negative log-likelihood f[],
//	     log odds ratio f[], its log sigmoid f[]
//
// pairs[k] are the sequences of the chosen and of the rejected answer of pair k; a negative index means that there is
// no pair k. counts are the numbers of an answer's tokens. likelihood and trained are the sum of log-probabilities and
// the number of the tokens whose mean negative log-likelihood over the batch's chosen rows is added, Likelihood times.
// That mean depends on which pairs share a micro-batch, as TRL has it. loss is scale times the sum over pairs; the other
// scalars are sums over pairs that nothing scales. The last two are zero unless Form is MarginOdds. All arithmetic is in
// float64.
type MarginLoss struct {
	Form       MarginForm
	Beta       float64 // factor of the margin, above 0
	Smoothing  float64 // share of wrong labels that MarginSigmoid and MarginSimPO assume, 0 to below 0.5
	Gamma      float64 // margin that MarginSimPO wants
	Alpha      float64 // replaces a log-probability x by (1 - exp(-Alpha x)) / Alpha; 0 = it stays
	Likelihood float64 // weight of the negative log-likelihood of chosen rows
	Grad       bool    // computes dpolicy and dlikelihood
	Scaled     bool    // multiplies the gradients, but not the loss, by the loss scale
}

// marginSums is the number of sums over pairs beside the loss.
const marginSums = 9

// The places of the last sums of a MarginLoss.
const (
	marginLikelihood = 6 + iota
	marginOdds
	marginRatio
)

// Name returns "margin_loss".
func (MarginLoss) Name() string { return "margin_loss" }

// Shape returns the types of the loss, the gradients and the nine sums.
func (o MarginLoss) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, withScaling(o.Scaled, "f[S]", "f[S]", "f[S]", "f[S]", "i32[P,2]", "f[1]")...)
	if err != nil {
		return nil, err
	}
	for i := 1; i < len(in); i++ {
		if i != 4 && in[i].DType != in[0].DType {
			return nil, fmt.Errorf("input %d is %v, input 0 is %v: they must have one element type", i, in[i], in[0])
		}
	}
	finite := func(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
	switch {
	case o.Form < 0 || o.Form >= MarginForms:
		return nil, fmt.Errorf("attribute Form is %d, want 0 to %d", o.Form, MarginForms-1)
	case !(o.Beta > 0) || !finite(o.Beta):
		return nil, fmt.Errorf("attribute Beta is %v, want a number above 0", o.Beta)
	case !(o.Smoothing >= 0 && o.Smoothing < 0.5):
		return nil, fmt.Errorf("attribute Smoothing is %v, want 0 to below 0.5", o.Smoothing)
	case !finite(o.Gamma) || !finite(o.Alpha) || !finite(o.Likelihood):
		return nil, fmt.Errorf("attributes Gamma, Alpha and Likelihood are %v, %v and %v, want finite numbers", o.Gamma,
			o.Alpha, o.Likelihood)
	}
	one, sums := T(in[0].DType), T(in[0].DType, d.At('S'))
	out := []Type{one}
	if o.Grad {
		out = append(out, sums, sums)
	}
	return append(out, slices.Repeat([]Type{one}, marginSums)...), nil
}

// Terminal marks the end of a graph: the gradient belongs to the loss itself.
func (MarginLoss) Terminal() {}

// Grads returns the gradients that the forward pass computed.
func (o MarginLoss) Grads() Backward {
	grads := make([]Ref, 6, 7)
	if o.Scaled {
		grads = grads[:7]
	}
	if o.Grad {
		grads[0], grads[2] = Out(1), Out(2)
	}
	return Backward{Grads: grads}
}

// CPU binds the float64 or the float32 body.
func (o MarginLoss) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], bindMarginLoss[float32], bindMarginLoss[float64])(c, o, in, out)
}

func bindMarginLoss[F Float](_ *CPU, o MarginLoss, in, out []Tensor) func() {
	policy, counts, likelihood, trained := Floats[F](in[0]), Floats[F](in[1]), Floats[F](in[2]), Floats[F](in[3])
	pairs, scale, scaling := in[4].I32(), Floats[F](in[5]), lossScaling[F](o.Scaled, in, 6)
	loss, rest := Floats[F](out[0]), out[1:]
	var dpolicy, dlikelihood []F
	if o.Grad {
		dpolicy, dlikelihood, rest = Floats[F](rest[0]), Floats[F](rest[1]), rest[2:]
	}
	found := func(k int) bool {
		c, x := int(pairs[2*k]), int(pairs[2*k+1])
		return c >= 0 && c < len(policy) && x >= 0 && x < len(policy)
	}
	return func() {
		clear(dpolicy)
		clear(dlikelihood)
		by := float64(scale[0]) * float64(scaling[LossScaleNow])
		var all, sum, tokens, n float64
		var sums [marginSums]float64
		for k := range len(pairs) / 2 {
			if !found(k) {
				continue
			}
			at := [2]int32{pairs[2*k], pairs[2*k+1]}
			var a marginPair
			for side, i := range at {
				a.x[side], a.per[side], a.slope[side] = o.measure(float64(policy[i]), float64(counts[i]))
				a.t[side] = o.transform(a.x[side])
			}
			v, g := o.form(a)
			all += v
			if o.Grad {
				for side, i := range at {
					dpolicy[i] += F(by * g[side] * a.slope[side] * a.per[side])
				}
			}
			right := 0.0
			if a.t[0] > a.t[1] {
				right = 1
			}
			chosen, rejected := o.Beta*a.t[0], o.Beta*a.t[1]
			for i, x := range [...]float64{chosen, rejected, right, chosen - rejected, a.x[0], a.x[1]} {
				sums[i] += x
			}
			if o.Form == MarginOdds {
				sums[marginOdds], sums[marginRatio] = sums[marginOdds]+o.odds(a), sums[marginRatio]-v/o.Beta
			}
			sum, tokens, n = sum+float64(likelihood[at[0]]), tokens+float64(trained[at[0]]), n+1
		}
		if tokens > 0 {
			sums[marginLikelihood] = -n * sum / tokens
			all += o.Likelihood * sums[marginLikelihood]
			for k := range len(pairs) / 2 {
				if o.Grad && found(k) {
					dlikelihood[pairs[2*k]] -= F(by * o.Likelihood * n / tokens)
				}
			}
		}
		loss[0] = F(all * float64(scale[0]))
		for i, x := range sums {
			Floats[F](rest[i])[0] = F(x)
		}
	}
}

// marginPair is a pair's numbers: of the chosen answer at 0, of the rejected at 1.
type marginPair struct {
	x     [2]float64 // log-probability: summed, or averaged over tokens
	t     [2]float64 // x after transform
	slope [2]float64 // derivative of t by x
	per   [2]float64 // derivative of x by the sum
}

// measure returns what a form takes of an answer, from the sum of its log-probabilities and the number of its tokens.
func (o MarginLoss) measure(sum, count float64) (x, per, slope float64) {
	x, per, slope = sum, 1, 1
	if o.Form != MarginSigmoid && o.Form != MarginHinge {
		x, per = sum/count, 1/count
	}
	if o.Alpha != 0 {
		slope = math.Exp(-o.Alpha * x)
	}
	return x, per, slope
}

// transform returns what AlphaPO puts in the place of a log-probability.
func (o MarginLoss) transform(x float64) float64 {
	if o.Alpha == 0 {
		return x
	}
	return (1 - math.Exp(-o.Alpha*x)) / o.Alpha
}

// form returns the loss of a pair and its gradient for t.
func (o MarginLoss) form(a marginPair) (v float64, g [2]float64) {
	b, e, z := o.Beta, o.Smoothing, a.t[0]-a.t[1]
	switch o.Form {
	case MarginHinge:
		if b*z >= 1 {
			return 0, g
		}
		return 1 - b*z, [2]float64{-b, b}
	case MarginIPO:
		z -= 1 / (2 * b)
		return z * z, [2]float64{2 * z, -2 * z}
	case MarginOdds:
		failC, slopeC := logFailure(a.t[0])
		failX, slopeX := logFailure(a.t[1])
		odds := z - failC + failX
		d := -b * sigmoid(-odds)
		return b * softplus(-odds), [2]float64{d * (1 - slopeC), -d * (1 - slopeX)}
	case MarginSimPO:
		z -= o.Gamma / b
	}
	d := b * (e*sigmoid(b*z) - (1-e)*sigmoid(-b*z))
	return (1-e)*softplus(-b*z) + e*softplus(b*z), [2]float64{d, -d}
}

// odds returns the logarithm of the ratio of both answers' odds.
func (MarginLoss) odds(a marginPair) float64 {
	failC, _ := logFailure(a.t[0])
	failX, _ := logFailure(a.t[1])
	return a.t[0] - a.t[1] - failC + failX
}

// certain is the average log-probability at which the odds of an answer stop to grow. A log-probability in fp32 has a
// rounding error of about that size near 0, and at 0 itself, or above it by rounding, the odds are infinite.
const certain = -1e-7

// logFailure returns log(1 - exp(x)), the logarithm of the probability that what has the log-probability x does not
// happen, and its slope. x above certain counts as certain.
func logFailure(x float64) (v, slope float64) {
	if x > certain {
		x = certain
	}
	if x < -math.Ln2 { // each formula cancels where the other is used
		v = math.Log1p(-math.Exp(x))
	} else {
		v = math.Log(-math.Expm1(x))
	}
	return v, math.Exp(x) / math.Expm1(x)
}

// Stored keeps everything in fp32, and pairs as they are.
func (o MarginLoss) Stored(in []DType) (want, out []DType) {
	results := 1 + marginSums
	if o.Grad {
		results += 2
	}
	return pairStored(in, 4, results)
}

// ScratchGPU returns memory for the gradients of pairs in fp64.
func (MarginLoss) ScratchGPU(in, _ []Type, _ int) int64 { return pairScratchGPU(in[4]) }

// Cost counts some functions for each pair.
func (MarginLoss) Cost(in, out []Type, _ Content) Cost {
	return Cost{moved(in, out), int64(in[4].Shape[0]) * 40}
}
