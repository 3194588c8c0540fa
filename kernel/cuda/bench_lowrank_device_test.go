//go:build gpu && linux

package cuda

import (
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// BenchmarkLowRank compares the low-rank GEMMs with cuBLASLt: time of one of ten in a captured graph, GB/s by the bytes
// that must move, % of cuBLASLt's time. Count > 1 is compared with that many of cuBLASLt's.
func BenchmarkLowRank(b *testing.B) {
	r := newHarness(b, 4<<30)
	b.ReportMetric(0, "ns/op")
	blas, err := gpu.OpenBLAS("")
	r.ok(err)
	graph := func(work ...func() error) float64 {
		g, err := gpu.Capture(r.s, func() error {
			for range 10 {
				for _, w := range work {
					if err := w(); err != nil {
						return err
					}
				}
			}
			return nil
		})
		r.ok(err)
		t := r.measure(func() error { return g.Replay(r.s) })
		r.ok(g.Close())
		return t.Seconds() / 10
	}
	W := int64(64 << 20)
	fmt.Printf("%-52s %10s %10s %10s %8s\n", "low rank", "us", "GB/s", "cuBLASLt", "ours %")
	for _, l := range []LowRank{{1, 512, 576, 8}, {2, 512, 576, 8}, {1, 512, 192, 8}, {1, 512, 2048, 8},
		{3, 512, 2048, 8}, {1, 512, 256, 8}, {1, 512, 4096, 8}, {3, 512, 4096, 8}, {1, 8192, 2048, 16},
		{3, 8192, 2048, 16}, {2, 8192, 2048, 16}, {1, 8192, 5632, 16}, {1, 8192, 256, 16}, {1, 8192, 4096, 16},
		{3, 8192, 4096, 16}, {1, 8192, 11008, 16}, {1, 512, 2048, 32}, {1, 2048, 2048, 16}, {3, 2048, 2048, 16},
		{1, 16384, 576, 8}} {
		M, C, R, n := l.M, l.C, l.R, float64(l.Count)
		line := func(what string, bytes float64, ours *gpu.Launch, beta float32, v gpu.Gemm) {
			A, B, D, ws := r.randomBF16("a", int64(v.M*v.K)), r.randomBF16("b", int64(v.N*v.K)),
				r.floats("d", int64(v.M*v.N), 0), r.out("w", W)
			v.Alpha, v.Beta = 1, beta
			p, err := blas.Plan(v, W, nil)
			r.ok(err)
			t1 := graph(func() error { return ours.Run(r.s) })
			t2 := n * graph(func() error { return p.Run(r.s, D, A, B, ws) })
			fmt.Printf("%-52s %10.2f %10.0f %10.2f %8.0f\n",
				fmt.Sprintf("%s %d x [%d,%d] r %d", what, l.Count, M, C, R), t1*1e6, bytes/t1/1e9, t2*1e6, 100*t1/t2)
			p.Free()
			ours.Free()
		}
		type buffers struct {
			x       gpu.Ptr
			t, a, g []gpu.Ptr
		}
		operands := func() (o buffers) {
			r.reset()
			o.x = r.randomBF16("x", int64(M*C))
			for range l.Count {
				o.t, o.a, o.g = append(o.t, r.randomBF16("t", int64(M*R))), append(o.a, r.randomBF16("a", int64(R*C))),
					append(o.g, r.floats("g", int64(R*C), 0))
			}
			return o
		}
		wide := 2 * float64(M) * float64(C)
		o := operands()
		line("down nt", wide, r.down(l, NT, o.t, o.x, o.a, 1), 0,
			gpu.Gemm{In: gpu.BF16, M: M, N: R, K: C, TransB: true, Out: gpu.BF16})
		if l.Count == 1 {
			o = operands()
			line("down nn", wide, r.down(l, NN, o.t, o.x, o.a, 1), 0,
				gpu.Gemm{In: gpu.BF16, M: M, N: R, K: C, Out: gpu.BF16})
			o = operands()
			line("up nt", wide, r.up(l, NT, o.x, o.t, o.a, 1, 0), 0,
				gpu.Gemm{In: gpu.BF16, M: M, N: C, K: R, TransB: true, Out: gpu.BF16})
			o = operands()
			line("grad flipped", wide, r.grad(l, true, o.g, o.x, o.t, 1, 1), 1,
				gpu.Gemm{In: gpu.BF16, M: C, N: R, K: M, TransA: true, Out: gpu.F32})
		}
		o = operands()
		line("up nn", wide, r.up(l, NN, o.x, o.t, o.a, 1, 0), 0,
			gpu.Gemm{In: gpu.BF16, M: M, N: C, K: R, Out: gpu.BF16})
		o = operands()
		line("up nn onto", 2*wide, r.up(l, NN, o.x, o.t, o.a, 1, 1), 1,
			gpu.Gemm{In: gpu.BF16, M: M, N: C, K: R, Out: gpu.BF16})
		o = operands()
		line("grad", wide, r.grad(l, false, o.g, o.x, o.t, 1, 1), 1,
			gpu.Gemm{In: gpu.BF16, M: R, N: C, K: M, TransA: true, Out: gpu.F32})
	}
}
