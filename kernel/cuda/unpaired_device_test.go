//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"testing"
)

// TestUnpaired checks both forms of the loss of labelled answers: loss, gradient, the sums by label and the estimate of
// the divergence, for fewer and for more rows than the block has threads. Places without a row and a sequence in no row
// take no part.
func TestUnpaired(t *testing.T) {
	r := newHarness(t, 8<<20)
	const beta, desirable, undesirable, scale, scaling = 0.3, 1.5, 0.75, float32(0.25), float32(8)
	logistic := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	for _, R := range []int{1, 5, 300} {
		for form := range int32(2) {
			S := 2*R + 1
			var rows [][3]int32
			var policy, reference []float32
			out := r.repeat(func() [][]byte {
				rows, policy, reference = nil, nil, nil
				order := r.rnd.Perm(S)
				for k := range R {
					row := [3]int32{int32(order[2*k]), int32(order[2*k+1]), int32(1 - k%3/2*2)}
					switch k % 7 {
					case 3:
						row = [3]int32{-1, row[1], 1}
					case 5:
						row[2] = 0
					case 6:
						row[1] = -1
					}
					rows = append(rows, row)
				}
				for range S {
					policy = append(policy, -float32(2+5*r.rnd.Float64()))
					reference = append(reference, -float32(3+5*r.rnd.Float64()))
				}
				args := []any{r.out("loss", 4), r.out("dpolicy", int64(4*S))}
				for i := range 7 {
					args = append(args, r.out(fmt.Sprintf("sum %d", i), 4))
				}
				outputs := append([]any(nil), args...)
				args = append(args, in(r, "policy", policy), in(r, "reference", reference), in(r, "rows", rows),
					in(r, "scale", []float32{scale}), in(r, "scaling", []float32{scaling}), i32(R), i32(S),
					i32(int(form)), launchDouble(beta), launchDouble(desirable), launchDouble(undesirable))
				r.run(Unpaired(), args...)
				return read(r, outputs, 1, S, 1, 1, 1, 1, 1, 1, 1)
			})
			ratio := func(s int32) float64 { return float64(policy[s]) - float64(reference[s]) }
			var z, n, loss float64
			for _, row := range rows {
				if row[0] >= 0 && row[2] != 0 && row[1] >= 0 {
					z, n = z+ratio(row[1]), n+1
				}
			}
			if z = math.Max(z/math.Max(n, 1), 0); form == 1 {
				z = 0
			}
			var sums [7]float64
			gradient := make([]float64, S)
			for _, row := range rows {
				if row[0] < 0 || row[2] == 0 {
					continue
				}
				side, w, label, d := 0, desirable, float64(row[2]), ratio(row[0])
				if row[2] < 0 {
					side, w = 1, undesirable
				}
				x := label * beta * (d - z)
				loss += w * logistic(-x)
				gradient[row[0]] = -w * label * beta * logistic(x) * logistic(-x) * float64(scale) * float64(scaling)
				sums[side] += beta * d
				sums[2+side] += float64(policy[row[0]])
				sums[4+side]++
				sums[6] += z
			}
			what := fmt.Sprintf("form %d, %d rows", form, R)
			nearF32(t, what+", loss", f32Floats(out[0]), []float64{loss * float64(scale)})
			nearF32(t, what+", gradient", f32Floats(out[1]), gradient)
			for i, want := range sums {
				nearF32(t, fmt.Sprintf("%s, sum %d", what, i), f32Floats(out[2+i]), []float64{want})
			}
		}
	}
}
