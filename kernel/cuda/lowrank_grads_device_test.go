//go:build gpu && linux

package cuda

import (
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// TestLowRankGrads makes both gradients of a low-rank GEMM from one reading, with whole and broken tiles, pieces and
// bands.
func TestLowRankGrads(t *testing.T) {
	if p, err := gpu.DeviceProperties(0); err != nil || p.SM() != 90 {
		t.Skipf("the wgmma kernels need compute capability 9.0, this is %d.%d", p.Major, p.Minor)
	}
	r := newHarness(t, 256<<20)
	const alpha = 0.5
	for _, l := range []LowRank{{1, 1, 8, 8}, {1, 64, 512, 16}, {1, 200, 136, 32}, {1, 2500, 1032, 16},
		{1, 9000, 72, 16}, {1, 130, 3000, 8}} {
		M, C, R, at := l.M, l.C, l.R, l.Grads()
		if !l.FitsGrads() {
			t.Fatalf("%+v does not fit", l)
		}
		var c lowRankCase
		out := r.repeat(func() [][]byte {
			c = r.lowRankCase(l)
			wide, err := gpu.NewTensorMap(c.wide, []int64{int64(C), int64(M)}, []int64{int64(2 * C)}, at.Box[:], 128)
			r.ok(err)
			dt, db := r.out("dt", int64(2*M*R)), r.outs(1, 0, c.a[0])[0]
			dts, dbs := r.out("shares of dt", at.ScratchDT), r.out("shares of db", at.ScratchDB)
			r.queue(r.launch(at.Pass, wide, c.mat[0], c.narrow[0], dts, dbs, i32(M), i32(C), i32(at.Tiles)))
			r.queue(r.launch(at.Finish, dt, db, dts, dbs, int64(M*R), int64(C*R), i32(at.Pass.Grid[0]),
				i32(at.Pass.Grid[1]), float32(alpha)))
			return [][]byte{get[byte](r, dt, 2*M*R), get[byte](r, db, 4*C*R)}
		})
		want, _ := sums(M, R, C, func(m, k int) float64 { return alpha * c.w[m*C+k] },
			func(k, n int) float64 { return c.a[0][k*R+n] })
		nearBF16(t, fmt.Sprintf("dt of %+v", l), bfFloats(out[0]), want)
		want, plain := sums(C, R, M, func(m, k int) float64 { return alpha * c.w[k*C+m] },
			func(k, n int) float64 { return c.t[0][k*R+n] })
		for j := range want {
			want[j] += c.a[0][j]
			plain[j] = float64(float32(plain[j]) + float32(c.a[0][j]))
		}
		near(t, fmt.Sprintf("db of %+v", l), f32Floats(out[1]), want, plain)
	}
}
