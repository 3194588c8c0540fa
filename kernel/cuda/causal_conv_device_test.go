//go:build gpu && linux

package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
)

// encoded returns numbers in the harness's element type, which holds them.
func (r *harness) encoded(v []float64) []byte {
	var b []byte
	for _, x := range v {
		if r.elem == "f32" {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
		} else {
			b = binary.LittleEndian.AppendUint16(b, bf16(float32(x)))
		}
	}
	return b
}

func (r *harness) decoded(b []byte) []float64 {
	if r.elem == "f32" {
		return f32Floats(b)
	}
	return bfFloats(b)
}

// numbers returns n of bf16, and their bytes in the harness's element type.
func (r *harness) numbers(n int, scale float64) ([]byte, []float64) {
	_, v := r.random(n, scale)
	return r.encoded(v), v
}

// size returns that of an element.
func (r *harness) size() int { return len(r.encoded([]float64{0})) }

func (r *harness) near(t testing.TB, what string, got []byte, want []float64) {
	t.Helper()
	if r.elem == "f32" {
		nearF32(t, what, r.decoded(got), want)
	} else {
		nearBF16(t, what, r.decoded(got), want)
	}
}

// elements runs a test for 2 and for 4 bytes an element.
func elements(t *testing.T, bytes int64, f func(t *testing.T, r *harness)) {
	for _, elem := range []string{"bf16", "f32"} {
		t.Run(elem, func(t *testing.T) {
			r := newHarness(t, bytes)
			r.elem = elem
			f(t, r)
		})
	}
}

// convolved returns the convolution of x [M,C] as it is defined, and the gradient for x of the sum of y dy.
func convolved(x, w, dy []float64, cu []int32, C, K int) (y, dx []float64) {
	y, dx = make([]float64, len(x)), make([]float64, len(x))
	for s := range len(cu) - 1 {
		first, end := int(cu[s]), min(int(cu[s+1]), len(x)/C)
		for t := first; t < end; t++ {
			for c := range C {
				sum := 0.0
				for j := range K {
					if from := t - K + 1 + j; from >= first {
						sum += w[c*K+j] * x[from*C+c]
					}
				}
				g := 1 / (1 + math.Exp(-sum))
				y[t*C+c] = sum * g
				ds := dy[t*C+c] * g * (1 + sum*(1-g))
				for j := range K {
					if from := t - K + 1 + j; from >= first {
						dx[from*C+c] += w[c*K+j] * ds
					}
				}
			}
		}
	}
	return y, dx
}

// TestCausalConv: sequences of no row, of one, shorter and longer than a filter and than a thread's rows, rows in none,
// filters of each form.
func TestCausalConv(t *testing.T) {
	elements(t, 64<<20, func(t *testing.T, r *harness) {
		for _, c := range []struct {
			M, C int
			cu   []int32
		}{
			{1, 8, []int32{0, 1}}, {37, 72, []int32{0, 37}}, {41, 8, []int32{2, 3, 3, 3, 5, 9, 40, 40}},
			{130, 1036, []int32{0, 2, 2, 67, 130, 130}},
			{40, 24, []int32{5, 5}}, {3, 16, []int32{2}}, {29, 131, []int32{1, 4, 20, 27}}, {9, 1, []int32{0, 9}},
			{70, 64, []int32{0, 33, 200}}, {600, 40, []int32{3, 590}},
		} {
			for _, K := range []int{1, 2, 3, 4, 5, 64} {
				r.convolve(t, c.M, c.C, K, c.cu)
			}
		}
	})
}

func (r *harness) convolve(t *testing.T, M, C, K int, cu []int32) {
	t.Helper()
	n, S := M*C*r.size(), len(cu)-1
	var x, w, dy []float64
	run := func(rows int) [][]byte {
		var xb, wb, db []byte
		xb, x = r.numbers(M*C, 1)
		wb, w = r.numbers(C*K, 1)
		db, dy = r.numbers(M*C, 1)
		for i := range M * C { // not read where no sequence is
			if row := int32(i / C); row < cu[0] || row >= cu[S] {
				copy(xb[i*r.size():], slices.Repeat([]byte{poison}, r.size()))
				copy(db[i*r.size():], slices.Repeat([]byte{poison}, r.size()))
			}
		}
		X, W, CU, DY := in(r, "x", xb), in(r, "w", wb), in(r, "cu", cu), in(r, "dy", db)
		Y, DX := r.out("y", int64(n)), r.out("dx", int64(n))
		at, chosen := CausalConv(M, C, K, false)
		back, _ := CausalConv(M, C, K, true)
		if rows == 0 {
			rows = chosen
		}
		at.Grid[0], back.Grid[0] = ceil(M, rows), ceil(M, rows)
		r.run(at, Y, X, W, CU, i32(M), i32(C), i32(S), i32(rows), i32(K))
		r.run(back, DX, X, W, CU, DY, i32(M), i32(C), i32(S), i32(rows), i32(K))
		return [][]byte{get[byte](r, Y, n), get[byte](r, DX, n)}
	}
	out := r.repeat(func() [][]byte { return run(0) })
	name := fmt.Sprintf("%dx%d, %d taps, %v", M, C, K, cu)
	y, dx := convolved(x, w, dy, cu, C, K)
	r.near(t, name+" y", out[0], y)
	r.near(t, name+" dx", out[1], dx)
	for _, rows := range []int{5, 64} { // decide nothing
		r.reset()
		if other := run(rows); !bytes.Equal(other[0], out[0]) || !bytes.Equal(other[1], out[1]) {
			t.Errorf("%s: other results of %d rows a thread", name, rows)
		}
		r.checkGuards()
	}
}

