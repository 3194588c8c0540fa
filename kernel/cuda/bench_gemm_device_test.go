//go:build gpu && linux

package cuda

import (
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

type gemmShape struct {
	l       GemmLayout
	M, N, K int
	f32     bool
}

// BenchmarkGemm compares our GEMMs with cuBLASLt: mma.sync, wgmma as chosen, and wgmma with each tile.
func BenchmarkGemm(b *testing.B) {
	r := newHarness(b, 8<<30)
	b.ReportMetric(0, "ns/op")
	blas, err := gpu.OpenBLAS("")
	r.ok(err)
	fmt.Printf("%s, cuBLASLt %s; TFLOP/s, us, %% of cuBLASLt\n%-22s %16s %22s %22s   tiles of 256, 192, 128, 64: us\n",
		r.d.Properties, blas.Version, "product", "cuBLASLt", "mma.sync", "wgmma")
	var shapes []gemmShape
	for _, M := range []int{512, 2048, 8192} {
		for _, c := range [][2]int{{2048, 2048}, {5632, 2048}, {2048, 5632}, {256, 2048}, {4096, 4096}, {11008, 4096},
			{4096, 11008}} {
			shapes = append(shapes, gemmShape{NT, M, c[0], c[1], false}, gemmShape{NN, M, c[0], c[1], false})
		}
	}
	shapes = append(shapes, gemmShape{NT, 512, 576, 576, false}, gemmShape{NT, 16384, 576, 576, false},
		gemmShape{NT, 2048, 32000, 4096, false},
		gemmShape{TN, 4096, 4096, 8192, true})
	for _, c := range shapes {
		r.reset()
		A, B, D, W := r.randomBF16("a", int64(c.M*c.K)), r.randomBF16("b", int64(c.N*c.K)),
			r.out("d", int64(4*c.M*c.N)), r.out("w", 64<<20)
		t1 := r.vendor(blas, c, A, B, D, W, 0)
		t2 := r.parted(c, GemmParts(c.l, c.M, c.N, c.K), D, A, B, func(parts int, to gpu.Ptr, flag int32) *gpu.Launch {
			lda, ldb := c.strides()
			return r.launch(Gemm(c.l, c.M, c.N, c.K, parts), to, A, B, i32(c.M), i32(c.N), i32(c.K), i32(lda), i32(ldb),
				i32(c.N), float32(1), float32(0), flag)
		})
		fl := 2 * float64(c.M) * float64(c.N) * float64(c.K) / 1e12
		line := fmt.Sprintf("%-22s %7.1f %8.1f", fmt.Sprintf("%s %dx%dx%d", c.l, c.M, c.N, c.K), fl/t1, 1e6*t1)
		line += fmt.Sprintf(" %7.1f %8.1f %5.1f", fl/t2, 1e6*t2, 100*t1/t2)
		if r.d.SM() == 90 {
			hopper := func(parts int, t gemmTile) float64 {
				return r.parted(c, parts, D, A, B, func(parts int, to gpu.Ptr, flag int32) *gpu.Launch {
					lda, ldb := c.strides()
					g, boxA, boxB := gemmHopper(c.l, c.M, c.N, parts, t)
					h := r.mapped(g, boxA, boxB, c.l, c.M, c.N, c.K, lda, ldb, A, B)
					return r.launch(h.Geometry, to, h.a, h.b, i32(c.M), i32(c.N), i32(c.K), i32(c.N), float32(1),
						float32(0), flag)
				})
			}
			parts := GemmHopperParts(c.l, c.M, c.N, c.K)
			t3 := hopper(parts, hopperTile(ceil(c.M, 128), c.N, c.K, parts))
			line += fmt.Sprintf(" %7.1f %8.1f %5.1f   ", fl/t3, 1e6*t3, 100*t1/t3)
			for _, t := range gemmTiles {
				line += fmt.Sprintf(" %8.1f", 1e6*hopper(1, t))
			}
		}
		fmt.Println(line)
	}
}

func (c gemmShape) strides() (lda, ldb int) {
	lda, ldb = c.K, c.N
	if c.l == TN {
		lda = c.M
	}
	if c.l == NT {
		ldb = c.K
	}
	return lda, ldb
}

// vendor returns cuBLASLt's time of a GEMM in seconds, added to beta times what is there.
func (r *harness) vendor(blas *gpu.BLAS, c gemmShape, A, B, D, W gpu.Ptr, beta float32) float64 {
	r.t.Helper()
	out := gpu.BF16
	if c.f32 {
		out = gpu.F32
	}
	p, err := blas.Plan(gpu.Gemm{M: c.M, N: c.N, K: c.K, TransA: c.l == TN, TransB: c.l == NT, Out: out, Alpha: 1,
		Beta: beta}, 64<<20, nil)
	r.ok(err)
	defer p.Free()
	return r.measure(func() error { return p.Run(r.s, D, A, B, W) }).Seconds()
}

// parted returns the time of a GEMM in parts with their sum, in seconds.
func (r *harness) parted(c gemmShape, parts int, D, A, B gpu.Ptr,
	bind func(parts int, to gpu.Ptr, flag int32) *gpu.Launch) float64 {
	r.t.Helper()
	to, entry, flag := D, "reduce_splits_narrow", int32(0)
	if c.f32 {
		entry, flag = "reduce_splits", 1
	}
	if parts > 1 {
		to = r.out("parts", int64(4*c.M*c.N*parts))
	}
	l := bind(parts, to, flag)
	defer l.Free()
	add := r.launch(Flat("reduce", entry, int64(c.M*c.N)), D, to, i32(parts), int64(c.M*c.N), float32(1), float32(0))
	defer add.Free()
	return r.measure(func() error {
		if err := l.Run(r.s); err != nil || parts == 1 {
			return err
		}
		return add.Run(r.s)
	}).Seconds()
}
