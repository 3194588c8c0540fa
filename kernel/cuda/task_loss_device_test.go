//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// TestPool checks spans by hand, a token outside of all spans and one behind the last token included.
func TestPool(t *testing.T) {
	elements(t, 64<<20, func(t *testing.T, r *harness) {
		const M, C, S = 6, 300, 4
		spans := []int32{0, 1, 2, 4, 4, 4, 5, 9}
		var x, dy []float64
		out := r.repeat(func() [][]byte {
			var xb, db []byte
			xb, x = r.numbers(M*C, 1)
			db, dy = r.numbers(S*C, 1)
			B := in(r, "spans", spans)
			y, dx := r.out("y", int64(S*C*r.size())), r.out("dx", int64(M*C*r.size()))
			r.run(Pool(S, C), y, in(r, "x", xb), B, i32(M), i32(C))
			r.run(PoolGradient(M, C), dx, B, in(r, "dy", db), i32(M), i32(C), i32(S))
			return [][]byte{get[byte](r, y, S*C*r.size()), get[byte](r, dx, M*C*r.size())}
		})
		y, dx := make([]float64, S*C), make([]float64, M*C)
		for s := range S {
			from, to := int(spans[2*s]), min(int(spans[2*s+1]), M)
			for m := from; m < to; m++ {
				for c := range C {
					y[s*C+c] += x[m*C+c] / float64(to-from)
					dx[m*C+c] = dy[s*C+c] / float64(to-from)
				}
			}
		}
		r.near(t, "vectors", out[0], y)
		r.near(t, "gradient", out[1], dx)
	})
}

// TestContrastive checks the loss and the gradient of two pairs, a hard negative and a sequence that does not count by
// hand, with dot products and with cosines, and that they repeat their bits.
func TestContrastive(t *testing.T) {
	elements(t, 64<<20, func(t *testing.T, r *harness) {
		const S, C, temperature = 6, 300, 0.5
		targets := []int32{1, -1, 3, -1, -1, -100}
		for _, dots := range []int{0, 1} {
			var x []float64
			out := r.repeat(func() [][]byte {
				var xb []byte
				xb, x = r.numbers(S*C, 0.1)
				X, T, one := in(r, "x", xb), in(r, "targets", targets), in(r, "scale", []float32{1})
				similar, inverses := r.out("similar", 8*S*S), r.out("inverses", 8*S)
				sums, parts := r.out("logarithms", 8*S), r.out("parts", 8*4*S)
				loss, right, own, others := r.out("loss", 4), r.out("right", 4), r.out("own", 4), r.out("others", 4)
				dx, cold := r.out("dx", int64(S*C*r.size())), int64(math.Float64bits(temperature))
				r.run(ContrastLengths(S), inverses, X, i32(S), i32(C), i32(dots))
				r.run(Contrast("contrastive_anchors", S), similar, sums, parts, inverses, X, T, i32(S), i32(C), cold)
				r.run(Contrast("contrastive_sums", 1), loss, right, own, others, parts, one, i32(S))
				r.run(Contrast("contrastive_gradient", S), dx, similar, sums, inverses, X, T, one, gpu.Ptr(0), i32(S),
					i32(C), cold, i32(dots))
				return [][]byte{get[byte](r, loss, 4), get[byte](r, dx, S*C*r.size())}
			})
			loss, gradient := contrastByHand(x, targets, C, temperature, dots == 0)
			nearF32(t, "loss", f32Floats(out[0]), []float64{loss})
			r.near(t, "gradient", out[1], gradient)
		}
	})
}

