//go:build gpu && linux

package cuda

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// pairCase is a batch of preference pairs, and what tests of its losses have in common.
type pairCase struct {
	pairs          [][2]int32 // sequences of the chosen and of the rejected answer; negative = no pair
	policy, counts []float32
	scale, scaling float32
}

// newPairCase returns P places for pairs, a few of them empty, over answers in mixed order; one sequence is in none.
func newPairCase(r *harness, P int) pairCase {
	c := pairCase{pairs: make([][2]int32, P), scale: 0.25, scaling: 8}
	order := r.rnd.Perm(2*P + 1)
	for k := range c.pairs {
		c.pairs[k] = [2]int32{int32(order[2*k]), int32(order[2*k+1])}
		if k%7 == 3 {
			c.pairs[k] = [2]int32{-1, -1}
		}
	}
	for range 2*P + 1 {
		c.policy = append(c.policy, -float32(2+5*r.rnd.Float64()))
		c.counts = append(c.counts, float32(1+r.rnd.IntN(20)))
	}
	return c
}

func (c pairCase) present() (all [][2]int32) {
	for _, p := range c.pairs {
		if p[0] >= 0 {
			all = append(all, p)
		}
	}
	return all
}

// slopes returns the gradient of a loss for numbers by central differences, times both scales.
func (c pairCase) slopes(at []float64, loss func([]float64) float64) []float64 {
	const h = 1e-4
	g := make([]float64, len(at))
	for i, x := range at {
		at[i] = x + h
		up := loss(at)
		at[i] = x - h
		g[i] = (up - loss(at)) / (2 * h) * float64(c.scale) * float64(c.scaling)
		at[i] = x
	}
	return g
}

func widened(v []float32) []float64 {
	w := make([]float64, len(v))
	for i, x := range v {
		w[i] = float64(x)
	}
	return w
}

func logOnePlusExp(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

func launchDouble(x float64) int64 { return int64(math.Float64bits(x)) }

// TestPreferencePairs checks the forms that look at all pairs together beside one that doesn't, with the tokens behind
// the shorter answer counted less: loss, gradient by central differences, and the sums of rewards.
func TestPreferencePairs(t *testing.T) {
	r := newHarness(t, 8<<20)
	const beta, smoothing, tailWeight, sigmoid, sft, aot, unpaired = 0.3, 0.1, 0.25, 1., 0.5, 0.4, 0.2
	for _, P := range []int{1, 5, 300} {
		var c pairCase
		var reference, tail, referenceTail []float32
		S := 2*P + 1
		out := r.repeat(func() [][]byte {
			c = newPairCase(r, P)
			reference, tail, referenceTail = nil, nil, nil
			for range S {
				reference = append(reference, -float32(2+5*r.rnd.Float64()))
				tail = append(tail, -float32(r.rnd.Float64()))
				referenceTail = append(referenceTail, -float32(r.rnd.Float64()))
			}
			args := []any{r.out("loss", 4), r.out("dpolicy", int64(4*S)), r.out("dtail", int64(4*S))}
			for i := range 6 {
				args = append(args, r.out(fmt.Sprintf("sum %d", i), 4))
			}
			outputs := slices.Clone(args)
			args = append(args, in(r, "policy", c.policy), in(r, "reference", reference), in(r, "counts", c.counts),
				in(r, "pairs", c.pairs), in(r, "scale", []float32{c.scale}), in(r, "tail", tail),
				in(r, "reference tail", referenceTail), gpu.Ptr(0), in(r, "scaling", []float32{c.scaling}),
				r.out("scratch", int64(24*P)), i32(P), i32(S), i32(0), launchDouble(beta), launchDouble(smoothing),
				launchDouble(1), launchDouble(0), launchDouble(tailWeight))
			weights := [15]float64{0: sigmoid, 8: aot, 9: unpaired, 14: sft}
			for _, w := range weights {
				args = append(args, launchDouble(w))
			}
			r.run(Preference("preference_pairs"), args...)
			return read(r, outputs, 1, S, S, 1, 1, 1, 1, 1, 1)
		})
		answer := func(sums, tails []float64, s int32) float64 { return sums[s] - (1-tailWeight)*tails[s] }
		refs, refTails, counts := widened(reference), widened(referenceTail), widened(c.counts)
		var sums [6]float64
		// ranks are the pairs in the order of each sort key. They stay as they are at the point of the gradient:
		// beside a
		// pair of nearly equal keys, the loss has another slope.
		var ranks [4][]int
		loss := func(policy, tails []float64) (total float64) {
			var chosen, tokens float64
			var keys [4][]float64
			sums = [6]float64{}
			for _, p := range c.present() {
				sc, sx := answer(policy, tails, p[0]), answer(policy, tails, p[1])
				rc, rx := answer(refs, refTails, p[0]), answer(refs, refTails, p[1])
				total += sigmoid * logOnePlusExp(-beta*(sc-rc-sx+rx))
				chosen, tokens = chosen+sc, tokens+counts[p[0]]
				for i, key := range []float64{sc - sx, rc - rx, sc - rc, sx - rx} {
					keys[i] = append(keys[i], key)
				}
				rewards := [2]float64{beta * (sc - rc), beta * (sx - rx)}
				right := max(0, float64(cmp.Compare(rewards[0], rewards[1])))
				for i, x := range []float64{rewards[0], rewards[1], right, rewards[0] - rewards[1], sc, sx} {
					sums[i] += x
				}
			}
			for k := range ranks {
				if ranks[k] == nil {
					ranks[k] = ranking(keys[k])
				}
			}
			for i := range keys[0] {
				for j, w := range []float64{aot, unpaired} {
					z := beta * (keys[2*j][ranks[2*j][i]] - keys[2*j+1][ranks[2*j+1][i]])
					total += w * ((1-smoothing)*logOnePlusExp(-z) + smoothing*logOnePlusExp(z))
				}
			}
			return total - sft*float64(len(keys[0]))*chosen/tokens
		}
		policy, tails := widened(c.policy), widened(tail)
		loss(policy, tails) // sets ranks
		what := fmt.Sprintf("%d pairs", P)
		dpolicy := c.slopes(policy, func(x []float64) float64 { return loss(x, tails) })
		dtail := c.slopes(tails, func(x []float64) float64 { return loss(policy, x) })
		nearF32(t, what+", loss", f32Floats(out[0]), []float64{loss(policy, tails) * float64(c.scale)})
		nearF32(t, what+", gradient", f32Floats(out[1]), dpolicy)
		nearF32(t, what+", gradient of the tail", f32Floats(out[2]), dtail)
		for i, want := range sums {
			nearF32(t, fmt.Sprintf("%s, sum %d", what, i), f32Floats(out[3+i]), []float64{want})
		}
	}
}

// ranking returns the indices of numbers in their ascending order.
func ranking(numbers []float64) []int {
	order := make([]int, len(numbers))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(numbers[a], numbers[b]) })
	return order
}

