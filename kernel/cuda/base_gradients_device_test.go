//go:build gpu && linux

package cuda

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// TestEmbeddingGrad: the table's bits are those of sums in the order of the places, rounded one by one.
func TestEmbeddingGrad(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, c := range [][3]int{{1, 1, 1}, {7, 5, 64}, {300, 3, 1031}, {1500, 700, 33}, {2000, 1, 2048}} {
		M, V, C := c[0], c[1], c[2]
		const scale = float32(5.5)
		want, ids := make([]float32, V*C), make([]int32, M)
		out := r.repeat(func() [][]byte {
			for i := range ids {
				ids[i] = int32(r.rnd.IntN(V+2)) - 1 // the first and the last are outside
			}
			for i := range want {
				want[i] = float32(r.rnd.NormFloat64())
			}
			bits, dy := r.random(M*C, 1)
			T := in(r, "table", want)
			r.run(EmbeddingGrad(M, C), T, in(r, "dy", bits), in(r, "ids", ids), i32(M), i32(V), i32(C), scale)
			for m, id := range ids {
				for k := range C {
					if id >= 0 && int(id) < V {
						want[int(id)*C+k] += float32(scale * float32(dy[m*C+k]))
					}
				}
			}
			return [][]byte{get[byte](r, T, 4*V*C)}
		})
		for i, got := range f32Floats(out[0]) {
			if float32(got) != want[i] {
				t.Fatalf("%v: number %d is %v, want %v", c, i, got, want[i])
			}
		}
	}
}

// TestColumnSums compares sums over rows with float64.
func TestColumnSums(t *testing.T) {
	r := newHarness(t, 256<<20)
	for _, c := range [][2]int{{1, 1}, {7, 64}, {129, 65}, {5000, 96}, {40000, 33}, {4096, 2048}} {
		M, C := c[0], c[1]
		S := ColumnParts(M)
		bias, norm := make([]float64, C), make([]float64, C)
		out := r.repeat(func() [][]byte {
			clear(bias)
			clear(norm)
			dyBits, dy := r.random(M*C, 1)
			xBits, x := r.random(M*C, 1)
			rstd := make([]float32, M)
			for m := range M {
				rstd[m] = float32(0.5 + r.rnd.Float64())
				for k := range C {
					bias[k] += dy[m*C+k]
					norm[k] += dy[m*C+k] * x[m*C+k] * float64(rstd[m])
				}
			}
			DY := in(r, "dy", dyBits)
			sums := func(name string, run func(part gpu.Ptr)) []byte {
				part, to := r.out(name+" parts", int64(4*S*C)), r.out(name, int64(4*C))
				run(part)
				r.run(Flat("reduce", "reduce_splits", int64(C)), to, part, i32(S), int64(C), float32(1), float32(0))
				return get[byte](r, to, 4*C)
			}
			return [][]byte{
				sums("bias", func(part gpu.Ptr) {
					r.run(ColumnSums("column_sums_bias", M, C), part, DY, int64(M), i32(C), i32(S))
				}),
				sums("norm", func(part gpu.Ptr) {
					r.run(ColumnSums("column_sums_norm", M, C), part, DY, in(r, "x", xBits), in(r, "rstd", rstd),
						int64(M), i32(C), i32(S))
				}),
			}
		})
		for i, want := range [][]float64{bias, norm} {
			nearF32(t, fmt.Sprintf("%v output %d", c, i), f32Floats(out[i]), slices.Clone(want))
		}
	}
}
