package kernel

import (
	"errors"
	"fmt"
	"math"
)

// RouteScores chooses TopK experts for every token by scores of their own, sigmoids of a router's logits, whose sum is
// not 1 (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024).
//
//	logits f[M,E], (correction f[E] if Corrected) -> weights f[M,TopK], experts i32[M,TopK]
//
// The correction is added to the scores for the choice alone. With Groups above 1 the experts are split into that many
// groups of neighbours, and only the TopGroups groups with the largest sums of their Best largest corrected scores can
// be chosen from. The experts of a token are in descending order of their corrected scores, of equal ones the lower
// index first; a score that is no number counts as the least. Weigh says how much a chosen expert counts.
type RouteScores struct {
	TopK              int
	Corrected         bool
	Groups, TopGroups int // 0 or 1: every expert can be chosen
	Best              int // 1 or 2, for Groups above 1
	Weigh             ScoreWeights
}

// ScoreWeights says how scores of the chosen experts become weights: w = Scale * score / divisor.
type ScoreWeights struct {
	// Softmax makes the scores the logits' softmax over all experts instead of sigmoids.
	Softmax bool
	// Normalise makes the divisor max(sum of the chosen scores + Epsilon, Least); else it is 1.
	Normalise      bool
	Epsilon, Least float64
	Scale          float64 // 0 stands for 1
}

// MaxExpertGroups bounds the groups of a layer's experts.
const MaxExpertGroups = 32

func (RouteScores) Name() string { return "moe_scores" }

func (o RouteScores) inputs() []string {
	if o.Corrected {
		return []string{"f[M,E]", "f[E]"}
	}
	return []string{"f[M,E]"}
}

func (o RouteScores) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, o.inputs()...)
	if err != nil {
		return nil, err
	}
	if o.Corrected {
		if err := sameElements(in, 0, 1); err != nil {
			return nil, err
		}
	}
	E := d.At('E')
	if E > MaxExperts {
		return nil, fmt.Errorf("input 0 is %v, want at most %d experts", in[0], MaxExperts)
	}
	if o.TopK < 1 || o.TopK > min(E, MaxTopK) {
		return nil, fmt.Errorf("attribute TopK is %d, want 1 to %d of the %d experts of input 0", o.TopK, MaxTopK, E)
	}
	if o.grouped() {
		if err := o.checkGroups(E); err != nil {
			return nil, err
		}
	}
	return []Type{T(in[0].DType, d.At('M'), o.TopK), T(I32, d.At('M'), o.TopK)}, nil
}

func (o RouteScores) grouped() bool { return o.Groups > 1 }

// checkGroups checks that the groups are alike and have enough experts.
func (o RouteScores) checkGroups(E int) error {
	switch {
	case o.Groups > MaxExpertGroups || E%o.Groups != 0:
		return fmt.Errorf("attribute Groups is %d, want 1 to %d, a divisor of the %d experts of input 0", o.Groups,
			MaxExpertGroups, E)
	case o.TopGroups < 1 || o.TopGroups > o.Groups:
		return fmt.Errorf("attribute TopGroups is %d, want 1 to %d", o.TopGroups, o.Groups)
	case o.TopK > o.TopGroups*(E/o.Groups):
		return fmt.Errorf("attribute TopK is %d, but %d groups have %d experts", o.TopK, o.TopGroups,
			o.TopGroups*(E/o.Groups))
	case o.Best < 1 || o.Best > min(2, E/o.Groups):
		return errors.New("attribute Best must be 1 or 2, and at most the experts of a group")
	}
	return nil
}

func (o RouteScores) Grads() Backward {
	grads := []Ref{FromCall(0, 0)}
	if o.Corrected {
		grads = append(grads, Ref{}) // it only steers the choice
	}
	return Backward{
		Calls: []Call{{RouteScoresGrad{o.Weigh}, []Ref{In(0), Out(1), Upstream()}}},
		Grads: grads,
	}
}

func (o RouteScores) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], routeScores[float32], routeScores[float64])(c, o, in, out)
}

func routeScores[F Float](c *CPU, o RouteScores, in, out []Tensor) func() {
	logits, weights, experts := Floats[F](in[0]), Floats[F](out[0]), out[1].I32()
	rows, width, k := in[0].Shape[0], in[0].Shape[1], o.TopK
	correction := make([]F, width)
	if o.Corrected {
		correction = Floats[F](in[1])
	}
	return c.Range(rows, rowGrain(width*k), func(lo, hi int) {
		var memory [MaxExperts]float64
		var numbers [MaxExperts + MaxExpertGroups]F
		scores, choice, groups := memory[:width], numbers[:width], numbers[MaxExperts:][:max(o.Groups, 1)]
		for i := lo; i < hi; i++ {
			w, e := weights[i*k:][:k], experts[i*k:][:k]
			expertScores(scores, logits[i*width:][:width], o.Weigh.Softmax)
			for j, s := range scores {
				choice[j] = F(s) + correction[j]
			}
			if o.grouped() {
				closeGroups(choice, groups, o)
			}
			for j := range e {
				e[j] = int32(nextExpert(choice, e[:j]))
			}
			by, _ := o.Weigh.factor(scores, e)
			for j, at := range e {
				w[j] = F(scores[at] * by)
			}
		}
	})
}

