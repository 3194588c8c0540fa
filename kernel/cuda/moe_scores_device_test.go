//go:build gpu && linux

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
)

// TestMoEScores: the experts of sigmoids with a correction, from the best of groups, with their weights, and the
// gradient of the logits; nothing is written beside them.
func TestMoEScores(t *testing.T) {
	elements(t, 256<<20, func(t *testing.T, r *harness) {
		for _, c := range [][5]int{{1, 1, 1, 1, 1}, {9, 8, 3, 4, 2}, {33, 33, 8, 1, 1}, {130, 160, 8, 8, 4},
			{17, 1024, 64, 32, 9}} {
			M, E, K, groups, open := c[0], c[1], c[2], c[3], c[4]
			best := min(2, E/groups)
			correction := make([]float32, E)
			for e := range correction {
				correction[e] = float32(e%7) / 16
			}
			var logits []float64
			dw := make([]float32, M*K)
			for i := range dw {
				dw[i] = float32(i%11) - 5
			}
			out := r.repeat(func() [][]byte {
				var lb []byte
				lb, logits = r.numbers(M*E, 1)
				L := in(r, "logits", lb)
				weights, experts := r.out("weights", int64(4*M*K)), r.out("experts", int64(4*M*K))
				dl := r.out("dlogits", int64(M*E*r.size()))
				r.run(MoEScores(M, E), weights, experts, L, in(r, "correction", correction), i32(M), i32(E), i32(K),
					i32(groups), i32(open), i32(best), i32(0), i32(1), float32(1e-20), float32(0), float32(1.5))
				r.run(MoEScoresGrad(M, E), dl, L, experts, in(r, "dw", dw), i32(M), i32(E), i32(K), i32(0), i32(1),
					float32(1e-20), float32(0), float32(1.5))
				return [][]byte{get[byte](r, weights, 4*M*K), get[byte](r, experts, 4*M*K),
					get[byte](r, dl, M*E*r.size())}
			})
			want := make([]float64, M*E)
			for m := range M {
				row, chosen := logits[m*E:][:E], make([]int, K)
				sum, inner := 0.0, 0.0
				score := func(e int) float64 { return 1 / (1 + math.Exp(-row[e])) }
				for k := range chosen {
					chosen[k] = int(int32(binary.LittleEndian.Uint32(out[1][4*(m*K+k):])))
					if e := chosen[k]; e < 0 || e >= E || slices.Contains(chosen[:k], e) {
						t.Fatalf("%v: row %d has the experts %v", c, m, chosen[:k+1])
					}
					sum += score(chosen[k])
				}
				for k, e := range chosen {
					inner += float64(dw[m*K+k]) * score(e) / sum
				}
				for k, e := range chosen {
					weight := math.Float32frombits(binary.LittleEndian.Uint32(out[0][4*(m*K+k):]))
					if w := 1.5 * score(e) / sum; math.Abs(float64(weight)-w) > 1e-5 {
						t.Fatalf("%v: row %d gives expert %d %v, want %v", c, m, e, weight, w)
					}
					s := score(e)
					want[m*E+e] = 1.5 / sum * (float64(dw[m*K+k]) - inner) * s * (1 - s)
				}
				used := map[int]bool{}
				for _, e := range chosen {
					used[e/(E/groups)] = true
				}
				if len(used) > open {
					t.Fatalf("%v: row %d takes experts %v of %d groups", c, m, chosen, len(used))
				}
			}
			r.near(t, fmt.Sprintf("%v dlogits", c), out[2], want)
		}
	})
}
