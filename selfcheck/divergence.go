package selfcheck

import (
	"fmt"
	"math"
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

// divergenceChecks returns the vocabulary head with a divergence from a teacher, given in whole or by its most likely
// tokens.
func divergenceChecks() []check {
	var all []check
	for _, s := range [][3]int{{7, 64, 512}, {129, 40, 777}} {
		in := divergenceInputs(s[0], s[1], s[2])
		for _, k := range []kernel.LinearDivergence{
			{Beta: 0, Temperature: 1, Alpha: 1},
			{Beta: 1, Temperature: 2, Alpha: 1, CrossEntropy: 0.5, Cap: 8, TeacherCap: 10},
			{Beta: 0.25, Temperature: 2, Alpha: 0.75},
			{Beta: 0, Temperature: 1, Alpha: 1, CrossEntropy: 0.5, Teacher: kernel.TeacherRenormalised},
			{Beta: 0.5, Temperature: 2, Alpha: 1, Teacher: kernel.TeacherBucket, Cap: 8},
			{Beta: 1, Temperature: 1, Alpha: 1, Teacher: kernel.TeacherBucket},
			{Beta: 0, Temperature: 2, Alpha: 1, CrossEntropy: 1, Teacher: kernel.TeacherZero},
		} {
			k.Chunk, k.Weighted = 64, true
			own := in
			if k.Beta == 0.25 { // a teacher whose head is padded further
				own.dense = []checkInput{in.dense[0], paddedHead(in.dense[1])}
			}
			for _, grad := range []bool{true, false} {
				k.Grad = grad
				bounds := slices.Repeat([]bound{rounded}, 6)
				if !grad {
					bounds = bounds[:5]
				}
				inputs := slices.Concat(own.student, own.dense, own.weights)
				if k.Teacher != kernel.TeacherDense {
					inputs = slices.Concat(own.student, own.sparse, own.weights)
				}
				all = append(all, check{kernel: "divergence",
					name: fmt.Sprintf("%d rows of %d, vocabulary %d, teacher %d, beta %v, gradient %v", s[0], s[1],
						s[2], k.Teacher, k.Beta, grad), build: one(k), in: inputs,
					plain: plainDivergence{k, s[0], s[1]}.outputs, bounds: bounds, gemm: true})
			}
		}
	}
	return all
}

// paddedHead returns a vocabulary head with rows behind the last token, whose logits would be the largest.
func paddedHead(w checkInput) checkInput {
	more := 24 * w.shape[1]
	w.shape = []int{w.shape[0] + 24, w.shape[1]}
	w.values = append(slices.Clone(w.values), slices.Repeat([]float64{9}, more)...)
	return w
}

// divergenceData are the inputs of a divergence, with a dense and with a sparse teacher.
type divergenceData struct{ student, dense, sparse, weights []checkInput }

// divergenceInputs returns M rows of width C, each with a token that is the most likely one by far, whatever the
// numbers are rounded to. Every second row has another one than the teacher.
func divergenceInputs(M, C, V int) (d divergenceData) {
	n := newNumbers()
	const k = 8
	x, w, y, u := n.normal(1, M, C), n.normal(0.2, V, C), n.normal(1, M, C), n.normal(0.2, V, C)
	labels, ids, logps := make([]int, M), make([]int, 0, M*k), make([]float64, 0, M*(k+1))
	for m := range M {
		first := (m*31 + 5) % V
		axpy(x.values[m*C:][:C], 8, w.values[((first+m%2)%V)*C:][:C])
		axpy(y.values[m*C:][:C], 8, u.values[first*C:][:C])
		if labels[m] = (m*7919 + V - 1) % V; m%5 == 3 {
			labels[m] = kernel.Untrained
		}
		rest := 1.
		for j := range k {
			p := rest * 0.4
			rest -= p
			if id := (first + j*(V/k)) % V; j == 0 || (m+j)%3 > 0 {
				ids = append(ids, id)
			} else {
				ids = append(ids, -1)
			}
			logps = append(logps, math.Log(p))
		}
		logps = append(logps, math.Log(rest))
	}
	for _, v := range []checkInput{x, y} {
		formats[kernel.PrecisionBF16].all(v.values)
	}
	tokens := integers(ids...)
	tokens.shape = []int{M, k}
	d.student = []checkInput{x, w, integers(labels...), given([]int{1}, 1/float64(M))}
	d.dense, d.sparse = []checkInput{y, u}, []checkInput{tokens, given([]int{M, k + 1}, logps...)}
	d.weights = []checkInput{positive(n.normal32(1, M))}
	return d
}

// plainDivergence is a LinearDivergence with weights over all logits, with logits and their gradient rounded.
type plainDivergence struct {
	kernel.LinearDivergence
	M, C int
}

func (o plainDivergence) outputs(f format, in [][]float64) [][]float64 {
	x, w, labels, scale, weights := in[0], in[1], in[2], in[3][0], in[6]
	V := len(w) / o.C
	loss, divergence, nll, agreement := 0., 0., 0., 0.
	dx, each, through := make([]float64, o.M*o.C), make([]float64, o.M), make([]float64, V)
	for m, label := range labels {
		if label == kernel.Untrained {
			continue
		}
		z := make([]float64, V)
		for v := range z {
			z[v], through[v] = f.capped(f.round(dot(x[m*o.C:][:o.C], w[v*o.C:][:o.C])), o.Cap)
		}
		p, s := softmax(z, 1), softmax(z, o.Temperature)
		n := -math.Log(p[int(label)])
		d, slopes, first := o.row(f, m, s, in[4], in[5])
		each[m] = weights[m] * (o.Alpha*d + o.CrossEntropy*n)
		loss, divergence, nll = loss+scale*each[m], divergence+d, nll+n
		if largest(z) == first {
			agreement++
		}
		for v := range z {
			g := o.Alpha*slopes[v]/o.Temperature + o.CrossEntropy*p[v]
			if v == int(label) {
				g -= o.CrossEntropy
			}
			axpy(dx[m*o.C:][:o.C], f.round(g*scale*weights[m]*through[v]), w[v*o.C:][:o.C])
		}
	}
	f.all(dx)
	if o.Grad {
		return [][]float64{{loss}, dx, each, {divergence}, {nll}, {agreement}}
	}
	return [][]float64{{loss}, each, {divergence}, {nll}, {agreement}}
}

// row returns the divergence of row m, its gradient for each logit divided by the temperature, and the teacher's most
// likely token. s are the student's probabilities.
func (o plainDivergence) row(f format, m int, s, a, b []float64) (d float64, slopes []float64, first int) {
	slopes = make([]float64, len(s))
	if o.Teacher == kernel.TeacherDense {
		z := make([]float64, len(s))
		for v := range z {
			z[v], _ = f.capped(f.round(dot(a[m*o.C:][:o.C], b[v*o.C:][:o.C])), o.TeacherCap)
		}
		t := softmax(z, o.Temperature)
		d, of, sum := o.terms(s, t)
		for v := range s {
			slopes[v] = of[v] - s[v]*sum
		}
		return d, slopes, largest(z)
	}
	k := len(a) / o.M
	var tokens []int
	var q, t []float64
	in, mass := 0., 0.
	for j, id := range a[m*k:][:k] {
		if id >= 0 {
			tokens, q, t = append(tokens, int(id)), append(q, s[int(id)]), append(t, math.Exp(b[m*(k+1)+j]))
			in, mass = in+s[int(id)], mass+t[len(t)-1]
		}
	}
	rest, norm := 0., 1.
	for v, p := range s {
		if !slices.Contains(tokens, v) {
			rest += p
		}
	}
	switch o.Teacher {
	case kernel.TeacherRenormalised:
		norm = in
		for j := range q {
			q[j], t[j] = q[j]/in, t[j]/mass
		}
	case kernel.TeacherBucket:
		q, t = append(q, rest), append(t, math.Exp(b[m*(k+1)+k]))
	}
	d, of, sum := o.terms(q, t)
	for v, p := range s {
		switch j := slices.Index(tokens, v); {
		case j >= 0:
			slopes[v] = of[j] - p/norm*sum
		case o.Teacher == kernel.TeacherBucket:
			slopes[v] = of[len(tokens)]*p/rest - p*sum
		case o.Teacher == kernel.TeacherZero:
			slopes[v] = -p * sum
		}
	}
	return d, slopes, tokens[0]
}

// terms returns the divergence of s from t, its derivatives by the logarithms of s, and their sum.
func (o plainDivergence) terms(s, t []float64) (d float64, of []float64, sum float64) {
	of = make([]float64, len(s))
	for i := range s {
		m := (1-o.Beta)*s[i] + o.Beta*t[i]
		switch o.Beta {
		case 0:
			d, of[i] = d+t[i]*math.Log(t[i]/s[i]), -t[i]
		case 1:
			of[i] = s[i] * math.Log(s[i]/t[i])
			d += of[i]
		default:
			of[i] = (1 - o.Beta) * s[i] * math.Log(s[i]/m)
			d += o.Beta*t[i]*math.Log(t[i]/m) + of[i]
		}
		sum += of[i]
	}
	return d, of, sum
}

func softmax(z []float64, temperature float64) []float64 {
	p, sum, top := make([]float64, len(z)), 0., slices.Max(z)
	for v := range z {
		p[v] = math.Exp((z[v] - top) / temperature)
		sum += p[v]
	}
	for v := range p {
		p[v] /= sum
	}
	return p
}

// largest returns the index of the largest number, of equals the first.
func largest(x []float64) (at int) {
	for i := range x {
		if x[i] > x[at] {
			at = i
		}
	}
	return at
}

// topKChecks returns the most likely tokens of rows whose first tokens are far apart, so that rounding does not change
// their order.
func topKChecks() []check {
	n := newNumbers()
	const k, C = 6, 64
	var all []check
	for _, s := range [][2]int{{7, 512}, {129, 777}} {
		M, V := s[0], s[1]
		x, w := n.normal(0.1, M, C), n.normal(0.1, V, C)
		labels := make([]int, M)
		for j := range k { // token j*(V/k) has the logit 20 - 2j in rows that begin with 1
			clear(w.values[j*(V/k)*C:][:C])
			w.values[j*(V/k)*C] = float64(20 - 2*j)
		}
		for m := range M {
			clear(x.values[m*C:][:C/2])
			x.values[m*C] = 1
			if labels[m] = m % V; m%5 == 3 {
				labels[m] = kernel.Untrained
			}
		}
		for v := range V {
			if v%(V/k) != 0 || v/(V/k) >= k {
				w.values[v*C] = 0
			}
		}
		for _, o := range []kernel.LinearTopK{{Temperature: 1}, {Temperature: 2, Cap: 40}} {
			o.Chunk, o.K = 64, k
			all = append(all, check{kernel: "topk", name: fmt.Sprintf("%d rows, vocabulary %d, temperature %v, soft "+
				"cap %v",
				M, V, o.Temperature, o.Cap), build: one(o), in: []checkInput{x, w, integers(labels...)},
				plain: plainTopK{o, M, C}.outputs, bounds: []bound{exact, rounded}, gemm: true})
		}
	}
	return all
}

// plainTopK is a LinearTopK over all logits, rounded.
type plainTopK struct {
	kernel.LinearTopK
	M, C int
}

func (o plainTopK) outputs(f format, in [][]float64) [][]float64 {
	x, w, labels := in[0], in[1], in[2]
	var ids, logps []float64
	for m, label := range labels {
		if label == kernel.Untrained {
			ids = append(ids, slices.Repeat([]float64{-1}, o.K)...)
			logps = append(logps, make([]float64, o.K+1)...)
			continue
		}
		z := make([]float64, len(w)/o.C)
		for v := range z {
			z[v], _ = f.capped(f.round(dot(x[m*o.C:][:o.C], w[v*o.C:][:o.C])), o.Cap)
		}
		p := softmax(z, o.Temperature)
		for range o.K {
			at := largest(p)
			ids, logps = append(ids, float64(at)), append(logps, math.Log(p[at]))
			p[at] = -1
		}
		rest := 0.
		for _, p := range p {
			rest += max(p, 0)
		}
		logps = append(logps, math.Log(rest))
	}
	return [][]float64{ids, logps}
}
