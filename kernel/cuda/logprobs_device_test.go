//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

func TestLogProbs(t *testing.T) {
	for _, cap := range []float64{0, 6} {
		t.Run(fmt.Sprintf("cap %v", cap), func(t *testing.T) {
			elements(t, 256<<20, func(t *testing.T, r *harness) {
				for _, c := range [][3]int{{5, 512, 512}, {3, 49152, 49152}, {4, 151936, 151936}, {6, 1001, 1008},
					{3, 777, 777}, {3, 7, 7}} {
					testLogProbs(t, r, c[0], c[1], c[2], cap)
				}
			})
		})
	}
}

func testLogProbs(t *testing.T, r *harness, M, V, ld int, cap float64) {
	labels := make([]int32, M)
	for m := range labels {
		labels[m] = int32((m * 7919) % V)
	}
	labels[0], labels[M-1] = int32(V-1), -100
	var x []float64
	end, more := "", []any(nil)
	if cap > 0 {
		end, more = "_capped", []any{float32(cap)}
	}
	size := r.size()
	out := r.repeat(func() [][]byte {
		var xb []byte
		xb, x = r.numbers(M*ld, 4)
		L := in(r, "labels", labels)
		var got [][]byte
		for _, entry := range []string{"logprobs_values", "logprobs_slopes", "logprobs_both"} {
			X, D := in(r, "logits", xb), in(r, "entropy gradient", xb)
			P, H := r.out("logp", int64(4*M)), r.out("entropy", int64(4*M))
			args := []any{P, H, X}
			if entry == "logprobs_both" {
				args = append(args, D)
			}
			args = append(append(args, L, i32(V), i32(ld)), more...)
			r.run(LogProbs(entry+end, M, V), args...)
			got = append(got, get[byte](r, P, 4*M), get[byte](r, H, 4*M), get[byte](r, X, M*ld*size),
				get[byte](r, D, M*ld*size))
			alone := r.out("logp alone", int64(4*M)) // without entropies
			args[0], args[1], args[2] = alone, gpu.Ptr(0), in(r, "logits", xb)
			r.run(LogProbs(entry+end, M, V), args...)
			got = append(got, get[byte](r, alone, 4*M))
		}
		return got
	})
	logp, entropy := make([]float64, M), make([]float64, M)
	slope, entropySlope := slices.Clone(x), slices.Clone(x) // what lies between rows stays
	for m, label := range labels {
		row := x[m*ld:][:V]
		if label < 0 {
			clear(slope[m*ld:][:V])
			clear(entropySlope[m*ld:][:V])
			continue
		}
		l, through := logSoftmax(row, cap)
		logp[m] = l[label]
		for _, l := range l {
			entropy[m] -= math.Exp(l) * l
		}
		for v, l := range l {
			p := math.Exp(l)
			slope[m*ld+v], entropySlope[m*ld+v] = -p*through[v], -p*(l+entropy[m])*through[v]
		}
		slope[m*ld+int(label)] += through[label]
	}
	what := fmt.Sprintf("[%d,%d] of %d", M, V, ld)
	for i := range 3 {
		part := out[5*i:][:5]
		nearF32(t, what+" log-probabilities", f32Floats(part[0]), logp)
		nearF32(t, what+" entropies", f32Floats(part[1]), entropy)
		if !slices.Equal(part[0], out[0]) || !slices.Equal(part[1], out[1]) || !slices.Equal(part[4], out[0]) {
			t.Errorf("%s: other log-probabilities or entropies where more or less is computed", what)
		}
		if i > 0 {
			nearSlopes(t, r, what+" slopes", part[2], slope)
		} else if !slices.Equal(part[2], r.encoded(x)) {
			t.Errorf("%s: the logits changed", what)
		}
		if i == 2 {
			nearSlopes(t, r, what+" entropy slopes", part[3], entropySlope)
		}
	}
}