// read returns the fp32 numbers of device buffers as bytes.
func read(r *harness, buffers []any, lengths ...int) (all [][]byte) {
	for i, n := range lengths {
		all = append(all, get[byte](r, buffers[i].(gpu.Ptr), 4*n))
	}
	return all
}

// TestPreferenceMargins checks every form of the losses without a reference, and answers that the model is certain of.
func TestPreferenceMargins(t *testing.T) {
	r := newHarness(t, 8<<20)
	const beta, smoothing, gamma, likelihoodWeight = 0.7, 0.1, 0.5, 0.6
	for form := range 5 {
		for _, P := range []int{1, 5, 300} {
			S := 2*P + 1
			var c pairCase
			var likelihood, trained []float32
			out := r.repeat(func() [][]byte {
				c = newPairCase(r, P)
				likelihood, trained = nil, nil
				for range S {
					likelihood = append(likelihood, -float32(9*r.rnd.Float64()))
					trained = append(trained, float32(1+r.rnd.IntN(20)))
				}
				args := []any{r.out("loss", 4), r.out("dpolicy", int64(4*S)), r.out("dlikelihood", int64(4*S))}
				for i := range 9 {
					args = append(args, r.out(fmt.Sprintf("sum %d", i), 4))
				}
				outputs := slices.Clone(args)
				args = append(args, in(r, "policy", c.policy), in(r, "counts", c.counts),
					in(r, "likelihood", likelihood), in(r, "trained", trained), in(r, "pairs", c.pairs),
					in(r, "scale", []float32{c.scale}),
					in(r, "scaling", []float32{c.scaling}), r.out("scratch", int64(24*P)), i32(P), i32(S), i32(form),
					launchDouble(beta), launchDouble(smoothing), launchDouble(gamma), launchDouble(0),
					launchDouble(likelihoodWeight))
				r.run(Preference("preference_margins"), args...)
				return read(r, outputs, 1, S, S, 1, 1, 1, 1, 1, 1, 1, 1, 1)
			})
			counts, tokens := widened(c.counts), widened(trained)
			var nll, odds, ratio float64
			loss := func(policy, likelihood []float64) (total float64) {
				var sum, n float64
				odds, ratio = 0, 0
				for _, p := range c.present() {
					x, y := policy[p[0]], policy[p[1]]
					if form >= 2 {
						x, y = x/counts[p[0]], y/counts[p[1]]
					}
					total += marginLoss(form, beta, smoothing, gamma, x, y)
					if form == 4 {
						odds, ratio = odds+logOdds(x)-logOdds(y), ratio-logOnePlusExp(logOdds(y)-logOdds(x))
					}
					sum, n = sum+likelihood[p[0]], n+tokens[p[0]]
				}
				nll = -float64(len(c.present())) * sum / n
				return total + likelihoodWeight*nll
			}
			policy, chosen := widened(c.policy), widened(likelihood)
			what := fmt.Sprintf("form %d, %d pairs", form, P)
			dpolicy := c.slopes(policy, func(x []float64) float64 { return loss(x, chosen) })
			dlikelihood := c.slopes(chosen, func(x []float64) float64 { return loss(policy, x) })
			nearF32(t, what+", loss", f32Floats(out[0]), []float64{loss(policy, chosen) * float64(c.scale)})
			nearF32(t, what+", gradient", f32Floats(out[1]), dpolicy)
			nearF32(t, what+", gradient of the likelihood", f32Floats(out[2]), dlikelihood)
			nearF32(t, what+", likelihood", f32Floats(out[9]), []float64{nll})
			loss(policy, chosen)
			nearF32(t, what+", log odds", append(f32Floats(out[10]), f32Floats(out[11])...), []float64{odds, ratio})
		}
	}
}

