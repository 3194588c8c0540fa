package selfcheck

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel"
)

// taskChecks returns what heads over sequences and tokens consist of: pooling and losses. Losses compute in fp64, so
// that fp32's rounding of the results is all that may differ.
func taskChecks() []check {
	n := newNumbers()
	var all []check
	for _, C := range []int{1, 64, 2048} {
		spans := integers(0, 1, 3, 9, 9, 9, 9, 10, 12, 40, 44, 44)
		spans.shape = []int{6, 2}
		x, dy := n.normal(1, 37, C), n.normal(1, 6, C)
		name := fmt.Sprintf("spans over %d columns", C)
		all = append(all,
			check{kernel: "pool", name: name, build: one(kernel.Pool{}), in: []checkInput{x, spans},
				bounds: []bound{rounded},
				plain:  plainPool(37, C)},
			check{kernel: "pool_grad", name: name, build: one(kernel.PoolGrad{}), in: []checkInput{x, spans, dy},
				bounds: []bound{masked}, plain: plainPoolGrad(37, C)})
	}
	scale, scaling := given([]int{1}, 0.25), given([]int{3}, 4, 0, 0)
	for _, S := range []int{1, 9, 300} {
		for _, L := range []int{1, 3, 50} {
			for form := kernel.ClassSingle; form <= kernel.ClassRegression; form++ {
				for _, full := range []bool{false, true} {
					o := kernel.ClassLoss{Form: form, Bias: full, Grad: true, Scaled: full}
					all = append(all, taskCheck(fmt.Sprintf("%+v, %d rows of %d", o, S, L), o,
						classInputs(n, o, S, L, scale, scaling)))
				}
			}
		}
		pairs := make([]int, 0, 2*S+2)
		for k := range S {
			pairs = append(pairs, 2*k, 2*k+1)
		}
		pairs = append(pairs, -1, 0)
		list := integers(pairs...)
		list.shape = []int{S + 1, 2}
		for _, full := range []bool{false, true} {
			o := kernel.RewardLoss{Grad: true, Scaled: full}
			in := []checkInput{n.normal32(1, 2*S+1, 1), list, n.normal32(0.1, S+1), scale}
			if full {
				o.Centre, in = 0.1, append(in, scaling)
			}
			all = append(all, taskCheck(fmt.Sprintf("%+v, %d pairs", o, S), o, in))
		}
	}
	return append(all, contrastChecks(n, scale, scaling)...)
}

// contrastChecks are losses of vectors: pairs, some with a hard negative, sequences that do not count, and a vector
// without a direction.
func contrastChecks(n checkNumbers, scale, scaling checkInput) (all []check) {
	for _, rows := range []int{1, 5, 150} {
		for _, C := range []int{1, 2, 64, 1000} {
			targets := make([]int, 0, 4*rows)
			for k := range rows {
				targets = append(targets, len(targets)+1, kernel.ContrastCandidate)
				if k%3 == 1 {
					targets = append(targets, kernel.ContrastCandidate, kernel.Untrained)
				}
			}
			S := len(targets)
			vectors := n.normal(1, S, C)
			if rows > 1 {
				clear(vectors.values[3*C:][:C])
			}
			for _, full := range []bool{false, true} {
				if C == 1 && !full {
					continue // a direction of one number has no slope
				}
				o := kernel.ContrastiveLoss{Temperature: 0.25, Dot: full, Grad: true, Scaled: full}
				if o.Dot {
					o.Temperature = 20
				}
				in := []checkInput{vectors, integers(targets...), scale}
				if full {
					in = append(in, scaling)
				}
				all = append(all, taskCheck(fmt.Sprintf("%+v, %d vectors of %d", o, S, C), o, in))
			}
		}
	}
	return all
}

// taskCheck returns the check of a loss whose second output is its gradient, rounded to the type of activations.
func taskCheck(name string, k kernel.Kernel, in []checkInput) check {
	c := preferenceCheck(name, k, in)
	c.bounds[1] = rounded
	return c
}

// classInputs are S rows of L scores, every third of which does not count.
func classInputs(n checkNumbers, o kernel.ClassLoss, S, L int, scale, scaling checkInput) []checkInput {
	labels := make([]int, S)
	for s := range labels {
		if labels[s] = s % L; s%3 == 2 {
			labels[s] = kernel.Untrained
		}
	}
	in := []checkInput{n.normal32(2, S, L), integers(labels...)}
	if o.Form != kernel.ClassSingle {
		targets := checkInput{shape: []int{S, L}, values: make([]float64, S*L)}
		for i := range targets.values {
			targets.values[i] = float64(n.IntN(2))
		}
		in = append(in, targets)
	}
	if o.Bias {
		in = append(in, n.normal32(1, L))
	}
	in = append(in, scale)
	if o.Scaled {
		in = append(in, scaling)
	}
	return in
}

// tokensOf returns the tokens of span s among M.
func tokensOf(spans []float64, s, M int) (from, to int) {
	return min(int(spans[2*s]), M), min(int(spans[2*s+1]), M)
}

// plainPool is the mean of spans, rounded once.
func plainPool(M, C int) func(f format, in [][]float64) [][]float64 {
	return func(f format, in [][]float64) [][]float64 {
		x, spans := in[0], in[1]
		y := make([]float64, len(spans)/2*C)
		for s := range len(spans) / 2 {
			from, to := tokensOf(spans, s, M)
			for m := from; m < to; m++ {
				axpy(y[s*C:][:C], 1/float64(to-from), x[m*C:][:C])
			}
		}
		f.all(y)
		return [][]float64{y}
	}
}

// plainPoolGrad is the gradient of plainPool, rounded once.
func plainPoolGrad(M, C int) func(f format, in [][]float64) [][]float64 {
	return func(f format, in [][]float64) [][]float64 {
		spans, dy, dx := in[1], in[2], make([]float64, M*C)
		for s := range len(spans) / 2 {
			from, to := tokensOf(spans, s, M)
			for m := from; m < to; m++ {
				axpy(dx[m*C:][:C], 1/float64(to-from), dy[s*C:][:C])
			}
		}
		f.all(dx)
		return [][]float64{dx}
	}
}
