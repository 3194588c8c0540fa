//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

func TestSequenceSums(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, c := range []struct {
		M      int
		starts []int32
	}{
		{1, []int32{0, 1}}, {9, []int32{0, 4, 4, 9}}, {20, []int32{3, 5, 17, 17, 17}}, {20, []int32{0, 11, 40}},
		{8192, []int32{0, 1, 257, 4000, 4000, 8190}},
		{70000, []int32{0, 69999}}, {5, []int32{5, 5}},
	} {
		M, S := c.M, len(c.starts)-1
		labels := make([]int32, M)
		for m := range labels {
			if labels[m] = int32(m); m%3 == 1 {
				labels[m] = -100
			}
		}
		const R = 2
		x, dsums := make([]float32, R*M), make([]float32, R*S)
		out := r.repeat(func() [][]byte {
			for i := range x {
				if x[i] = float32(r.rnd.NormFloat64()); labels[i%M] < 0 {
					x[i] = float32(math.NaN()) // it is not read
				}
			}
			for i := range dsums {
				dsums[i] = float32(r.rnd.NormFloat64())
			}
			L, B := in(r, "labels", labels), in(r, "starts", c.starts)
			sums, counts, dx := r.out("sums", int64(4*R*S)), r.out("counts", int64(4*S)), r.out("dx", int64(4*R*M))
			r.run(SequenceSums(S, R), sums, counts, in(r, "x", x), L, B, i32(M), i32(S))
			r.run(SequenceSumsGradient(M), dx, L, B, in(r, "dsums", dsums), i32(M), i32(S), i32(R))
			return [][]byte{get[byte](r, sums, 4*R*S), get[byte](r, counts, 4*S), get[byte](r, dx, 4*R*M)}
		})
		sums, counts, dx := make([]float64, R*S), make([]float64, S), make([]float64, R*M)
		for s := range S {
			for m := int(c.starts[s]); m < min(int(c.starts[s+1]), M); m++ {
				if labels[m] < 0 {
					continue
				}
				counts[s]++
				for row := range R {
					sums[row*S+s] += float64(x[row*M+m])
					dx[row*M+m] = float64(dsums[row*S+s])
				}
			}
		}
		what := fmt.Sprintf("%d tokens, starts %v", M, c.starts)
		nearF32(t, what, f32Floats(out[0]), sums)
		if !slices.Equal(f32Floats(out[1]), counts) || !slices.Equal(f32Floats(out[2]), dx) {
			t.Errorf("%s: other counts or gradients", what)
		}
	}
}
