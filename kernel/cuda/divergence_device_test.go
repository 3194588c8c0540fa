//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// divergenceCase is a launch of the divergence_* kernels.
type divergenceCase struct {
	M, V, ld, K int // K is the support's size; 0 = the teacher's logits
	beta        float64
	mode        int
}

// TestDivergence compares losses and gradients of whole vocabularies, padded rows and the largest support with float64.
// Labels and tokens outside of the vocabulary give NaN in their row alone; untrained rows give zeros.
func TestDivergence(t *testing.T) {
	elements(t, 512<<20, func(t *testing.T, r *harness) {
		for _, s := range [][3]int{{5, 151936, 151936}, {6, 1001, 1008}, {4, 777, 777}} {
			for _, beta := range []float64{0, 0.25, 1} {
				testDivergence(t, r, divergenceCase{M: s[0], V: s[1], ld: s[2], beta: beta})
				for _, K := range []int{1, 32, 512} {
					for mode := 1; mode <= 2; mode++ {
						testDivergence(t, r, divergenceCase{M: s[0], V: s[1], ld: s[2], K: K, beta: beta, mode: mode})
					}
				}
			}
			testDivergence(t, r, divergenceCase{M: s[0], V: s[1], ld: s[2], K: 32, mode: 3})
		}
	})
}

const (
	divergenceScale = 0.25
	divergenceCE    = 0.5
	divergenceCold  = 0.5 // temperature 2
)

func testDivergence(t *testing.T, r *harness, c divergenceCase) {
	M, V, ld := c.M, c.V, c.ld
	labels := make([]int32, M)
	for m := range labels {
		labels[m] = int32((m * 7919) % V)
	}
	labels[0], labels[1], labels[M-1] = int32(V-1), -100, int32(V)
	ids, logps := divergenceSupport(c)
	var x, y []float64
	out := r.repeat(func() [][]byte {
		var xb, yb []byte
		xb, x = r.numbers(M*ld, 4)
		yb, y = r.numbers(M*ld, 4)
		L, S := in(r, "labels", labels), in(r, "scale", []float32{divergenceScale})
		var got [][]byte
		for _, end := range []string{"_gradient", "_loss"} {
			X := in(r, "logits", xb)
			E, D := r.out("each", int64(4*M)), r.out("divergence", int64(4*M))
			N, A := r.out("nll", int64(4*M)), r.out("agreement", int64(4*M))
			args := []any{E, D, N, A, X}
			numbers := []any{float32(c.beta), float32(divergenceCold), float32(1), float32(divergenceCE), float32(0)}
			if c.K == 0 {
				args = append(args, in(r, "teacher", yb), L, gpu.Ptr(0), S, gpu.Ptr(0), i32(V), i32(ld), i32(ld))
				args = append(append(args, numbers...), float32(0))
				r.run(Divergence("divergence_dense"+end, M, V), args...)
			} else {
				args = append(args, in(r, "ids", ids), in(r, "logps", logps), L, gpu.Ptr(0), S, gpu.Ptr(0), i32(V),
					i32(ld), i32(c.K), i32(c.mode))
				r.run(Divergence("divergence_sparse"+end, M, V), append(args, numbers...)...)
			}
			for _, p := range []gpu.Ptr{E, D, N, A} {
				got = append(got, get[byte](r, p, 4*M))
			}
			got = append(got, get[byte](r, X, M*ld*r.size()))
		}
		return got
	})
	what := fmt.Sprintf("%+v", c)
	for i := range 4 {
		if !slices.Equal(out[i], out[5+i]) {
			t.Errorf("%s: another output %d without a gradient", what, i)
		}
	}
	each, dx := f32Floats(out[0]), r.decoded(out[4])
	if !math.IsNaN(each[M-1]) || !math.IsNaN(dx[(M-1)*ld]) || each[1] != 0 || dx[ld] != 0 {
		t.Errorf("%s: the row without a known label has the loss %v, the untrained row %v", what, each[M-1], each[1])
	}
	wantEach, wantD, want := make([]float64, M-1), make([]float64, M-1), slices.Clone(x[:(M-1)*ld])
	for m, label := range labels[:M-1] {
		if label < 0 {
			clear(want[m*ld:][:V])
			continue
		}
		d, n := c.row(want[m*ld:][:V], x[m*ld:][:V], y[m*ld:][:V], ids, logps, m, int(label))
		wantEach[m], wantD[m] = d+divergenceCE*n, d
	}
	nearLoose(t, what+" losses", each[:M-1], wantEach)
	nearLoose(t, what+" divergences", f32Floats(out[1])[:M-1], wantD)
	nearSlopes(t, r, what+" gradient", out[4][:(M-1)*ld*r.size()], want)
}