// TestLogProbsCollision checks collision entropies in every element type, with and without a soft cap.
func TestLogProbsCollision(t *testing.T) {
	elements(t, 256<<20, func(t *testing.T, r *harness) {
		for _, c := range [][3]int{{5, 512, 512}, {4, 151936, 151936}, {6, 1001, 1008}, {3, 777, 777}, {3, 7, 7}} {
			for _, cap := range []float64{0, 6} {
				M, V, ld := c[0], c[1], c[2]
				labels := make([]int32, M)
				labels[M-2], labels[M-1] = int32(V), -100
				var x []float64
				out := r.repeat(func() [][]byte {
					var xb []byte
					xb, x = r.numbers(M*ld, 4)
					H := r.out("entropy", int64(4*M))
					r.run(Collision(M, V), H, in(r, "logits", xb), in(r, "labels", labels), i32(V), i32(ld),
						float32(cap))
					return [][]byte{get[byte](r, H, 4*M)}
				})
				got, want := f32Floats(out[0]), make([]float64, M-2)
				for m := range want {
					l, _ := logSoftmax(x[m*ld:][:V], cap)
					squares := 0.
					for _, l := range l {
						squares += math.Exp(2 * l)
					}
					want[m] = -math.Log(squares)
				}
				nearF32(t, fmt.Sprintf("[%d,%d] of %d, cap %v", M, V, ld, cap), got[:M-2], want)
				if !math.IsNaN(got[M-2]) || got[M-1] != 0 {
					t.Errorf("a label outside the vocabulary has %v, none has %v", got[M-2], got[M-1])
				}
			}
		}
	})
}

// TestLogProbsStatistics checks entropies, means of logits and likeliest labels in every element type, with and without
// a soft cap.
func TestLogProbsStatistics(t *testing.T) {
	elements(t, 256<<20, func(t *testing.T, r *harness) {
		for _, c := range [][3]int{{6, 512, 512}, {6, 151936, 151936}, {6, 1001, 1008}, {6, 777, 777}, {6, 7, 7}} {
			for _, cap := range []float64{0, 6} {
				M, V, ld := c[0], c[1], c[2]
				const stride = 9
				labels := make([]int32, M)
				var x []float64
				out := r.repeat(func() [][]byte {
					var xb []byte
					xb, x = r.numbers(M*ld, 4)
					labels = []int32{likeliestOf(x[:V]), likeliestOf(x[ld:][:V]), 0, int32(V - 1), int32(V), -100}
					to := r.out("statistics", 4*3*stride)
					r.run(LogitStatistics(M, V), to, in(r, "logits", xb), in(r, "labels", labels), i32(V), i32(ld),
						i32(stride), float32(cap))
					return [][]byte{get[byte](r, to, 4*3*stride)}
				})
				got := f32Floats(out[0])
				var have, want []float64
				for m := range M - 2 {
					l, _ := logSoftmax(x[m*ld:][:V], cap)
					entropy, mean, top := 0., 0., 0.
					for v, l := range l {
						entropy -= math.Exp(l) * l
						y := x[m*ld+v]
						if cap > 0 {
							y = cap * math.Tanh(y/cap)
						}
						mean += y / float64(V)
					}
					if likeliestOf(x[m*ld:][:V]) == labels[m] {
						top = 1
					}
					have = append(have, got[m], got[stride+m], got[2*stride+m])
					want = append(want, entropy, mean, top)
				}
				what := fmt.Sprintf("[%d,%d] of %d, cap %v", M, V, ld, cap)
				nearF32(t, what, have, want)
				for row := range 3 {
					if at := got[row*stride:]; !math.IsNaN(at[M-2]) || at[M-1] != 0 {
						t.Errorf("%s: a label outside the vocabulary has %v, none has %v", what, at[M-2], at[M-1])
					}
				}
			}
		}
	})
}

// likeliestOf returns the place of the largest number, the first of equals.
func likeliestOf(x []float64) int32 { return int32(slices.Index(x, slices.Max(x))) }

// nearSlopes is near, but in fp32 it allows 5e-6: exponentials of differences of about 20 are off by the rounding of
// those.
func nearSlopes(t *testing.T, r *harness, what string, got []byte, want []float64) {
	t.Helper()
	if r.elem != "f32" {
		r.near(t, what, got, want)
		return
	}
	e := distance(r.decoded(got), want)
	t.Logf("%s: error %.3g", what, e)
	if !(e <= 5e-6) {
		t.Errorf("%s: error %.3g, limit 5e-6", what, e)
	}
}

// logSoftmax returns the log-probabilities of a row of logits below a soft cap, 0 = none, and the cap's derivative at
// each.
func logSoftmax(x []float64, cap float64) (l, through []float64) {
	l, through = slices.Clone(x), slices.Repeat([]float64{1}, len(x))
	top, sum := math.Inf(-1), 0.
	for i, v := range l {
		if cap > 0 {
			t := math.Tanh(v / cap)
			l[i], through[i] = cap*t, 1-t*t
		}
		top = max(top, l[i])
	}
	for _, v := range l {
		sum += math.Exp(v - top)
	}
	for i := range l {
		l[i] -= top + math.Log(sum)
	}
	return l, through
}

