//go:build gpu && linux

package cuda

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// TestStateSpace demands that a sequence gives the same bits whatever rows are packed around it, that a text in pieces
// gives what it gives whole, to the bit, that the gradient repeats, and that rows in no sequence give zeros. The
// numbers themselves are compared by selfcheck.
func TestStateSpace(t *testing.T) {
	const slots, tokens = 3, 128
	elements(t, 512<<20, func(t *testing.T, r *harness) {
		for _, c := range [][4]int{{1, 1, 4, 8}, {4, 2, 12, 40}, {2, 1, 64, 128}, {2, 2, 64, 200}, {3, 1, 128, 128}} {
			H, G, P, N := c[0], c[1], c[2], c[3]
			const M, from, to = 77, 9, 60 // of the middle sequence
			width, inner, size := 2*H*P+2*G*N+H, H*P, r.size()
			parts, _ := r.numbers(M*width, 0.5)
			dy, _ := r.numbers(M*inner, 1)
			each := make([]float32, H)
			for i := range each {
				each[i] = float32(i)/4 - 0.5
			}
			arguments := func(parts []byte, rows int, cu ...int32) []any {
				return []any{in(r, "parts", parts), in(r, "bias", each), in(r, "log A", each), in(r, "skip", each),
					in(r, "cu", cu), i32(rows), i32(len(cu) - 1), i32(H), i32(G), i32(P), i32(N), float32(0),
					float32(math.Inf(1))}
			}
			forward := func(parts []byte, rows int, cu ...int32) []byte {
				y := r.out("y", int64(rows*inner*size))
				r.run(StateSpace(StateSpaceForward, len(cu)-1, H, 1, P, N),
					append([]any{y}, arguments(parts, rows, cu...)...)...)
				return get[byte](r, y, rows*inner*size)
			}
			cached := func(parts []byte, rows, before int, state gpu.Ptr) []byte { // in the last slot
				y := r.out("y", int64(rows*inner*size))
				keys := in(r, "keys", []int32{(slots - 1) * tokens, int32((slots-1)*tokens + before + rows)})
				r.run(StateSpace(StateSpaceCached, 1, H, 1, P, N),
					append([]any{y, state, keys, i32(slots), i32(tokens)},
						arguments(parts, rows, 0, int32(rows))...)...)
				return get[byte](r, y, rows*inner*size)
			}
			row := func(b []byte, n, from, to int) []byte { return b[from*n*size : to*n*size] }
			runs := r.repeat(func() [][]byte {
				packed := forward(parts, M, 2, from, to, M-3)
				alone := forward(row(parts, width, from, to), to-from, 0, int32(to-from))
				state := r.floats("state", int64(slots*H*P*N), 0x7fc00000) // NaN: nothing of it is to be read
				var pieces []byte
				for at, n := from, 0; at < to; at += n {
					n = min([]int{1, 33, 5, 1, 11}[min(at-from, 4)], to-at)
					pieces = append(pieces, cached(row(parts, width, at, at+n), n, at-from, state)...)
				}
				s := NewStateSpaceScratch(M, H, G, N)
				dparts, scratch := r.out("dparts", int64(M*width*size)), r.out("scratch", s.Bytes)
				rest := arguments(parts, M, 2, from, to, M-3)
				grad := append([]any{dparts, scratch, scratch.Add(s.Read), in(r, "dy", dy)}, rest...)
				r.run(StateSpace(StateSpaceGradForward, 3, G, s.Shares, P, N), grad...)
				r.run(StateSpace(StateSpaceGradBackward, 3, G, s.Shares, P, N), grad...)
				r.run(StateSpaceSum(M, width), append([]any{dparts, scratch, i32(s.Shares)}, rest...)...)
				return [][]byte{packed, alone, pieces, get[byte](r, dparts, M*width*size)}
			})
			if !bytes.Equal(row(runs[0], inner, from, to), runs[1]) {
				t.Errorf("%v: packed rows differ from what they are alone", c)
			}
			if !bytes.Equal(runs[1], runs[2]) {
				t.Errorf("%v: a text in pieces differs from the whole", c)
			}
			for what, of := range map[string][]byte{
				"y":      slices.Concat(row(runs[0], inner, 0, 2), row(runs[0], inner, M-3, M)),
				"dparts": slices.Concat(row(runs[3], width, 0, 2), row(runs[3], width, M-3, M)),
			} {
				for i, x := range r.decoded(of) {
					if x != 0 {
						t.Fatalf("%v: number %d of %s is %v in a row of no sequence", c, i, what, x)
					}
				}
			}
			for i, x := range r.decoded(runs[3]) {
				if math.IsNaN(x) {
					t.Fatalf("%v: number %d of dparts was not written", c, i)
				}
			}
		}
	})
}