// expertScores fills scores with the sigmoids of logits, or with their softmax.
func expertScores[F Float](scores []float64, logits []F, softmax bool) {
	if !softmax {
		for i, x := range logits {
			scores[i] = sigmoid(float64(x))
		}
		return
	}
	top := float64(logits[nextExpert(logits, nil)])
	sum := expSum(logits, top)
	for i, x := range logits {
		scores[i] = math.Exp(float64(x)-top) / sum
	}
}

// factor returns what a chosen score is multiplied by, and whether that depends on the chosen scores.
func (w ScoreWeights) factor(scores []float64, chosen []int32) (by float64, moves bool) {
	by = w.Scale
	if by == 0 {
		by = 1
	}
	if !w.Normalise {
		return by, false
	}
	sum := w.Epsilon
	for _, e := range chosen {
		sum += scores[e]
	}
	return by / max(sum, w.Least), sum >= w.Least
}

// closeGroups makes the choice of experts outside of the best groups impossible.
func closeGroups[F Float](choice, groups []F, o RouteScores) {
	size := len(choice) / o.Groups
	for g := range groups {
		first, second := nextTwo(choice[g*size:][:size])
		if groups[g] = first; o.Best == 2 {
			groups[g] += second
		}
	}
	var open [MaxExpertGroups]int32
	for j := range o.TopGroups {
		open[j] = int32(nextExpert(groups, open[:j]))
	}
	for g := range groups {
		if !contains(open[:o.TopGroups], g) {
			for i := range choice[g*size:][:size] {
				choice[g*size+i] = F(math.Inf(-1))
			}
		}
	}
}

// nextTwo returns the two largest numbers; the second is the first of a single one.
func nextTwo[F Float](x []F) (first, second F) {
	at := [2]int32{}
	at[0] = int32(nextExpert(x, nil))
	at[1] = at[0]
	if len(x) > 1 {
		at[1] = int32(nextExpert(x, at[:1]))
	}
	return x[at[0]], x[at[1]]
}

func contains(list []int32, x int) bool {
	for _, v := range list {
		if int(v) == x {
			return true
		}
	}
	return false
}

// RouteScoresGrad is the gradient of RouteScores for the logits.
//
//	logits f[M,E], experts i32[M,TopK], dw f[M,TopK] -> dlogits f[M,E]
//	ds = factor*(dw - sum(dw*s)/divisor) of the chosen scores s, without the sum where the divisor is a constant,
//	and 0 of the others; dlogits = ds*s*(1-s), or s*(ds - sum(ds*s)) of a softmax
type RouteScoresGrad struct{ Weigh ScoreWeights }

func (RouteScoresGrad) Name() string { return "moe_scores_grad" }

func (RouteScoresGrad) Shape(in []Type) ([]Type, error) {
	if len(in) > 0 && len(in[0].Shape) == 2 && in[0].Shape[1] > MaxExperts {
		return nil, fmt.Errorf("input 0 is %v, want at most %d experts", in[0], MaxExperts)
	}
	return RouteExpertsGrad{}.Shape(in)
}

func (o RouteScoresGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], routeScoresGrad[float32], routeScoresGrad[float64])(c, o, in, out)
}

func routeScoresGrad[F Float](c *CPU, o RouteScoresGrad, in, out []Tensor) func() {
	logits, experts, dw, dl := Floats[F](in[0]), in[1].I32(), Floats[F](in[2]), Floats[F](out[0])
	rows, width, k := in[0].Shape[0], in[0].Shape[1], in[1].Shape[1]
	return c.Range(rows, rowGrain(width), func(lo, hi int) {
		var memory [2 * MaxExperts]float64
		scores, ds := memory[:width], memory[MaxExperts:][:width]
		for i := lo; i < hi; i++ {
			e, dw, dl := experts[i*k:][:k], dw[i*k:][:k], dl[i*width:][:width]
			clear(dl)
			if !inside(e, width) {
				continue
			}
			expertScores(scores, logits[i*width:][:width], o.Weigh.Softmax)
			by, moves := o.Weigh.factor(scores, e)
			mean, sum := 0.0, 0.0
			if moves {
				for j, at := range e {
					mean += float64(float64(dw[j]) * scores[at])
					sum += scores[at]
				}
				mean /= sum + o.Weigh.Epsilon
			}
			clear(ds)
			inner := 0.0
			for j, at := range e {
				ds[at] = by * (float64(dw[j]) - mean)
				inner += float64(ds[at] * scores[at])
			}
			for at, s := range scores {
				switch {
				case o.Weigh.Softmax:
					dl[at] = F(s * (ds[at] - inner))
				case ds[at] != 0:
					dl[at] = F(ds[at] * s * sigmoid(-float64(logits[i*width+at])))
				}
			}
		}
	})
}

func (RouteScores) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 8) }

func (RouteScoresGrad) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 8) }

func (o RouteScores) Stored([]DType) (want, out []DType) {
	want = []DType{ComputeType}
	if o.Corrected {
		want = append(want, F32)
	}
	return want, []DType{F32, I32}
}

func (RouteScoresGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32, F32}, []DType{ComputeType}
}
