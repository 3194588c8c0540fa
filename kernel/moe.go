package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/cuda"
)

// RouteExperts chooses TopK experts for every token by a router's logits, and how much each counts: its softmax
// probability over all experts, with Normalise divided by the sum of the chosen ones (Shazeer et al., "Outrageously
// Large Neural Networks", 2017; transformers' MixtralSparseMoeBlock).
//
//	logits f[M,E] -> weights f[M,TopK], experts i32[M,TopK]
//
// The experts of a token are in descending order of their logits, of equal ones the lower index first. A logit that is
// no number counts as the least.
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
		return nil, fmt.Errorf("attribute TopK is %d, want 1 to %d of the %d experts of input 0", o.TopK, MaxTopK,
			d.At('E'))
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

// nextExpert returns the largest logit's place but for those that are taken.
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

// expSum returns the sum of exp(x - top).
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

// SortByExpert puts the tokens' slots, TopK a token, in the order of their experts; slots of one expert stay in the
// order of the tokens. Slots of padding are with no expert: behind those of the last there are as many sorted rows
// without a slot.
//
//	experts i32[M,TopK], (real i32[M], 0 where a token is padding, if Real) -> rows i32[M,TopK], source i32[M*TopK], starts i32[Experts+1]
//
// rows is the sorted row of each slot, -1 of padding's, source the slot of each sorted row (token*TopK + place), -1 of
// one without, and expert e has the sorted rows starts[e]..starts[e+1]. An expert outside [0,Experts) counts as the
// last.
type SortByExpert struct {
	Experts int
	Real    bool
}

func (SortByExpert) Name() string { return "moe_sort" }

func (o SortByExpert) Shape(in []Type) ([]Type, error) {
	want := []string{"i32[M,K]"}
	if o.Real {
		want = append(want, "i32[M]")
	}
	d, err := Want(in, want...)
	if err != nil {
		return nil, err
	}
	if o.Experts < 1 || o.Experts > MaxExperts {
		return nil, fmt.Errorf("attribute Experts is %d, want 1 to %d", o.Experts, MaxExperts)
	}
	return []Type{in[0], T(I32, d.At('M')*d.At('K')), T(I32, o.Experts+1)}, nil
}

// MaxExperts bounds the experts of a layer.
const MaxExperts = 1024

func (o SortByExpert) CPU(_ *CPU, in, out []Tensor) func() {
	experts, rows, source, starts := in[0].I32(), out[0].I32(), out[1].I32(), out[2].I32()
	padding := func(int) bool { return false }
	if o.Real {
		real, k := in[1].I32(), in[0].Shape[1]
		padding = func(slot int) bool { return real[slot/k] == 0 }
	}
	of := func(slot int) int {
		if e := int(experts[slot]); e >= 0 && e < o.Experts {
			return e
		}
		return o.Experts - 1
	}
	return func() {
		clear(starts)
		for i := range experts {
			if !padding(i) {
				starts[of(i)+1]++
			}
		}
		for e := range o.Experts {
			starts[e+1] += starts[e]
		}
		for i := range source {
			source[i] = -1
		}
		for i := range experts { // starts[e] is where e's next slot goes, and at the end where e+1 begins
			if padding(i) {
				rows[i] = -1
				continue
			}
			e := of(i)
			rows[i], source[starts[e]] = starts[e], int32(i)
			starts[e]++
		}
		copy(starts[1:], starts[:o.Experts])
		starts[0] = 0
	}
}

func (SortByExpert) Cost(in, out []Type, _ Content) Cost { return Cost{Bytes: moved(in, out)} }

// GatherTokens gives every token's row to each of its slots, in the order of SortByExpert.
//
//	x f[M,C], rows i32[M,K], source i32[M*K] -> y f[M*K,C];  y[r] = x[source[r]/K], 0 where row r has no slot
type GatherTokens struct{}

// Cheap: its output costs less to recompute than to keep.
func (GatherTokens) Cheap() {}

func (GatherTokens) Name() string { return "moe_gather" }

func (GatherTokens) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "i32[M,K]", "i32[S]")
	if err != nil {
		return nil, err
	}
	if err := checkSlots(in, d); err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, d.At('S'), d.At('C'))}, nil
}

// checkSlots checks that there is a sorted row for each token's slot.
func checkSlots(in []Type, d Dims) error {
	if d.At('S') != d.At('M')*d.At('K') {
		return fmt.Errorf("inputs %v do not fit: %d tokens of %d slots have %d sorted rows, want one a slot", in,
			d.At('M'), d.At('K'), d.At('S'))
	}
	return nil
}

