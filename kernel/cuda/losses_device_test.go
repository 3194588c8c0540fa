//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

func TestSmoothedCrossEntropy(t *testing.T) {
	for _, cap := range []float64{0, 6} {
		for _, weighted := range []bool{false, true} {
			t.Run(fmt.Sprintf("cap %v, weights %v", cap, weighted), func(t *testing.T) {
				elements(t, 256<<20, func(t *testing.T, r *harness) {
					for _, c := range [][3]int{{5, 512, 512}, {3, 49152, 49152}, {4, 151936, 151936}, {6, 1001, 1008},
						{3, 777, 777}, {3, 7, 7}} {
						testSmoothedCrossEntropy(t, r, c[0], c[1], c[2], cap, weighted)
					}
				})
			})
		}
	}
}

func testSmoothedCrossEntropy(t *testing.T, r *harness, M, V, ld int, cap float64, weighted bool) {
	const smoothing, zLoss, scale = 0.1, 1e-3, 0.25
	labels, weights := make([]int32, M), make([]float32, M)
	for m := range labels {
		labels[m], weights[m] = int32((m*7919)%V), 0.25*float32(m+1)
	}
	labels[0], labels[M-1] = int32(V-1), -100
	var x []float64
	end, more := "", []any(nil)
	if cap > 0 {
		end, more = "_capped", []any{float32(cap)}
	}
	out := r.repeat(func() [][]byte {
		var xb []byte
		xb, x = r.numbers(M*ld, 4)
		L, S := in(r, "labels", labels), in(r, "scale", []float32{scale})
		W := gpu.Ptr(0)
		if weighted {
			W = in(r, "weights", weights)
		}
		var got [][]byte
		for _, entry := range []string{"smoothed_crossentropy_gradient", "smoothed_crossentropy_loss"} {
			X := in(r, "logits", xb)
			E, N, Q := r.out("each", int64(4*M)), r.out("nll", int64(4*M)), r.out("squares", int64(4*M))
			args := append([]any{E, N, Q, X, L, W, S, gpu.Ptr(0), float32(smoothing), float32(zLoss), i32(V), i32(ld)},
				more...)
			r.run(SmoothedCrossEntropy(entry+end, M, V), args...)
			got = append(got, get[byte](r, E, 4*M), get[byte](r, N, 4*M), get[byte](r, Q, 4*M),
				get[byte](r, X, M*ld*r.size()))
		}
		return got
	})
	each, nll, squares, dx := make([]float64, M), make([]float64, M), make([]float64, M), slices.Clone(x)
	for m, label := range labels {
		row := x[m*ld:][:V]
		if label < 0 {
			clear(dx[m*ld:][:V])
			continue
		}
		l, through := logSoftmax(row, cap)
		y := row[label]
		if cap > 0 {
			y = cap * math.Tanh(y/cap)
		}
		z, mean, weight := y-l[label], 0., 1.
		for _, l := range l {
			mean += (l + z) / float64(V)
		}
		if weighted {
			weight = float64(weights[m])
		}
		nll[m], squares[m] = -l[label], z*z
		each[m] = weight * ((1-smoothing)*nll[m] + smoothing*(z-mean) + zLoss*z*z)
		for v, l := range l {
			d := math.Exp(l)*(1+2*zLoss*z) - smoothing/float64(V)
			if v == int(label) {
				d -= 1 - smoothing
			}
			dx[m*ld+v] = d * scale * weight * through[v]
		}
	}
	what := fmt.Sprintf("[%d,%d] of %d", M, V, ld)
	for i := range 2 {
		part := out[4*i:][:4]
		nearF32(t, what+" losses", f32Floats(part[0]), each)
		nearF32(t, what+" likelihoods", f32Floats(part[1]), nll)
		nearF32(t, what+" squares", f32Floats(part[2]), squares)
		for k := range 3 {
			if !slices.Equal(part[k], out[k]) {
				t.Errorf("%s: another output %d without a gradient", what, k)
			}
		}
	}
	nearSlopes(t, r, what+" gradient", out[3], dx)
	if !slices.Equal(out[7], r.encoded(x)) {
		t.Errorf("%s: the logits changed", what)
	}
}

