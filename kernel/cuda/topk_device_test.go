//go:build gpu && linux

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
)

// TestDivergenceTopK compares tokens with those that sorting gives, among many equal logits, and log-probabilities with
// float64. A row with a logit that is not finite gives NaN, an untrained row zeros.
func TestDivergenceTopK(t *testing.T) {
	elements(t, 256<<20, func(t *testing.T, r *harness) {
		for _, c := range [][4]int{{5, 151936, 151936, 32}, {6, 1001, 1008, 512}, {4, 777, 777, 1}, {3, 9, 9, 8}} {
			testTopK(t, r, c[0], c[1], c[2], c[3])
		}
	})
}

func testTopK(t *testing.T, r *harness, M, V, ld, K int) {
	const cold, cap = 0.5, 20
	labels := make([]int32, M)
	labels[1] = -100
	var x []float64
	out := r.repeat(func() [][]byte {
		_, x = r.numbers(M*ld, 4)
		x[(M-1)*ld+V-1] = math.Inf(1)
		X, L := in(r, "logits", r.encoded(x)), in(r, "labels", labels)
		I, P := r.out("ids", int64(4*M*K)), r.out("logps", int64(4*M*(K+1)))
		r.run(TopK(M, V), I, P, X, L, i32(V), i32(ld), i32(K), float32(cold), float32(cap))
		return [][]byte{get[byte](r, I, 4*M*K), get[byte](r, P, 4*M*(K+1))}
	})
	what := fmt.Sprintf("[%d,%d] of %d, %d tokens", M, V, ld, K)
	logps := f32Floats(out[1])
	for m := range M {
		own := logps[m*(K+1):][:K+1]
		token := func(k int) int32 { return int32(binary.LittleEndian.Uint32(out[0][4*(m*K+k):])) }
		switch {
		case labels[m] < 0:
			if token(0) != -1 || own[0] != 0 || own[K] != 0 {
				t.Errorf("%s: an untrained row has the token %d, %v", what, token(0), own[0])
			}
			continue
		case m == M-1:
			if !math.IsNaN(own[0]) || !math.IsNaN(own[K]) {
				t.Errorf("%s: a row with an infinite logit has %v", what, own[0])
			}
			continue
		}
		row, order := x[m*ld:][:V], make([]int32, V)
		for v := range order {
			order[v] = int32(v)
		}
		slices.SortStableFunc(order, func(a, b int32) int {
			switch {
			case row[a] > row[b]:
				return -1
			case row[a] < row[b]:
				return 1
			}
			return 0
		})
		z := make([]float64, V)
		for v, l := range row {
			z[v] = cap * math.Tanh(l/cap)
		}
		p, rest, want := softmaxOf(z, cold), 0., make([]float64, K+1)
		for k, id := range order {
			if k >= K {
				rest += p[id]
				continue
			}
			if want[k] = math.Log(p[id]); token(k) != id {
				t.Fatalf("%s: row %d, place %d: token %d, want %d", what, m, k, token(k), id)
			}
		}
		want[K] = math.Log(rest)
		nearLoose(t, what, own, want)
	}
}
