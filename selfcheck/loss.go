package selfcheck

import (
	"fmt"
	"math"
	"slices"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// lossChecks returns the vocabulary head with the cross-entropy loss, and with log-probabilities and their gradients;
// and sums over sequences.
func lossChecks() []check {
	n := newNumbers()
	all := slices.Concat(sequenceChecks(), tokenLossChecks(), neftuneChecks(), divergenceChecks(), topKChecks())
	for _, M := range checkRows {
		for _, s := range [][2]int{{64, 512}, {172, 1001}, {40, 777}} {
			C, V := s[0], s[1]
			labels := make([]int, M)
			for i := range labels {
				labels[i] = (i*7919 + V - 1) % V
				if i%5 == 3 {
					labels[i] = kernel.Untrained
				}
			}
			in := []checkInput{n.normal(1, M, C), n.normal(0.2, V, C), integers(labels...),
				given([]int{1}, 1/float64(M))}
			const cap = 2
			all = append(all,
				check{kernel: "crossentropy", name: fmt.Sprintf("%d rows of %d, vocabulary %d, soft cap %d", M, C, V,
					cap), build: one(kernel.LinearCrossEntropy{Chunk: 64, Grad: true, Cap: cap}), in: in,
					plain: plainLoss(M, C, true, cap), bounds: []bound{lastBound, rounded, rounded}, gemm: true},
				check{kernel: "crossentropy",
					name:  fmt.Sprintf("%d rows of %d, vocabulary %d, soft cap %d, no gradient", M, C, V, cap),
					build: one(kernel.LinearCrossEntropy{Chunk: 64, Cap: cap}), in: in,
					plain: plainLoss(M, C, false, cap), bounds: []bound{lastBound, rounded}, gemm: true})
			for _, chunk := range []int{32, 256} {
				name := fmt.Sprintf("%d rows of %d, vocabulary %d, %d at a time", M, C, V, chunk)
				all = append(all,
					check{kernel: "crossentropy", name: name,
						build: one(kernel.LinearCrossEntropy{Chunk: chunk, Grad: true}), in: in,
						plain:  plainLoss(M, C, true, 0),
						bounds: []bound{lastBound, rounded, rounded}, gemm: true},
					check{kernel: "crossentropy", name: name + ", no gradient",
						build: one(kernel.LinearCrossEntropy{Chunk: chunk}), in: in, plain: plainLoss(M, C, false, 0),
						bounds: []bound{lastBound, rounded}, gemm: true})
			}
			if M == 7 || M == 129 {
				all = append(all, headChecks(in)...)
				all = append(all, logProbChecks(in[:3])...)
				all = append(all, smoothedChecks(in)...)
			}
		}
	}
	return all
}

// logProbChecks returns log-probabilities and entropies of some rows, and the gradient that follows from weights of
// both signs.
func logProbChecks(in []checkInput) []check {
	var all []check
	M, C, V := in[0].shape[0], in[0].shape[1], in[1].shape[0]
	weights := newNumbers().normal32(1, 2, M)
	for _, cap := range []float64{0, 2} {
		all = append(all, check{kernel: "logprobs", in: in, gemm: true,
			name:  fmt.Sprintf("%d rows of %d, vocabulary %d, soft cap %v, statistics", M, C, V, cap),
			build: one(kernel.LinearLogProbs{Chunk: 64, Cap: cap, Statistics: true}),
			plain: plainLogProbs{M: M, C: C, cap: cap}.statistics, bounds: []bound{rounded, rounded}})
		for entropy := range kernel.EntropyCollision + 1 {
			k := kernel.LinearLogProbs{Chunk: 64, Entropy: entropy, Cap: cap}
			name := fmt.Sprintf("%d rows of %d, vocabulary %d, soft cap %v, entropies %d", M, C, V, cap, entropy)
			plain := plainLogProbs{M: M, C: C, cap: cap, entropy: entropy}
			if entropy == kernel.EntropyConstant || entropy == kernel.EntropyCollision {
				all = append(all, check{kernel: "logprobs", name: name, build: one(k), in: in, plain: plain.values,
					bounds: []bound{rounded, rounded}, gemm: true})
				continue
			}
			k.Grad = true
			w := checkInput{shape: []int{M}, values: weights.values[:M]}
			if entropy == kernel.EntropyDifferentiable {
				w = weights
			}
			all = append(all, check{kernel: "logprobs", name: name + ", gradient", in: append(in[:3:3], w),
				plain: plain.gradient, bounds: []bound{rounded, rounded}, gemm: true,
				build: func(b *graph.Builder, in []*graph.Value) []*graph.Value {
					out := b.ApplyAll(k, in[:3]...)
					if b.Err() != nil {
						return out
					}
					from := []*graph.Value{in[2], in[3], out[1]}
					if entropy == kernel.EntropyDifferentiable {
						from = append(from, out[2])
					}
					return []*graph.Value{out[0],
						b.Apply(kernel.LinearLogProbsGrad{Entropy: entropy == kernel.EntropyDifferentiable}, from...)}
				}})
		}
	}
	return all
}

// plainLogProbs is LinearLogProbs over all logits, with logits, their gradients and slopes rounded.
type plainLogProbs struct {
	M, C    int
	cap     float64
	entropy kernel.Entropy
}

// statistics returns log-probabilities and the statistics of the logits.
func (o plainLogProbs) statistics(f format, in [][]float64) [][]float64 {
	logp, entropies, _ := o.all(f, in)
	M, C, V := o.M, o.C, len(in[1])/o.C
	means, likeliest := make([]float64, M), make([]float64, M)
	for m, label := range in[2] {
		if label == kernel.Untrained {
			continue
		}
		logits := make([]float64, V)
		for v := range logits {
			logits[v], _ = f.capped(f.round(dot(in[0][m*C:][:C], in[1][v*C:][:C])), o.cap)
			means[m] += logits[v] / float64(V)
		}
		if slices.Index(logits, slices.Max(logits)) == int(label) {
			likeliest[m] = 1
		}
	}
	return [][]float64{logp, slices.Concat(entropies, means, likeliest)}
}

// values returns the outputs of a kernel without a gradient.
func (o plainLogProbs) values(f format, in [][]float64) [][]float64 {
	logp, entropies, _ := o.all(f, in)
	switch o.entropy {
	case kernel.EntropyConstant, kernel.EntropyCollision:
		return [][]float64{logp, entropies}
	case kernel.EntropyDifferentiable:
		return [][]float64{append(logp, entropies...)}
	}
	return [][]float64{logp}
}

// gradient returns the first output and the gradient for the hidden states.
func (o plainLogProbs) gradient(f format, in [][]float64) [][]float64 {
	_, _, dx := o.all(f, in)
	return [][]float64{o.values(f, in)[0], dx}
}

func (o plainLogProbs) all(f format, in [][]float64) (logp, entropies, dx []float64) {
	x, w, labels := in[0], in[1], in[2]
	M, C, V := o.M, o.C, len(in[1])/o.C
	logp, entropies, dx = make([]float64, M), make([]float64, M), make([]float64, M*C)
	l, through := make([]float64, V), make([]float64, V)
	for m, label := range labels {
		if label == kernel.Untrained {
			continue
		}
		top, sum, squares := math.Inf(-1), 0.0, 0.0
		for v := range l {
			l[v], through[v] = f.capped(f.round(dot(x[m*C:][:C], w[v*C:][:C])), o.cap)
			top = max(top, l[v])
		}
		for _, l := range l {
			sum += math.Exp(l - top)
		}
		for v := range l {
			l[v] -= top + math.Log(sum)
			entropies[m] -= math.Exp(l[v]) * l[v]
			squares += math.Exp(2 * l[v])
		}
		if o.entropy == kernel.EntropyCollision {
			entropies[m] = -math.Log(squares)
		}
		logp[m] = l[int(label)]
		if len(in) == 3 {
			continue
		}
		slope, entropySlope := make([]float64, C), make([]float64, C)
		for v, l := range l {
			p := math.Exp(l)
			d := -p
			if v == int(label) {
				d++
			}
			axpy(slope, f.round(d*through[v]), w[v*C:][:C])
			axpy(entropySlope, f.round(-p*(l+entropies[m])*through[v]), w[v*C:][:C])
		}
		f.all(slope)
		f.all(entropySlope)
		axpy(dx[m*C:][:C], in[3][m], slope)
		if o.entropy == kernel.EntropyDifferentiable {
			axpy(dx[m*C:][:C], in[3][M+m], entropySlope)
		}
	}
	f.all(dx)
	return logp, entropies, dx
}

// plainLoss is the cross-entropy over all logits, with logits and their gradient rounded.
func plainLoss(M, C int, grad bool, cap float64) func(f format, in [][]float64) [][]float64 {
	return func(f format, in [][]float64) [][]float64 {
		out := plainLosses(M, C, cap, f, in)
		if grad {
			return out[:3]
		}
		return [][]float64{out[0], out[2]}
	}
}

// plainLosses returns the loss, the gradient for x, the rows' losses and the gradient for the vocabulary matrix.
func plainLosses(M, C int, cap float64, f format, in [][]float64) [][]float64 {
	x, w, labels, scale := in[0], in[1], in[2], in[3][0]
	V := len(w) / C
	loss, dx, nll, p, through := 0.0, make([]float64, M*C), make([]float64, M), make([]float64, V),
		make([]float64, V)
	dw := make([]float64, V*C)
	for m, label := range labels {
		if label < 0 {
			continue
		}
		top, sum := math.Inf(-1), 0.0
		for i := range p {
			p[i], through[i] = f.capped(f.round(dot(x[m*C:][:C], w[i*C:][:C])), cap)
			top = max(top, p[i])
		}
		for _, l := range p {
			sum += math.Exp(l - top)
		}
		nll[m] = top + math.Log(sum) - p[int(label)]
		loss += nll[m] * scale
		for i, l := range p {
			p[i] = math.Exp(l-top) / sum
		}
		p[int(label)]--
		for i := range p {
			d := f.round(p[i] * scale * through[i])
			axpy(dx[m*C:][:C], d, w[i*C:][:C])
			axpy(dw[i*C:][:C], d, x[m*C:][:C])
		}
	}
	f.all(dx)
	return [][]float64{{loss}, dx, nll, dw}
}

// sequenceChecks returns sums over sequences and their gradients.
func sequenceChecks() []check {
	n := newNumbers()
	var all []check
	for _, lengths := range [][]int{{1}, {7, 0, 65}, {1, 255, 256, 257, 513}, {2049, 0, 3}} {
		starts := bounds(lengths)
		M := starts[len(starts)-1] + 5 // tokens behind the last sequence
		labels := make([]int, M)
		for m := range labels {
			if labels[m] = m; m%3 == 1 {
				labels[m] = kernel.Untrained
			}
		}
		for _, rows := range [][]int{{}, {2}} {
			x, dsums := n.normal32(1, append(rows[:len(rows):len(rows)], M)...),
				n.normal32(1, append(rows[:len(rows):len(rows)], len(lengths))...)
			name := fmt.Sprintf("sequences of %v, rows %v", lengths, rows)
			all = append(all,
				check{kernel: "sequence_sums", name: name, build: one(kernel.SequenceSums{}),
					in:     []checkInput{x, integers(labels...), integers(starts...)},
					bounds: []bound{summed, exact}},
				check{kernel: "sequence_sums_grad", name: name, build: one(kernel.SequenceSumsGrad{}),
					in:     []checkInput{integers(labels...), integers(starts...), dsums},
					bounds: []bound{exact}})
		}
	}
	return all
}
