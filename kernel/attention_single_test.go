package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gemm"
)

// A text's next token attends as the last row of a longer piece does, to the bit where queries or heads stand side by side in a
// vector, and to rounding where a GEMM of other sizes sums in another order.
func TestSingleQueryIsTheLastOfSeveral(t *testing.T) {
	const several, keys = 5, 301
	for _, heads := range [][2]int{{1, 1}, {3, 1}, {9, 3}, {20, 1}, {34, 2}} {
		for _, head := range []int{8, 64, 80} {
			for _, cap := range []float64{0, 1.5} {
				name := fmt.Sprintf("%d heads of %d over %d, cap %v", heads[0], head, heads[1], cap)
				o := kernel.Attention{Heads: heads[0], KVHeads: heads[1], Scale: 1 / math.Sqrt(float64(head)), Cap: cap}
				width, keyWidth := heads[0]*head, heads[1]*head
				q, k, v := normal32(1, several*width), normal32(2, keys*keyWidth), normal32(3, keys*keyWidth)
				run := func(rows int) (out, lse []float32) {
					bounds := []int32{int32(several - rows), several}
					all := evaluate(t, o, f32s(q, several, width), f32s(k, keys, keyWidth), f32s(v, keys, keyWidth), i32s(bounds), i32s([]int32{0, keys}))
					last := make([]float32, heads[0])
					for h := range last {
						last[h] = all[1].F32()[(h+1)*several-1]
					}
					return all[0].F32()[(several-1)*width:], last
				}
				out, lse := run(1)
				wantOut, wantLSE := run(several)
				bound := 1e-6
				if head <= 64 && gemm.Path() == "avx512" {
					bound = 0
				}
				near(t, name+": o", widen(out), widen(wantOut), bound)
				near(t, name+": lse", widen(lse), widen(wantLSE), bound)
			}
		}
	}
}