// TestLogProbsLabels: a label outside the vocabulary gives NaN, but -100 gives zeros, in log-probabilities and in
// cross-entropy.
func TestLogProbsLabels(t *testing.T) {
	elements(t, 64<<20, func(t *testing.T, r *harness) {
		const V = 40
		labels := []int32{-100, 3, -1, V, -101, math.MaxInt32, math.MinInt32, 0}
		M := len(labels)
		out := r.repeat(func() [][]byte {
			xb, _ := r.numbers(M*V, 1)
			L := in(r, "labels", labels)
			X, D, P, H := in(r, "logits", xb), r.out("entropy gradient", int64(M*V*r.size())),
				r.out("logp", int64(4*M)), r.out("entropy", int64(4*M))
			r.run(LogProbs("logprobs_both", M, V), P, H, X, D, L, i32(V), i32(V))
			X2, loss := in(r, "logits", xb), r.out("loss", int64(4*M))
			r.run(CrossEntropy("crossentropy_gradient", M, V), loss, X2, L, in(r, "scale", []float32{1}), gpu.Ptr(0),
				i32(V), i32(V))
			return [][]byte{get[byte](r, P, 4*M), get[byte](r, H, 4*M), get[byte](r, loss, 4*M),
				get[byte](r, X, M*V*r.size()), get[byte](r, D, M*V*r.size()), get[byte](r, X2, M*V*r.size())}
		})
		for i, b := range out {
			values, per := f32Floats(b), 1
			if i >= 3 {
				values, per = r.decoded(b), V
			}
			for j, v := range values {
				label := labels[j/per]
				switch known := label >= 0 && label < V; {
				case label == -100 && v != 0, known && v != v, !known && label != -100 && v == v:
					t.Fatalf("output %d, row %d with label %d: %v", i, j/per, label, v)
				}
			}
		}
	})
}

func TestLogProbsGradient(t *testing.T) {
	elements(t, 256<<20, func(t *testing.T, r *harness) {
		for _, c := range [][2]int{{1, 1}, {5, 8}, {7, 33}, {65, 576}, {130, 4096}, {9, 2047}} {
			M, C := c[0], c[1]
			labels, dy := make([]int32, M), make([]float32, 2*M)
			for m := range labels {
				labels[m], dy[m], dy[M+m] = int32(m), float32(m%7)-2.5, 0.25*float32(m%5)-0.3
				if m%4 == 3 {
					labels[m], dy[m], dy[M+m] = -100, float32(math.NaN()), float32(math.Inf(1)) // neither is read
				}
			}
			var slope, entropySlope []float64
			n := M * C * r.size()
			out := r.repeat(func() [][]byte {
				var sb, eb []byte
				sb, slope = r.numbers(M*C, 1)
				eb, entropySlope = r.numbers(M*C, 1)
				L, W, E := in(r, "labels", labels), in(r, "dy", dy), in(r, "entropy slope", eb)
				one, both, inPlace := r.out("dx", int64(n)), r.out("dx of both", int64(n)), in(r, "slope", sb)
				r.run(LogProbsGradient(M, C), one, L, W, inPlace, gpu.Ptr(0), i32(M), i32(C))
				r.run(LogProbsGradient(M, C), both, L, W, inPlace, E, i32(M), i32(C))
				r.run(LogProbsGradient(M, C), inPlace, L, W, inPlace, E, i32(M), i32(C))
				return [][]byte{get[byte](r, one, n), get[byte](r, both, n), get[byte](r, inPlace, n)}
			})
			one, both := make([]float64, M*C), make([]float64, M*C)
			for m, label := range labels {
				for c := range C {
					if label >= 0 {
						one[m*C+c] = float64(dy[m]) * slope[m*C+c]
						both[m*C+c] = one[m*C+c] + float64(dy[M+m])*entropySlope[m*C+c]
					}
				}
			}
			r.near(t, fmt.Sprintf("%v dx", c), out[0], one)
			r.near(t, fmt.Sprintf("%v dx of both", c), out[1], both)
			if !slices.Equal(out[1], out[2]) {
				t.Errorf("%v: another result in place", c)
			}
		}
	})
}