func (GatherTokens) Grads() Backward {
	return Backward{
		Calls: []Call{{SumTokens{}, []Ref{Upstream(), In(1), In(2)}}},
		Grads: []Ref{FromCall(0, 0), {}, {}},
	}
}

func (GatherTokens) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], gatherTokens[float32], gatherTokens[float64])(c, in, out)
}

func gatherTokens[F Float](c *CPU, in, out []Tensor) func() {
	x, source, y := Floats[F](in[0]), in[2].I32(), Floats[F](out[0])
	tokens, width, k := in[0].Shape[0], in[0].Shape[1], in[1].Shape[1]
	return c.Range(len(source), rowGrain(width), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			if t := int(source[r]) / max(k, 1); source[r] >= 0 && t < tokens {
				copy(y[r*width:][:width], x[t*width:])
			} else {
				clear(y[r*width:][:width])
			}
		}
	})
}

// SumTokens adds up each token's slots, in the order of the slots: GatherTokens backwards.
//
//	x f[M*K,C], rows i32[M,K], source i32[M*K] -> y f[M,C];  y[t] = sum of x[rows[t,j]] over j, 0 where a slot has no row
type SumTokens struct{}

func (SumTokens) Name() string { return "moe_sum" }

func (SumTokens) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[S,C]", "i32[M,K]", "i32[S]")
	if err != nil {
		return nil, err
	}
	if err := checkSlots(in, d); err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, d.At('M'), d.At('C'))}, nil
}

func (SumTokens) Grads() Backward {
	return Backward{
		Calls: []Call{{GatherTokens{}, []Ref{Upstream(), In(1), In(2)}}},
		Grads: []Ref{FromCall(0, 0), {}, {}},
	}
}

func (SumTokens) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], sumTokens[float32], sumTokens[float64])(c, in, out)
}

func sumTokens[F Float](c *CPU, in, out []Tensor) func() {
	x, rows, y := Floats[F](in[0]), in[1].I32(), Floats[F](out[0])
	width, k := in[0].Shape[1], in[1].Shape[1]
	return c.Range(out[0].Shape[0], rowGrain(width*k), func(lo, hi int) {
		for t := lo; t < hi; t++ {
			y := y[t*width:][:width]
			clear(y)
			for _, r := range rows[t*k:][:k] {
				if r < 0 || int(r) >= in[0].Shape[0] {
					continue
				}
				for i, v := range x[int(r)*width:][:width] {
					y[i] += v
				}
			}
		}
	})
}

func (GatherTokens) Cost(in, out []Type, _ Content) Cost {
	return Cost{Bytes: in[0].Bytes() + in[2].Bytes() + moved(out)}
}

func (SumTokens) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 1) }

// ScaleSlots multiplies every sorted row by the weight of its token's slot. As what follows is linear, scaling what
// goes into an expert's last projection is the same as scaling what comes out of it, which then need not be kept.
//
//	x f[M*K,F], weights f[M,K], rows i32[M,K], source i32[M*K] -> y f[M*K,F] = x * weights[source], 0 where a row has no slot
type ScaleSlots struct{}

// Cheap: its output costs less to recompute than to keep.
func (ScaleSlots) Cheap() {}

func (ScaleSlots) Name() string { return "moe_scale" }

func (ScaleSlots) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[S,F]", "f[M,K]", "i32[M,K]", "i32[S]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	if err := checkSlots(in, d); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

func (ScaleSlots) Grads() Backward {
	return Backward{
		Calls: []Call{
			{ScaleSlots{}, []Ref{Upstream(), In(1), In(2), In(3)}},
			{ScaleSlotsGrad{}, []Ref{In(0), Upstream(), In(2), In(3)}},
		},
		Grads: []Ref{FromCall(0, 0), FromCall(1, 0), {}, {}},
	}
}

func (ScaleSlots) InPlace() []Alias { return []Alias{{0, 0}} }

func (ScaleSlots) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], scaleSlots[float32], scaleSlots[float64])(c, in, out)
}

func scaleSlots[F Float](c *CPU, in, out []Tensor) func() {
	x, weights, source, y := Floats[F](in[0]), Floats[F](in[1]), in[3].I32(), Floats[F](out[0])
	width := in[0].Shape[1]
	return c.Range(len(source), rowGrain(width), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			x, y := x[r*width:][:width], y[r*width:][:width]
			s := int(source[r])
			if s < 0 || s >= len(weights) {
				clear(y)
				continue
			}
			w := weights[s]
			for i, v := range x {
				y[i] = v * w
			}
		}
	})
}

