package kernel

import (
	"fmt"
	"math"
)

// BalanceLoss adds to a loss how unevenly the experts are used (Fedus et al., "Switch Transformers", 2021, equations 4
// to 6, as transformers' load_balancing_loss_func): over the rows of all L layers' logits but for those of padding,
//
//	aux = E * sum over e of f_e P_e;  f_e = how often e is among a row's TopK largest / rows;  P_e = mean of softmax(logits)_e
//
//	loss f[], labels i32[M], scale f[1], real i32[M], 0 where there is padding, (scaling if Scaled), L times logits f[M,E] -> sum f[], L times dlogits f[M,E]
//	sum = loss + Coef * aux * scale * (labels that are trained)
//
// With Scores a row's logits stand for the weights of its TopK experts, softmax of their logits, and zeros for the
// others, of which the softmax above is taken: what gpt-oss' router returns.
//
// scale is 1 / (trained labels of the whole step), so that a step's micro-batches count by their trained labels. The
// gradients for the logits are computed along the way, as LinearCrossEntropy's is.
type BalanceLoss struct {
	Layers int // L
	TopK   int
	Scores bool
	Coef   float64
	Scaled bool // as LinearCrossEntropy's
}

func (BalanceLoss) Name() string { return "moe_balance" }

// logits returns the place of the first layer's logits among the inputs.
func (o BalanceLoss) logits() int {
	if o.Scaled {
		return 5
	}
	return 4
}

func (o BalanceLoss) Shape(in []Type) ([]Type, error) {
	if o.Layers < 1 || len(in) != o.logits()+o.Layers {
		return nil, fmt.Errorf("takes %d inputs and the logits of %d layers, one or more, got %d inputs", o.logits(),
			o.Layers, len(in))
	}
	want := withScaling(o.Scaled, "f[]", "i32[M]", "f[1]", "i32[M]")
	for range in[o.logits():] {
		want = append(want, "f[M,E]")
	}
	d, err := Want(in, want...)
	if err != nil {
		return nil, err
	}
	if o.TopK < 1 || o.TopK > min(d.At('E'), MaxTopK) {
		return nil, fmt.Errorf("attribute TopK is %d, want 1 to %d of the %d experts", o.TopK, MaxTopK, d.At('E'))
	}
	for i := range in {
		if i != 1 && i != 3 && in[i].DType != in[0].DType {
			return nil, fmt.Errorf("input %d is %v, input 0 is %v: they must hold the same type of number", i, in[i],
				in[0])
		}
	}
	return append([]Type{in[0]}, in[o.logits():]...), nil
}

// Terminal marks the end of a graph: the gradients are those of the loss itself.
func (BalanceLoss) Terminal() {}

func (o BalanceLoss) Grads() Backward {
	grads := make([]Ref, o.logits()+max(o.Layers, 0))
	grads[0] = Upstream()
	for i := range o.Layers {
		grads[o.logits()+i] = Out(1 + i)
	}
	return Backward{Grads: grads}
}

// Scratch returns the bytes of each expert's share of the rows and its mean probability, in float64.
func (o BalanceLoss) Scratch(in []Type, _ int) int64 {
	return T(F64, 2, in[o.logits()].Shape[1]).Bytes()
}

func (o BalanceLoss) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], balanceLoss[float32], balanceLoss[float64])(c, o, in, out)
}

func balanceLoss[F Float](c *CPU, o BalanceLoss, in, out []Tensor) func() {
	loss, labels, scale, real, sum := Floats[F](in[0]), in[1].I32(), Floats[F](in[2]), in[3].I32(), Floats[F](out[0])
	tokens, width := in[o.logits()].Shape[0], in[o.logits()].Shape[1]
	share, add, gradient := NewTensor(T(F64, 2*width), c.Scratch).F64(), addRow[F], balanceRow[F]
	chosen, mean := share[:width], share[width:]
	if o.Scores {
		add, gradient = addScores[F], scoresRow[F]
	}
	var layers, grads [][]F
	for i, x := range in[o.logits():] {
		layers, grads = append(layers, Floats[F](x)), append(grads, Floats[F](out[1+i]))
	}
	scaling := []F{1}
	if o.Scaled {
		scaling = Floats[F](in[4])[LossScaleNow:]
	}
	return func() {
		rows := 0
		for _, r := range real {
			if r != 0 {
				rows++
			}
		}
		all := float64(len(layers) * rows)
		clear(share)
		for _, l := range layers {
			for t := range tokens {
				if real[t] != 0 {
					add(chosen, mean, l[t*width:][:width], o.TopK)
				}
			}
		}
		aux := 0.0
		for e := range width {
			chosen[e], mean[e] = chosen[e]/max(all, 1), mean[e]/max(all, 1)
			aux += float64(chosen[e] * mean[e])
		}
		trained := 0
		for _, l := range labels {
			if l != Untrained {
				trained++
			}
		}
		weight := o.Coef * float64(width) * float64(scale[0]) * float64(trained)
		sum[0] = F(float64(loss[0]) + float64(weight*aux))
		weight *= float64(scaling[0]) / max(all, 1)
		for i, l := range layers {
			for t := range tokens {
				if d := grads[i][t*width:][:width]; real[t] != 0 {
					gradient(d, l[t*width:][:width], chosen, o.TopK, weight)
				} else {
					clear(d)
				}
			}
		}
	}
}