// TestCausalConvCached: texts in pieces, in slots of other texts' remains, are to the bit what they are whole; a slot
// without a row stays.
func TestCausalConvCached(t *testing.T) {
	elements(t, 64<<20, func(t *testing.T, r *harness) {
		for _, C := range []int{8, 132, 33, 2056} {
			for _, K := range []int{1, 2, 3, 4, 5, 64} {
				r.continued(t, C, K)
			}
		}
	})
}

func (r *harness) continued(t *testing.T, C, K int) {
	t.Helper()
	const tokens, slots, before, behind = 300, 5, 1, 3
	lengths, slotOf := []int{170, 9, 71}, []int{3, 0, 4} // slots 1 and 2 have no text
	steps := [][]int{{40, 0, 70}, {1, 1, 1}, {2, 1, 0}, {0, 3, 0}, {1, 0, 0}, {126, 4, 0}}
	name, row, size := fmt.Sprintf("%d columns, %d taps", C, K), C*r.size(), r.size()
	r.reset()
	w, _ := r.numbers(C*K, 1)
	texts, whole := make([][]byte, len(lengths)), make([][]byte, len(lengths))
	for i, n := range lengths {
		texts[i], _ = r.numbers(n*C, 1)
		Y := r.out("y", int64(n*row))
		at, rows := CausalConv(n, C, K, false)
		r.run(at, Y, in(r, "x", texts[i]), in(r, "w", w), in(r, "cu", []int32{0, int32(n)}), i32(n), i32(C), i32(1),
			i32(rows), i32(K))
		whole[i] = get[byte](r, Y, n*row)
	}
	state := bytes.Repeat([]byte{poison}, slots*(K-1)*row) // NaN: what a slot holds before a text begins is not read
	done := make([]int, len(lengths))
	for at, step := range steps {
		x := bytes.Repeat([]byte{poison}, before*row)
		cuQ, cuK := []int32{before}, []int32{}
		for i, n := range step {
			x = append(x, texts[i][done[i]*row:][:n*row]...)
			end := int32(len(x) / row)
			first := int32(slotOf[i] * tokens)
			cuQ, cuK = append(cuQ, end, end), append(cuK, first, first+int32(done[i]+n)) // as an engine gives them
		}
		cuQ, cuK = cuQ[:len(cuQ)-1], cuK[:len(cuQ)-1]
		cuQ, cuK = append(cuQ, cuQ[len(cuQ)-1]), append(cuK, 0)
		x = append(x, bytes.Repeat([]byte{poison}, behind*row)...)
		M, S := len(x)/row, len(cuQ)-1
		out := r.repeat(func() [][]byte {
			st := in(r, "state", append(slices.Clone(state), 0)) // a byte more: of filters of one tap it would be empty
			Y := r.out("y", int64(M*row))
			g, rows := CausalConvCached(M, C, K, S)
			r.run(g, Y, st, in(r, "x", x), in(r, "w", w), in(r, "cu", cuQ), in(r, "keys", cuK), i32(M), i32(C), i32(S),
				i32(slots), i32(tokens), i32(rows), i32(K))
			return [][]byte{get[byte](r, Y, M*row), get[byte](r, st, len(state)+1)[:len(state)]}
		})
		want := make([]byte, before*row)
		kept := (K - 1) * row
		for i, n := range step {
			want = append(want, whole[i][done[i]*row:][:n*row]...)
			if done[i] += n; n == 0 {
				continue
			}
			text := append(make([]byte, kept), texts[i][:done[i]*row]...)
			copy(state[slotOf[i]*kept:][:kept], text[len(text)-kept:])
		}
		want = append(want, make([]byte, behind*row)...)
		if !bytes.Equal(out[0], want) {
			t.Errorf("%s, step %d: not what the whole texts give, first at element %d of %d", name, at,
				firstOther(out[0], want)/size, len(want)/size)
		}
		if !bytes.Equal(out[1], state) {
			t.Errorf("%s, step %d: the slots are not what they should be, first at element %d", name, at,
				firstOther(out[1], state)/size)
		}
	}
}

func firstOther(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// TestCausalConvWithoutSlot: rows of a slot that is not there give zeros, and nothing is written.
func TestCausalConvWithoutSlot(t *testing.T) {
	r := newHarness(t, 64<<20)
	const M, C, K = 40, 16, 4
	for _, keys := range [][]int32{{200, 240}, {-100, 0}} {
		out := r.repeat(func() [][]byte {
			x, _ := r.random(M*C, 1)
			w, _ := r.random(C*K, 1)
			st, y := r.out("state", 2*2*(K-1)*C), r.out("y", 2*M*C)
			g, rows := CausalConvCached(M, C, K, 1)
			r.run(g, y, st, in(r, "x", x), in(r, "w", w), in(r, "cu", []int32{0, M}), in(r, "keys", keys), i32(M),
				i32(C), i32(1), i32(2), i32(100), i32(rows), i32(K))
			return [][]byte{get[byte](r, y, 2*M*C), get[byte](r, st, 2*2*(K-1)*C)}
		})
		if !bytes.Equal(out[0], make([]byte, 2*M*C)) ||
			!bytes.Equal(out[1], bytes.Repeat([]byte{poison}, 2*2*(K-1)*C)) {
			t.Errorf("keys %v: rows or slots were written", keys)
		}
	}
}