// ScaleSlotsGrad is the gradient of ScaleSlots for the weights.
//
//	x f[M*K,F], dy f[M*K,F], rows i32[M,K], source i32[M*K] -> dw f[M,K] = sum(x[rows]*dy[rows]), 0 where a slot has no row
type ScaleSlotsGrad struct{}

func (ScaleSlotsGrad) Name() string { return "moe_scale_grad" }

func (ScaleSlotsGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[S,F]", "f[S,F]", "i32[M,K]", "i32[S]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	if err := checkSlots(in, d); err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, d.At('M'), d.At('K'))}, nil
}

func (ScaleSlotsGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], scaleSlotsGrad[float32], scaleSlotsGrad[float64])(c, in, out)
}

func scaleSlotsGrad[F Float](c *CPU, in, out []Tensor) func() {
	x, dy, rows, dw := Floats[F](in[0]), Floats[F](in[1]), in[2].I32(), Floats[F](out[0])
	n, width := in[0].Shape[0], in[0].Shape[1]
	return c.Range(len(rows), rowGrain(width), func(lo, hi int) {
		for s := lo; s < hi; s++ {
			sum, r := 0.0, int(rows[s])
			if r >= 0 && r < n {
				dy := dy[r*width:][:width]
				for i, v := range x[r*width:][:width] {
					sum += float64(float64(v) * float64(dy[i]))
				}
			}
			dw[s] = F(sum)
		}
	})
}

func (ScaleSlots) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

func (ScaleSlotsGrad) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 2) }

// WeighExperts multiplies what a token's experts count by a frozen number of each expert, as Gemma 4 does. The numbers
// have no gradient.
//
//	weights f[M,K], experts i32[M,K], scale f[E] -> f[M,K]: weights * scale[experts]
//
// An expert that is none counts nothing.
type WeighExperts struct{}

func (WeighExperts) Name() string { return "moe_weigh" }

func (WeighExperts) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,K]", "i32[M,K]", "f[E]"); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 2); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

func (o WeighExperts) Grads() Backward {
	return Backward{Calls: []Call{{o, []Ref{Upstream(), In(1), In(2)}}}, Grads: []Ref{FromCall(0, 0), {}, {}}}
}

func (WeighExperts) InPlace() []Alias { return []Alias{{0, 0}} }

func (WeighExperts) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], weighExperts[float32], weighExperts[float64])(c, in, out)
}

func weighExperts[F Float](c *CPU, in, out []Tensor) func() {
	w, experts, scale, y := Floats[F](in[0]), in[1].I32(), Floats[F](in[2]), Floats[F](out[0])
	return c.Range(len(y), 1<<14, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			if e := int(experts[i]); e >= 0 && e < len(scale) {
				y[i] = w[i] * scale[e]
			} else {
				y[i] = 0
			}
		}
	})
}

func (WeighExperts) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

func (RouteExperts) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType}, []DType{F32, I32}
}

func (RouteExpertsGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32, F32}, []DType{ComputeType}
}

// Stored keeps the experts' numbers in fp32: one number an expert costs no memory worth saving.
func (WeighExperts) Stored([]DType) (want, out []DType) {
	return []DType{F32, I32, F32}, []DType{F32}
}

func (o SortByExpert) Stored([]DType) (want, out []DType) {
	want = []DType{I32}
	if o.Real {
		want = append(want, I32)
	}
	return want, []DType{I32, I32, I32}
}

// ScratchGPU returns the bytes of a count for each expert and each piece of the slots.
func (o SortByExpert) ScratchGPU(in, _ []Type, _ int) int64 {
	return int64(cuda.MoEPieces(in[0].Elems())) * int64(o.Experts) * 4
}

func (GatherTokens) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32, I32}, []DType{ComputeType}
}

func (SumTokens) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32, I32}, []DType{ComputeType}
}

func (ScaleSlots) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, F32, I32, I32}, []DType{ComputeType}
}

func (ScaleSlotsGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32, I32}, []DType{F32}
}

func (o BalanceLoss) Stored([]DType) (want, out []DType) {
	want = []DType{F32, I32, F32, I32}
	if o.Scaled {
		want = append(want, F32)
	}
	out = []DType{F32}
	for range o.Layers {
		want, out = append(want, ComputeType), append(out, ComputeType)
	}
	return want, out
}

// partBytes returns those of the parts of all layers' sums, before each expert's share.
func (o BalanceLoss) partBytes(E int) int64 {
	return AlignUp(int64(o.Layers) * cuda.MoEBalanceBlocks * 2 * int64(E) * 4)
}

func (o BalanceLoss) ScratchGPU(in, _ []Type, _ int) int64 {
	E := in[o.logits()].Shape[1]
	return o.partBytes(E) + 4*int64(E+1)
}
