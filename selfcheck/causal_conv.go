package selfcheck

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel"
)

// convChecks returns the short convolutions over packed sequences, their gradients, and their next tokens behind what
// slots hold.
func convChecks() []check {
	n := newNumbers()
	var all []check
	for _, K := range []int{1, 2, 3, 4, 9} {
		for _, C := range []int{64, 33} {
			x := func(rows int) checkInput { return n.normal(1, rows, C) }
			for _, cu := range [][]int{{0, 1}, {0, 129}, {2, 2, 9, 10, 65, 65, 126}, {7}} {
				M := cu[len(cu)-1] + 3
				name := fmt.Sprintf("%d taps, [%d,%d], sequences between rows %v", K, M, C, cu)
				plain := shortConv{cu: cu, C: C, K: K}.plain
				all = append(all,
					check{kernel: "causal_conv", name: name, build: one(kernel.CausalConv{}), bounds: []bound{rounded},
						in: []checkInput{x(M), n.normal(1, C, K), integers(cu...)}},
					check{kernel: "causal_conv_grad", name: name, build: one(kernel.CausalConvGrad{}),
						bounds: []bound{rounded},
						in:     []checkInput{x(M), n.normal(1, C, K), integers(cu...), x(M)}},
					check{kernel: "short_conv", name: name, build: one(kernel.ShortConv{}),
						bounds: []bound{rounded}, plain: plain,
						in: []checkInput{n.normal(1, M, 3*C), n.normal(1, C, K), integers(cu...)}},
					check{kernel: "short_conv_grad", name: name, build: one(kernel.ShortConvGrad{}),
						bounds: []bound{rounded}, plain: plain,
						in: []checkInput{n.normal(1, M, 3*C), n.normal(1, C, K), integers(cu...), x(M)}})
			}
			if K == 1 {
				continue // nothing is kept
			}
			for _, s := range []struct{ cuQ, cuK []int }{
				{[]int{0, 1}, []int{200, 207}}, // one token more
				// one that begins, three more, a second
				{[]int{0, 1, 1, 4, 4, 5}, []int{0, 1, 200, 230, 100, 102}},
				// a piece of a prompt, none, a short prompt
				{[]int{0, 70, 70, 70, 70, 79}, []int{100, 180, 0, 5, 200, 209}},
			} {
				all = append(all, check{kernel: "short_conv_cached",
					name:  fmt.Sprintf("%d taps, %d columns, rows %v of tokens %v in slots of 100", K, C, s.cuQ, s.cuK),
					build: one(kernel.ShortConvCached{Tokens: 100}), bounds: []bound{rounded, rounded},
					in: []checkInput{n.normal(1, s.cuQ[len(s.cuQ)-1]+2, 3*C), n.normal(1, C, K), integers(s.cuQ...),
						integers(s.cuK...), n.normal(1, 3, (K-1)*C).overwritten()}})
				all = append(all, check{kernel: "causal_conv_cached",
					name:  fmt.Sprintf("%d taps, %d columns, rows %v of tokens %v in slots of 100", K, C, s.cuQ, s.cuK),
					build: one(kernel.CausalConvCached{Tokens: 100}), bounds: []bound{rounded, exact},
					in: []checkInput{x(s.cuQ[len(s.cuQ)-1] + 2), n.normal(1, C, K), integers(s.cuQ...),
						integers(s.cuK...), n.normal(1, 3, (K-1)*C).overwritten()}})
			}
		}
	}
	return all
}

// shortConv is the shape of a short convolution of C columns with K taps over the sequences between the rows cu.
type shortConv struct {
	cu   []int
	C, K int
}

// plain computes the short convolution with its input u = x0 x2 rounded as a slot holds it. It returns y, or the
// gradient of x where the inputs have the gradient of y.
func (s shortConv) plain(f format, in [][]float64) [][]float64 {
	x, w := in[0], in[1]
	y, dx := make([]float64, len(x)/3), make([]float64, len(x))
	for i := range s.cu[1:] {
		first, end := s.cu[i], s.cu[i+1]
		for c := range s.C {
			third := func(t, n int) *float64 { return &x[(t*3+n)*s.C+c] }
			for t := first; t < end; t++ {
				sum, du := 0.0, 0.0
				for j := range s.K {
					if from := t - s.K + 1 + j; from >= first {
						sum += w[c*s.K+j] * f.round(*third(from, 0)**third(from, 2))
					}
					if to := t + s.K - 1 - j; to < end && len(in) > 3 {
						du += w[c*s.K+j] * in[3][to*s.C+c] * *third(to, 1)
					}
				}
				y[t*s.C+c] = sum * *third(t, 1)
				if len(in) > 3 {
					to := dx[t*3*s.C+c:]
					to[0], to[s.C], to[2*s.C] = du**third(t, 2), in[3][t*s.C+c]*sum, du**third(t, 0)
				}
			}
		}
	}
	if len(in) > 3 {
		y = dx
	}
	f.all(y)
	return [][]float64{y}
}
