package kernel

import (
	"fmt"
	"math"
)

// RouteExperts chooses TopK experts for every token by a router's logits, and how much each counts: its softmax
// probability over all experts, with Normalise divided by the sum of the chosen ones (Shazeer et al., "Outrageously
// Large Neural Networks", 2017; transformers' MixtralSparseMoeBlock).
//
//	logits f[M,E] -> weights f[M,TopK], experts i32[M,TopK]
//
// The experts of a token are in descending order of their logits, of equal ones the lower index first. A logit that is no
// number counts as the least.
type RouteExperts struct {
	TopK      int
	Normalise bool
}

// MaxTopK bounds the experts of a token.
const MaxTopK = 64

func (RouteExperts) Name() string { return "moe_route" }

func (o RouteExperts) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,E]")
	if err != nil {
		return nil, err
	}
	if o.TopK < 1 || o.TopK > min(d.At('E'), MaxTopK) {
		return nil, fmt.Errorf("attribute TopK is %d, want 1 to %d of the %d experts of input 0", o.TopK, MaxTopK, d.At('E'))
	}
	return []Type{T(in[0].DType, d.At('M'), o.TopK), T(I32, d.At('M'), o.TopK)}, nil
}

func (o RouteExperts) Grads() Backward {
	return Backward{
		Calls: []Call{{RouteExpertsGrad{o.Normalise}, []Ref{In(0), Out(1), Upstream()}}},
		Grads: []Ref{FromCall(0, 0)},
	}
}

func (o RouteExperts) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], routeExperts[float32], routeExperts[float64])(c, o, in, out)
}

func routeExperts[F Float](c *CPU, o RouteExperts, in, out []Tensor) func() {
	logits, weights, experts := Floats[F](in[0]), Floats[F](out[0]), out[1].I32()
	rows, width, k := in[0].Shape[0], in[0].Shape[1], o.TopK
	return c.Range(rows, rowGrain(width*k), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			l, w, e := logits[i*width:][:width], weights[i*k:][:k], experts[i*k:][:k]
			for j := range e {
				e[j] = int32(nextExpert(l, e[:j]))
			}
			top := float64(l[e[0]])
			sum := expSum(l, top)
			if o.Normalise {
				sum = 0
				for _, at := range e {
					sum += math.Exp(float64(l[at]) - top)
				}
			}
			for j, at := range e {
				w[j] = F(math.Exp(float64(l[at])-top) / sum)
			}
		}
	})
}

// nextExpert is the largest logit's place but for those that are taken.
func nextExpert[F Float](logits []F, taken []int32) int {
	best := -1
next:
	for i, x := range logits {
		for _, t := range taken {
			if int(t) == i {
				continue next
			}
		}
		if best < 0 || x > logits[best] || logits[best] != logits[best] && x == x {
			best = i
		}
	}
	return best
}

// expSum is the sum of exp(x - top).
func expSum[F Float](x []F, top float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	return sum
}

// RouteExpertsGrad is the gradient of RouteExperts for the logits.
//
//	logits f[M,E], experts i32[M,TopK], dw f[M,TopK] -> dlogits f[M,E]
//	p = softmax, over the chosen experts alone with Normalise;  dlogits = p*(dw - sum(p*dw)), dw = 0 of the others
type RouteExpertsGrad struct{ Normalise bool }

func (RouteExpertsGrad) Name() string { return "moe_route_grad" }

func (RouteExpertsGrad) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,E]", "i32[M,K]", "f[M,K]"); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 2); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

func (o RouteExpertsGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], routeExpertsGrad[float32], routeExpertsGrad[float64])(c, o, in, out)
}

func routeExpertsGrad[F Float](c *CPU, o RouteExpertsGrad, in, out []Tensor) func() {
	logits, experts, dw, dl := Floats[F](in[0]), in[1].I32(), Floats[F](in[2]), Floats[F](out[0])
	rows, width, k := in[0].Shape[0], in[0].Shape[1], in[1].Shape[1]
	return c.Range(rows, rowGrain(width), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			l, e, dw, dl := logits[i*width:][:width], experts[i*k:][:k], dw[i*k:][:k], dl[i*width:][:width]
			clear(dl)
			if !inside(e, width) {
				continue
			}
			top, sum, mean := float64(l[e[0]]), 0.0, 0.0
			for j, at := range e {
				p := math.Exp(float64(l[at]) - top)
				sum, mean = sum+p, mean+float64(p*float64(dw[j]))
			}
			if !o.Normalise {
				sum = expSum(l, top)
			}
			mean /= sum
			if !o.Normalise {
				for at, x := range l {
					dl[at] = F(-math.Exp(float64(x)-top) / sum * mean)
				}
			}
			for j, at := range e {
				dl[at] = F(math.Exp(float64(l[at])-top) / sum * (float64(dw[j]) - mean))
			}
		}
	})
}

// inside tells whether all indices are below n.
func inside(index []int32, n int) bool {
	for _, i := range index {
		if i < 0 || int(i) >= n {
			return false
		}
	}
	return true
}

func (RouteExperts) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 4) }

func (RouteExpertsGrad) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 5) }
