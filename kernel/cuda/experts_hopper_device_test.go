//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// expertHopper describes x [S,K] and w [E][N,K] (transB) or [E][K,N] to the wgmma kernel, alone or, of an update of so
// high a rank, as what comes first or second.
func (r *harness) expertHopper(transB bool, S, N, K, E, rank int, x, w gpu.Ptr) hopperGemm {
	r.t.Helper()
	g, boxX, boxW := ExpertHopper(transB, S, N, K, E, rank)
	g.Grid[0] = min(g.Grid[0], r.d.SMs)
	inner, rows := N, K
	if transB {
		inner, rows = K, N
	}
	a, err := gpu.NewTensorMap(x, []int64{int64(K), int64(S)}, []int64{int64(2 * K)}, boxX[:], 128)
	r.ok(err)
	b, err := gpu.NewTensorMap(w, []int64{int64(inner), int64(rows), int64(E)},
		[]int64{int64(2 * inner), int64(2 * inner * rows)}, boxW[:], 128)
	r.ok(err)
	return hopperGemm{g, a, b}
}

// balanced have so many tiles that the last rounds of 7 or 3 blocks are dealt by work. Of the first, every third has at
// most 64 rows: one of three blocks would have all of these.
var balanced = []expertRows{{slices.Repeat([]int{300}, 20), 72, 24}, {[]int{400, 64, 385, 0, 65, 900, 449}, 264, 40}}

// TestExpertHopper multiplies by wgmma; where weights beyond an expert's are not finite, nothing of them may reach its
// rows.
func TestExpertHopper(t *testing.T) {
	if p, err := gpu.DeviceProperties(0); err != nil || p.SM() != 90 {
		t.Skipf("the wgmma kernels need compute capability 9.0, this is %d.%d", p.Major, p.Minor)
	}
	r := newHarness(t, 256<<20)
	cases := []expertRows{{[]int{200}, 256, 64}, {[]int{0, 128, 1, 300, 0}, 192, 200}, {[]int{5, 129, 64}, 136, 72},
		{[]int{140, 0, 255}, 768, 8}, {[]int{100, 37, 400}, 264, 328},
		{[]int{0, 700, 1, 300, 515, 128}, 264, 136}}
	for _, blocks := range []int{r.d.SMs, 7, 3, 1} { // few make many tiles each
		of := cases
		if blocks == 3 {
			of = balanced
		}
		multiplied(r, of, func(transB bool, S, N, K, E int, x, w gpu.Ptr) (Geometry, any, any) {
			h := r.expertHopper(transB, S, N, K, E, 0, x, w)
			h.Grid[0] = min(h.Grid[0], blocks)
			return h.Geometry, h.a, h.b
		})
	}
	E, S, N, K := 2, 300, 136, 72 // neither fills its boxes
	for _, transB := range []bool{false, true} {
		xs, _ := r.random(S*K, 1)
		ws, _ := r.random(E*N*K, 1)
		for i := N * K; i < len(ws); i++ {
			ws[i] = 0x7fc0 // NaN
		}
		X, W, Y := in(r, "x", xs), in(r, "w", ws), r.out("y", int64(2*S*N))
		h := r.expertHopper(transB, S, N, K, E, 0, X, W)
		r.run(h.Geometry, Y, h.a, h.b, in(r, "starts", []int32{0, 150, int32(S)}), i32(S), i32(E), i32(N), i32(K),
			float32(1), float32(0))
		for i, v := range bfFloats(get[byte](r, Y, 2*150*N)) {
			if math.IsNaN(v) {
				t.Fatalf("transposed %t: element %d of the first expert's rows is NaN", transB, i)
			}
		}
		r.checkGuards()
		r.reset()
	}
}

// TestExpertHopperUpdate multiplies by wgmma with a low-rank update of the same rows.
func TestExpertHopperUpdate(t *testing.T) {
	if p, err := gpu.DeviceProperties(0); err != nil || p.SM() != 90 {
		t.Skipf("the wgmma kernels need compute capability 9.0, this is %d.%d", p.Major, p.Minor)
	}
	r := newHarness(t, 256<<20)
	for _, c := range []struct {
		expertRows
		rank int
	}{{balanced[0], 16}, {balanced[1], 8}, {expertRows{[]int{200}, 256, 64}, 16},
		{expertRows{[]int{0, 128, 1, 300, 0}, 192, 200}, 8}, {expertRows{[]int{5, 129, 64}, 136, 72}, 40},
		{expertRows{[]int{140, 0, 255}, 768, 8}, 64}, {expertRows{[]int{100, 37, 400}, 264, 328}, 24},
		{expertRows{[]int{70, 130, 3000, 64, 63, 1200}, 520, 136}, 16}} {
		var S int
		starts := []int32{0}
		for _, n := range c.rows {
			S += n
			starts = append(starts, int32(S))
		}
		E, tokens := len(c.rows), S
		for i := range 8 {
			transB, beta := i%2 == 1, float32(i/2%2)*0.5
			S := tokens + i/4*200 // of no expert
			var x, w, u, v, y0 []float64
			out := r.repeat(func() [][]byte {
				var xs, ws, us, vs, ys []uint16
				xs, x = r.random(S*c.K, 1)
				ws, w = r.random(E*c.N*c.K, 1)
				us, u = r.random(S*c.rank, 1)
				vs, v = r.random(E*c.N*c.rank, 1)
				ys, y0 = r.random(S*c.N, 1)
				Y := in(r, "y", ys)
				base := r.expertHopper(transB, S, c.N, c.K, E, c.rank, in(r, "x", xs), in(r, "w", ws))
				low := r.expertHopper(transB, S, c.N, c.rank, E, c.rank, in(r, "u", us), in(r, "v", vs))
				if i%3 == 1 { // few blocks make many tiles each
					base.Grid[0] = min(base.Grid[0], 7)
				}
				r.run(base.Geometry, Y, base.a, base.b, in(r, "starts", starts), i32(S), i32(E), i32(c.N), i32(c.K),
					float32(0.75), beta, low.a, low.b, i32(c.rank))
				return [][]byte{get[byte](r, Y, 2*S*c.N)}
			})
			y := make([]float64, S*c.N)
			product := func(x, w []float64, e, m, n, depth int) (sum float64) {
				for k := range depth {
					at := k*c.N + n
					if transB {
						at = n*depth + k
					}
					sum += x[m*depth+k] * w[e*c.N*depth+at]
				}
				return sum
			}
			for e := range E {
				for m := int(starts[e]); m < int(starts[e+1]); m++ {
					for n := range c.N {
						y[m*c.N+n] = product(x, w, e, m, n, c.K) + 0.75*product(u, v, e, m, n,
							c.rank) + float64(beta)*y0[m*c.N+n]
					}
				}
			}
			name, got := fmt.Sprintf("rows %v of %d, %d columns of %d, rank %d, transposed %t, beta %v", c.rows, S, c.N,
				c.K, c.rank, transB, beta), bfFloats(out[0])
			stays(t, name, got[tokens*c.N:], y0[tokens*c.N:], beta)
			nearBF16(t, name, got[:tokens*c.N], y[:tokens*c.N])
		}
	}
}
