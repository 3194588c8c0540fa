package selfcheck

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel"
)

// tokenLossChecks returns losses of log-probabilities with weights, and their gradients.
func tokenLossChecks() []check {
	n := newNumbers()
	var all []check
	for _, M := range checkRows {
		labels := make([]int, M)
		for m := range labels {
			if labels[m] = m; m%3 == 1 {
				labels[m] = kernel.Untrained
			}
		}
		logp := positive(n.normal32(2, M))
		for m := range logp.values {
			logp.values[m] *= -1
		}
		in := []checkInput{logp, integers(labels...), given([]int{1}, 1/float64(M))}
		weights := positive(n.normal32(1, M))
		for _, form := range []kernel.TokenForm{kernel.TokenDFT, kernel.TokenFocal} {
			k := kernel.TokenLoss{Form: form, Gamma: 2, Grad: true}
			weighted := k
			weighted.Weighted = true
			name := fmt.Sprintf("form %d, %d tokens", form, M)
			all = append(all,
				check{kernel: "token_loss", name: name, build: one(k), in: in,
					bounds: []bound{summed, summed, summed, summed}},
				check{kernel: "token_loss", name: name + ", weighted", build: one(weighted),
					in:     append(in[:3:3], weights),
					bounds: []bound{summed, summed, summed, summed}})
		}
	}
	return all
}

// neftuneChecks returns noise on embeddings.
func neftuneChecks() []check {
	n := newNumbers()
	var all []check
	for _, M := range checkRows {
		for _, C := range []int{64, 77} {
			rows, positions := make([]int, M), make([]int, M)
			for m := range rows {
				rows[m], positions[m] = m/5, m%5
			}
			all = append(all, check{kernel: "neftune", name: fmt.Sprintf("%d tokens of %d", M, C),
				build: one(kernel.NEFTune{}), bounds: []bound{rounded},
				in: []checkInput{n.normal(1, M, C), integers(rows...), integers(positions...),
					positive(n.normal32(1, M)), integers(5, 9)}})
		}
	}
	return all
}

// positive returns x with the absolute values of its numbers, so that sums of them do not cancel.
func positive(x checkInput) checkInput {
	for i, v := range x.values {
		x.values[i] = math.Abs(v)
	}
	return x
}

// smoothedChecks returns the vocabulary head with smoothed labels, a z-loss and weights.
func smoothedChecks(in []checkInput) []check {
	M, C, V := in[0].shape[0], in[0].shape[1], in[1].shape[0]
	weights := positive(newNumbers().normal32(1, M))
	var all []check
	for _, cap := range []float64{0, 2} {
		for _, grad := range []bool{true, false} {
			k := kernel.SmoothedCrossEntropy{Chunk: 64, Grad: grad, Weighted: true, Cap: cap, Smoothing: 0.1,
				ZLoss: 1e-2}
			bounds := []bound{rounded, rounded, rounded, rounded, rounded}
			if !grad {
				bounds = bounds[:4]
			}
			all = append(all, check{kernel: "smoothed_crossentropy",
				name:  fmt.Sprintf("%d rows of %d, vocabulary %d, soft cap %v, gradient %v", M, C, V, cap, grad),
				build: one(k), in: append(in[:4:4], weights), plain: plainSmoothed{k, M, C}.outputs,
				bounds: bounds, gemm: true})
		}
	}
	return all
}

// plainSmoothed is a SmoothedCrossEntropy with weights over all logits, with logits and their gradient rounded.
type plainSmoothed struct {
	kernel.SmoothedCrossEntropy
	M, C int
}

func (o plainSmoothed) outputs(f format, in [][]float64) [][]float64 {
	x, w, labels, scale, weights := in[0], in[1], in[2], in[3][0], in[4]
	V := len(w) / o.C
	loss, nll, squares := 0., 0., 0.
	dx, each, y, through := make([]float64, o.M*o.C), make([]float64, o.M), make([]float64, V), make([]float64, V)
	for m, label := range labels {
		if label == kernel.Untrained {
			continue
		}
		top, sum, mean := math.Inf(-1), 0., 0.
		for v := range y {
			y[v], through[v] = f.capped(f.round(dot(x[m*o.C:][:o.C], w[v*o.C:][:o.C])), o.Cap)
			top, mean = max(top, y[v]), mean+y[v]/float64(V)
		}
		for _, l := range y {
			sum += math.Exp(l - top)
		}
		z := top + math.Log(sum)
		own := z - y[int(label)]
		each[m] = weights[m] * ((1-o.Smoothing)*own + o.Smoothing*(z-mean) + o.ZLoss*z*z)
		loss, nll, squares = loss+scale*each[m], nll+own, squares+z*z
		for v, l := range y {
			d := math.Exp(l-z)*(1+2*o.ZLoss*z) - o.Smoothing/float64(V)
			if v == int(label) {
				d -= 1 - o.Smoothing
			}
			axpy(dx[m*o.C:][:o.C], f.round(d*scale*weights[m]*through[v]), w[v*o.C:][:o.C])
		}
	}
	f.all(dx)
	if o.Grad {
		return [][]float64{{loss}, dx, each, {nll}, {squares}}
	}
	return [][]float64{{loss}, each, {nll}, {squares}}
}