// addRow counts a row's k largest logits, and adds its softmax.
func addRow[F Float](chosen, mean []float64, logits []F, k int) {
	var taken [MaxTopK]int32
	for j := range min(k, MaxTopK) {
		taken[j] = int32(nextExpert(logits, taken[:j]))
		chosen[taken[j]]++
	}
	top := float64(logits[taken[0]])
	sum := expSum(logits, top)
	for e, x := range logits {
		mean[e] += math.Exp(float64(x)-top) / sum
	}
}

// balanceRow is weight * d(sum of chosen_e p_e)/dlogits of a row.
func balanceRow[F Float](dl, logits []F, chosen []float64, _ int, weight float64) {
	top := float64(logits[nextExpert(logits, nil)])
	sum, inner := expSum(logits, top), 0.0
	for e, x := range logits {
		inner += float64(math.Exp(float64(x)-top) / sum * chosen[e])
	}
	for e, x := range logits {
		dl[e] = F(weight * math.Exp(float64(x)-top) / sum * (chosen[e] - inner))
	}
}

func (o BalanceLoss) Cost(in, out []Type, _ Content) Cost {
	return Cost{moved(in, out), 8 * int64(o.Layers) * int64(in[o.logits()].Elems())}
}

// A row's scores are the weights of its k experts, softmax of their logits, and zeros for the others. Their softmax
// over all E experts is p_e = exp(score_e) / all, where a score is at most 1 and exp(0) is 1.

// scoresOf returns the scores of a row's k largest logits, and the sum of exp(score) over all its logits.
func scoresOf[F Float](logits []F, k int) (experts [MaxTopK]int32, scores [MaxTopK]float64, all float64) {
	for j := range min(k, MaxTopK) {
		experts[j] = int32(nextExpert(logits, experts[:j]))
	}
	top, sum := float64(logits[experts[0]]), 0.0
	for j := range min(k, MaxTopK) {
		scores[j] = math.Exp(float64(logits[experts[j]]) - top)
		sum += scores[j]
	}
	all = float64(len(logits) - k)
	for j := range min(k, MaxTopK) {
		scores[j] /= sum
		all += math.Exp(scores[j])
	}
	return experts, scores, all
}

// addScores counts a row's k largest logits, and adds the softmax of its scores.
func addScores[F Float](chosen, mean []float64, logits []F, k int) {
	experts, scores, all := scoresOf(logits, k)
	for e := range mean {
		mean[e] += 1 / all
	}
	for j, e := range experts[:min(k, MaxTopK)] {
		chosen[e]++
		mean[e] += (math.Exp(scores[j]) - 1) / all
	}
}

// scoresRow is weight * d(sum of chosen_e p_e)/dlogits of a row.
func scoresRow[F Float](dl, logits []F, chosen []float64, k int, weight float64) {
	experts, scores, all := scoresOf(logits, k)
	inner := 0.0 // sum of chosen_e p_e
	for _, f := range chosen {
		inner += f / all
	}
	for j, e := range experts[:min(k, MaxTopK)] {
		inner += float64(chosen[e] * (math.Exp(scores[j]) - 1) / all)
	}
	var d [MaxTopK]float64 // for the scores
	mean := 0.0
	for j, e := range experts[:min(k, MaxTopK)] {
		d[j] = math.Exp(scores[j]) / all * (chosen[e] - inner)
		mean += float64(d[j] * scores[j])
	}
	clear(dl)
	for j, e := range experts[:min(k, MaxTopK)] {
		dl[e] = F(weight * scores[j] * (d[j] - mean))
	}
}