// contrastByHand returns the loss of anchors and its gradient in float64.
func contrastByHand(x []float64, targets []int32, C int, temperature float64, cosine bool) (loss float64,
	gradient []float64) {
	S := len(targets)
	unit, length := make([]float64, len(x)), make([]float64, S)
	for s := range S {
		for _, v := range x[s*C:][:C] {
			length[s] += v * v
		}
		if length[s] = math.Sqrt(length[s]); !cosine {
			length[s] = 1
		}
		for j, v := range x[s*C:][:C] {
			unit[s*C+j] = v / length[s]
		}
	}
	slopes := make([]float64, len(x)) // for the unit vectors
	for a, target := range targets {
		if target < 0 {
			continue
		}
		z, sum := make([]float64, S), 0.
		for c := range S {
			for j := range C {
				z[c] += unit[a*C+j] * unit[c*C+j] / temperature
			}
			if targets[c] == -1 {
				sum += math.Exp(z[c])
			}
		}
		loss += math.Log(sum) - z[target]
		for c := range S {
			g := math.Exp(z[c]) / sum / temperature
			if targets[c] != -1 {
				continue
			}
			if c == int(target) {
				g -= 1 / temperature
			}
			for j := range C {
				slopes[a*C+j] += g * unit[c*C+j]
				slopes[c*C+j] += g * unit[a*C+j]
			}
		}
	}
	gradient = make([]float64, len(x))
	for s := range S {
		along := 0.
		for j := range C {
			if cosine {
				along += slopes[s*C+j] * unit[s*C+j]
			}
		}
		for j := range C {
			gradient[s*C+j] = (slopes[s*C+j] - along*unit[s*C+j]) / length[s]
		}
	}
	return loss, gradient
}

// TestTaskLoss checks that every form repeats its bits, and cross-entropy and the loss of rewards by hand.
func TestTaskLoss(t *testing.T) {
	r := newHarness(t, 64<<20)
	const S, L = 3, 40
	labels := []int32{7, -100, 39}
	scores := make([]float32, S*L)
	for form := range 3 {
		out := r.repeat(func() [][]byte {
			for i := range scores {
				scores[i] = float32(r.rnd.NormFloat64())
			}
			X := in(r, "scores", scores)
			each, right, errors := r.out("each", 4*S), r.out("right", 4*S), r.out("errors", 4*S)
			dscores, dbias := r.out("dscores", 4*S*L), r.out("dbias", 4*L)
			r.run(ClassLoss(S), each, right, errors, dscores, X, in(r, "labels", labels), in(r, "targets", scores),
				in(r, "bias", make([]float32, L)), in(r, "scale", []float32{0.5}), gpu.Ptr(0), i32(form), i32(S),
				i32(L))
			r.run(Flat("task_loss", "task_loss_bias", L), dbias, dscores, i32(S), i32(L))
			return [][]byte{get[byte](r, each, 4*S), get[byte](r, dscores, 4*S*L), get[byte](r, dbias, 4*L)}
		})
		if form > 0 {
			continue
		}
		each := make([]float64, S)
		for s, label := range labels {
			sum := 0.
			for _, x := range scores[s*L:][:L] {
				sum += math.Exp(float64(x))
			}
			if label >= 0 {
				each[s] = math.Log(sum) - float64(scores[s*L+int(label)])
			}
		}
		nearF32(t, "cross-entropy", f32Floats(out[0]), each)
	}
	out := r.repeat(func() [][]byte {
		loss, dr, mean, accuracy := r.out("loss", 4), r.out("drewards", 12), r.out("mean", 4), r.out("accuracy", 4)
		margin, least, largest, any := r.out("margin", 4), r.out("least", 4), r.out("largest", 4), r.out("any", 4)
		r.run(RewardLoss(), loss, dr, mean, accuracy, margin, least, largest, any,
			in(r, "rewards", []float32{-1, 0, 1}), in(r, "pairs", []int32{2, 0, -1, 1}),
			in(r, "margins", []float32{2, 0}), in(r, "scale", []float32{1}), gpu.Ptr(0), i32(2), i32(3), int64(0))
		all := [][]byte{get[byte](r, loss, 4), get[byte](r, dr, 12)}
		for _, x := range []gpu.Ptr{mean, accuracy, margin, least, largest, any} {
			all = append(all, get[byte](r, x, 4))
		}
		return all
	})
	nearF32(t, "loss", f32Floats(out[0]), []float64{math.Ln2})
	nearF32(t, "gradient", f32Floats(out[1]), []float64{0.5, 0, -0.5})
	for i, want := range []float64{0, 1, 2, -1, 1, 1} {
		nearF32(t, fmt.Sprint("sum ", i), f32Floats(out[2+i]), []float64{want})
	}
}