// TestTokenLoss: the losses and gradients of tokens, also of tokens that the model is certain of or finds impossible;
// what stands in place of an untrained token is not read.
func TestTokenLoss(t *testing.T) {
	r := newHarness(t, 64<<20)
	const scale, gamma = 0.5, 2
	for _, M := range []int{1, 7, 1000, 70001} {
		labels, weights, logp := make([]int32, M), make([]float32, M), make([]float32, M)
		out := r.repeat(func() [][]byte {
			for m := range logp {
				labels[m], weights[m] = int32(m), 0.25*float32(m%9)
				logp[m] = -float32(math.Abs(r.rnd.NormFloat64()) * 3)
				switch {
				case m%5 == 3:
					labels[m], logp[m], weights[m] = -100, float32(math.NaN()), float32(math.NaN())
				case m%11 == 6:
					logp[m] = 0
				case m%11 == 8:
					logp[m] = -80
				}
			}
			P, L, S := in(r, "logp", logp), in(r, "labels", labels), in(r, "scale", []float32{scale})
			W := in(r, "weights", weights)
			var got [][]byte
			for _, entry := range []string{"token_loss_dft", "token_loss_focal"} {
				E, N, D := r.out("each", int64(4*M)), r.out("nll", int64(4*M)), r.out("dlogp", int64(4*M))
				r.run(Flat("token_loss", entry, int64(M)), E, N, D, P, L, W, S, gpu.Ptr(0), float32(gamma), i32(M))
				got = append(got, get[byte](r, E, 4*M), get[byte](r, N, 4*M), get[byte](r, D, 4*M))
			}
			return got
		})
		for form := range 2 {
			each, nll, dlogp := make([]float64, M), make([]float64, M), make([]float64, M)
			for m := range logp {
				if labels[m] < 0 {
					continue
				}
				l, w := float64(logp[m]), float64(weights[m])
				p, rest := math.Exp(l), -math.Expm1(l)
				nll[m] = -l
				if each[m], dlogp[m] = -w*p*l, -w*p*scale; form == 1 {
					each[m], dlogp[m] = -w*rest*rest*l, w*scale*(2*rest*p*l-rest*rest)
				}
			}
			what := fmt.Sprintf("form %d, %d tokens", form, M)
			nearF32(t, what+" losses", f32Floats(out[3*form]), each)
			nearF32(t, what+" likelihoods", f32Floats(out[3*form+1]), nll)
			nearF32(t, what+" gradient", f32Floats(out[3*form+2]), dlogp)
		}
	}
}

// TestNEFTune: the noise is that of the definition, in place too, and rounds once.
func TestNEFTune(t *testing.T) {
	elements(t, 256<<20, func(t *testing.T, r *harness) {
		for _, c := range [][2]int{{1, 1}, {5, 64}, {7, 33}, {300, 4096}} {
			M, C := c[0], c[1]
			rows, positions, scale := make([]int32, M), make([]int32, M), make([]float32, M)
			for m := range rows {
				rows[m], positions[m], scale[m] = int32(m/3), int32(m%3), 0.125*float32(m%5)
			}
			var x []float64
			n := M * C * r.size()
			out := r.repeat(func() [][]byte {
				var xb []byte
				xb, x = r.numbers(M*C, 1)
				X, Y := in(r, "x", xb), r.out("y", int64(n))
				R, P, S := in(r, "rows", rows), in(r, "positions", positions), in(r, "scale", scale)
				K := in(r, "counter", []int32{11, 4})
				g := Flat("neftune", "neftune_add", int64(M)*int64((C+3)/4))
				r.run(g, Y, X, R, P, S, K, int64(5), i32(M), i32(C))
				r.run(g, X, X, R, P, S, K, int64(5), i32(M), i32(C))
				return [][]byte{get[byte](r, Y, n), get[byte](r, X, n)}
			})
			if !slices.Equal(out[0], out[1]) {
				t.Errorf("[%d,%d]: another result in place", M, C)
			}
			want := slices.Clone(x)
			for m := range rows {
				for c := range C {
					w := philoxWord(uint32(c), uint32(positions[m]), uint32(rows[m]), 4, 11+5)
					want[m*C+c] += float64(scale[m]) * (float64(w>>8)*0x1p-23 - 1)
				}
			}
			r.near(t, fmt.Sprintf("[%d,%d]", M, C), out[0], want)
		}
	})
}

// philoxWord returns word c%4 of Philox4x32-10 with the counter (c/4, position, row, step).
func philoxWord(c, position, row, step uint32, key uint64) uint32 {
	v, k := [4]uint32{c / 4, position, row, step}, [2]uint32{uint32(key), uint32(key >> 32)}
	for range 10 {
		p, q := uint64(0xd2511f53)*uint64(v[0]), uint64(0xcd9e8d57)*uint64(v[2])
		v = [4]uint32{uint32(q>>32) ^ v[1] ^ k[0], uint32(q), uint32(p>>32) ^ v[3] ^ k[1], uint32(p)}
		k[0], k[1] = k[0]+0x9e3779b9, k[1]+0xbb67ae85
	}
	return v[c%4]
}