// marginLoss returns the loss of a pair by the formulas of docs/OBJECTIVES.md.
func marginLoss(form int, beta, smoothing, gamma, chosen, rejected float64) float64 {
	z := beta * (chosen - rejected)
	switch form {
	case 1:
		return math.Max(0, 1-z)
	case 2:
		return (chosen - rejected - 1/(2*beta)) * (chosen - rejected - 1/(2*beta))
	case 4:
		return beta * logOnePlusExp(logOdds(rejected)-logOdds(chosen))
	case 3:
		z -= gamma
	}
	return (1-smoothing)*logOnePlusExp(-z) + smoothing*logOnePlusExp(z)
}

// logOdds returns the logarithm of the odds of an average log-probability.
func logOdds(x float64) float64 { return x - math.Log(-math.Expm1(x)) }

// TestPreferenceOfCertainAnswers checks that an average log-probability of 0, or above it by rounding, has the loss of
// one just below: the odds would be infinite.
func TestPreferenceOfCertainAnswers(t *testing.T) {
	r := newHarness(t, 8<<20)
	evaluated := func(chosen, rejected float32) (loss, dChosen, dRejected float64) {
		r.reset()
		outputs := []any{r.out("loss", 4), r.out("dpolicy", 8), r.out("dlikelihood", 8)}
		for range 9 {
			outputs = append(outputs, r.out("sum", 4))
		}
		args := append(slices.Clone(outputs), in(r, "policy", []float32{chosen, rejected}),
			in(r, "counts", []float32{4, 4}), in(r, "likelihood", []float32{0, 0}),
			in(r, "trained", []float32{0, 0}), in(r, "pairs", []int32{0, 1}),
			in(r, "scale", []float32{1}), gpu.Ptr(0), r.out("scratch", 24), i32(1), i32(2), i32(4), launchDouble(0.5),
			launchDouble(0), launchDouble(0), launchDouble(0), launchDouble(0))
		r.run(Preference("preference_margins"), args...)
		out := read(r, outputs, 1, 2)
		return f32Floats(out[0])[0], f32Floats(out[1])[0], f32Floats(out[1])[1]
	}
	for _, sum := range []float32{0, 1e-9} {
		for _, other := range []float32{-6, sum} {
			for _, swapped := range []bool{false, true} {
				certain, a, b := float32(-4e-7), sum, other
				wantA, wantB := certain, min(other, certain)
				if swapped {
					a, b, wantA, wantB = b, a, wantB, wantA
				}
				loss, dc, dx := evaluated(a, b)
				wantLoss, wantC, wantX := evaluated(wantA, wantB)
				nearF32(t, fmt.Sprintf("log-probabilities %v and %v", a, b), []float64{loss, dc, dx},
					[]float64{wantLoss, wantC, wantX})
			}
		}
	}
	if loss, _, _ := evaluated(float32(math.NaN()), -6); !math.IsNaN(loss) {
		t.Errorf("the loss is %v for a log-probability that is no number", loss)
	}
}
