//go:build gpu && linux

package cuda

import (
	"fmt"
	"testing"
)

// TestAnswerSums checks the sums of pairs and of labelled rows, with rows that are none.
func TestAnswerSums(t *testing.T) {
	r := newHarness(t, 8<<20)
	for _, columns := range []int{2, 3} {
		for _, R := range []int{1, 7, 900} {
			S := 2 * R
			sums, counts := make([]float32, 3*S), make([]float32, S)
			answers := make([]int32, columns*R)
			out := r.repeat(func() [][]byte {
				for i := range sums {
					sums[i] = float32(r.rnd.NormFloat64())
				}
				for i := range counts {
					counts[i] = float32(1 + r.rnd.IntN(300))
				}
				for row := range R {
					at := answers[row*columns:]
					at[0], at[1] = int32(2*row), int32(2*row+1)
					if columns == 3 {
						at[2] = int32(row%3) - 1
					}
					if row%5 == 3 {
						at[0] = int32(row%2*S) - int32(1-row%2) // behind the sequences, or negative
					}
				}
				var to []any
				for i := range 7 {
					to = append(to, r.out(fmt.Sprintf("sum %d", i), 4))
				}
				r.run(AnswerSums(), append(to[:7:7], in(r, "sums", sums), in(r, "counts", counts),
					in(r, "answers", answers), i32(S), i32(R), i32(columns))...)
				return read(r, to, 1, 1, 1, 1, 1, 1, 1)
			})
			var want [7]float64
			for row := range R {
				at := answers[row*columns:]
				for side := range 2 {
					s := at[side]
					if columns == 3 {
						if s = at[0]; int(at[2]) != 1-2*side {
							continue
						}
					}
					if at[0] < 0 || int(at[0]) >= S {
						continue
					}
					want[0] += float64(sums[s])
					want[1+side] += float64(sums[S+int(s)])
					if side == 0 {
						want[3] += float64(sums[2*S+int(s)])
					}
					want[4] += float64(counts[s])
					want[5+side] += float64(counts[s])
				}
			}
			for i, w := range want {
				nearF32(t, fmt.Sprintf("%d columns, %d rows, sum %d", columns, R, i), f32Floats(out[i]), []float64{w})
			}
		}
	}
}