// nearLoose demands a relative error of at most 2e-5: sums of 150,000 fp32 terms that partly cancel.
func nearLoose(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if e := distance(got, want); !(e <= 2e-5) {
		t.Errorf("%s: error %.3g, limit 2e-5", what, e)
	}
}

// divergenceSupport returns the tokens of each row and their log-probabilities; every fifth place has none.
func divergenceSupport(c divergenceCase) (ids []int32, logps []float32) {
	for m := range c.M {
		rest := 1.
		for k := range c.K {
			id, p := int32((m+k*(c.V/c.K))%c.V), rest*0.02
			if k%5 == 4 {
				id, p = -1, 0
			}
			rest -= p
			ids, logps = append(ids, id), append(logps, float32(math.Log(max(p, 1e-9))))
		}
		logps = append(logps, float32(math.Log(rest)))
	}
	return ids, logps
}

// row writes the gradient for the logits x of row m to dx, and returns its divergence and negative log-likelihood.
func (c divergenceCase) row(dx, x, y []float64, ids []int32, logps []float32, m, label int) (d, n float64) {
	p, s := softmaxOf(x, 1), softmaxOf(x, divergenceCold)
	n = -math.Log(p[label])
	q, t := s, softmaxOf(y, divergenceCold)
	at := make([]int, len(x)) // a token's place in q, -1 = it is in the bucket
	for v := range at {
		at[v] = v
	}
	norm, rest := 1., 0.
	if c.K > 0 {
		q, t = nil, nil
		for v := range at {
			at[v] = -1
		}
		in, mass := 0., 0.
		for k, id := range ids[m*c.K:][:c.K] {
			if id >= 0 {
				at[id] = len(q)
				q, t = append(q, s[id]), append(t, math.Exp(float64(logps[m*(c.K+1)+k])))
				in, mass = in+s[id], mass+t[len(t)-1]
			}
		}
		for v := range at {
			if at[v] < 0 {
				rest += s[v]
			}
		}
		switch c.mode {
		case 1:
			norm = in
			for k := range q {
				q[k], t[k] = q[k]/in, t[k]/mass
			}
		case 2:
			q, t = append(q, rest), append(t, math.Exp(float64(logps[m*(c.K+1)+c.K])))
		}
	}
	g, sum := make([]float64, len(q)), 0.
	for k := range q {
		mix := (1-c.beta)*q[k] + c.beta*t[k]
		switch c.beta {
		case 0:
			d, g[k] = d+t[k]*math.Log(t[k]/q[k]), -t[k]
		case 1:
			g[k] = q[k] * math.Log(q[k]/t[k])
			d += g[k]
		default:
			g[k] = (1 - c.beta) * q[k] * math.Log(q[k]/mix)
			d += c.beta*t[k]*math.Log(t[k]/mix) + g[k]
		}
		sum += g[k]
	}
	for v := range x {
		z := -s[v] / norm * sum
		switch {
		case at[v] >= 0:
			z += g[at[v]]
		case c.mode == 1:
			z = 0
		case c.mode == 2:
			z += g[len(g)-1] * s[v] / rest
		}
		z = z*divergenceCold + divergenceCE*p[v]
		if v == label {
			z -= divergenceCE
		}
		dx[v] = z * divergenceScale
	}
	return d, n
}

func softmaxOf(x []float64, cold float64) []float64 {
	p, sum, top := make([]float64, len(x)), 0., slices.Max(x)
	for v := range x {
		p[v] = math.Exp((x[v] - top) * cold)
		sum += p[v]
	}
	for v := range p {
		p[v] /= sum
	}
	return p
}
