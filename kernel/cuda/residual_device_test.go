//go:build gpu && linux

package cuda

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// joined returns the value of a sum that is stored as bf16 and its low bits.
func joined(near uint16, low byte) float64 {
	return float64(math.Float32frombits(uint32(near)<<16 + uint32(low)<<8 - 0x8000))
}

// tailedSum returns a sum as it is stored: with 16 significant bits.
func tailedSum(x, r float64) float64 {
	return float64(math.Float32frombits((math.Float32bits(float32(x)+float32(r)) + 0x80) &^ 0xff))
}

func joinedFloats(near, low []byte) []float64 {
	v := make([]float64, len(low))
	for i := range v {
		v[i] = joined(words(near, i), low[i])
	}
	return v
}

// randomLowBits returns low bits for bf16 values, and the values with them.
func (r *harness) randomLowBits(near []uint16) ([]byte, []float64) {
	low, v := make([]byte, len(near)), make([]float64, len(near))
	for i := range low {
		low[i] = byte(r.rnd.Uint32())
		v[i] = joined(near[i], low[i])
	}
	return low, v
}

func TestRMSNorm(t *testing.T) {
	r := newHarness(t, 256<<20)
	const eps = 1e-5
	for _, c := range [][2]int{{5, 64}, {3, 576}, {7, 4096}, {2, 16384}, {3, 16392}, {4, 100}, {9, 31}, {1, 8}} {
		M, C := c[0], c[1]
		for _, kind := range []struct{ add, lowBits, fp32, plusOne bool }{{}, {lowBits: true}, {add: true},
			{add: true, lowBits: true}, {add: true, fp32: true}, {add: true, lowBits: true, fp32: true},
			{plusOne: true}, {plusOne: true, add: true, lowBits: true}, {plusOne: true, add: true, fp32: true}} {
			name := fmt.Sprintf("%dx%d %+v", M, C, kind)
			var x, w, res, added, dy []float64
			out := r.repeat(func() [][]byte {
				xb, xf := r.random(M*C, 2)
				wb, wf := r.random(C, 1)
				rb, rf := r.random(M*C, 1)
				db, df := r.random(M*C, 1)
				x, w, res, added, dy = xf, wf, rf, rf, df
				X, W, R, DY := in(r, "x", xb), in(r, "w", wb), in(r, "r", rb), in(r, "dy", db)
				low := gpu.Ptr(0)
				if kind.lowBits {
					var tb []byte
					tb, x = r.randomLowBits(xb)
					low = in(r, "low bits", tb)
				}
				Y, RSTD, DX := r.out("y", int64(2*M*C)), r.out("rstd", int64(4*M)), r.out("dx", int64(2*M*C))
				got := [][]byte{nil, nil, nil}
				prefix := "rmsnorm_"
				if kind.plusOne {
					prefix, w = "rmsnorm_plusone_", make([]float64, C)
					for i := range w {
						w[i] = 1 + wf[i]
					}
				}
				entry, term := prefix+"add_forward", R
				if kind.fp32 { // with digits that elem drops
					w32 := make([]float32, M*C)
					res = make([]float64, M*C)
					for i := range w32 {
						w32[i] = float32(rf[i] * 1.001)
						res[i] = float64(w32[i])
					}
					entry, term = prefix+"add_wide_forward", in(r, "r in fp32", w32)
				}
				sum := X
				if kind.add {
					T := r.out("sum's low bits", int64(M*C))
					sum = r.out("sum", int64(2*M*C))
					r.run(RMSNorm(entry, M, C), Y, sum, T, RSTD, X, low, term, W, i32(C), float32(eps))
					r.run(RMSNorm(prefix+"backward", M, C), DX, DY, sum, W, RSTD, R, i32(C))
					got = append(got, get[byte](r, sum, 2*M*C), get[byte](r, T, M*C))
					if !kind.fp32 { // over r
						r.run(RMSNorm(entry, M, C), Y, R, T, RSTD, X, low, R, W, i32(C), float32(eps))
						got = append(got, get[byte](r, R, 2*M*C), get[byte](r, T, M*C))
						r.ok(gpu.Upload(R, rb))
					}
					if kind.lowBits { // over x and its low bits
						r.run(RMSNorm(entry, M, C), Y, X, low, RSTD, X, low, term, W, i32(C), float32(eps))
						got = append(got, get[byte](r, X, 2*M*C), get[byte](r, low, M*C))
					}
				} else {
					r.run(RMSNorm(prefix+"forward", M, C), Y, RSTD, X, low, W, i32(C), float32(eps))
					r.run(RMSNorm(prefix+"backward", M, C), DX, DY, X, W, RSTD, gpu.Ptr(0), i32(C))
					got = append(got, get[byte](r, X, 2*M*C))
				}
				got[0], got[1], got[2] = get[byte](r, Y, 2*M*C), get[byte](r, RSTD, 4*M), get[byte](r, DX, 2*M*C)
				return got
			})
			stored := bfFloats(out[3]) // what the backward pass reads
			y, rstd, sum, dx := make([]float64, M*C), make([]float64, M), make([]float64, M*C), make([]float64, M*C)
			for m := range M {
				var ss, dot float64
				for c := range C {
					i := m*C + c
					sum[i] = x[i]
					if kind.add {
						sum[i] = tailedSum(x[i], res[i])
					}
					ss += sum[i] * sum[i]
				}
				q := 1 / math.Sqrt(ss/float64(C)+eps)
				rstd[m] = q
				for c := range C {
					i := m*C + c
					y[i] = sum[i] * q * w[c]
					dot += dy[i] * w[c] * stored[i] * q
				}
				for c := range C {
					i := m*C + c
					dx[i] = q * (dy[i]*w[c] - stored[i]*q*dot/float64(C))
					if kind.add {
						dx[i] += added[i]
					}
				}
			}
			nearBF16(t, name+" y", bfFloats(out[0]), y)
			nearF32(t, name+" rstd", f32Floats(out[1]), rstd)
			nearBF16(t, name+" dx", bfFloats(out[2]), dx)
			if kind.add {
				nearBF16(t, name+" sum", stored, sum)
				if distance(joinedFloats(out[3], out[4]), sum) != 0 {
					t.Errorf("%s: sum and low bits are not the sum in 16 bits", name)
				}
				for i := 5; i < len(out); i += 2 {
					if !bytes.Equal(out[3], out[i]) || !bytes.Equal(out[4], out[i+1]) {
						t.Errorf("%s: the sum is different in the memory of a term", name)
					}
				}
			}
		}
	}
}

// TestAddLowBits: the same sum without a norm, and what has no digits.
func TestAddLowBits(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, n := range []int{1, 7, 8, 1000, 100003} {
		for kind := range 4 {
			carried, wide := kind&1 != 0, kind&2 != 0
			var a, b []float64
			out := r.repeat(func() [][]byte {
				ab, af := r.random(n, 2)
				bb, bf := r.random(n, 1)
				a, b = af, bf
				A, low := in(r, "a", ab), gpu.Ptr(0)
				if carried {
					var tb []byte
					tb, a = r.randomLowBits(ab)
					low = in(r, "low bits", tb)
				}
				Y, T := r.out("y", int64(2*n)), r.out("y's low bits", int64(n))
				entry, B := "elementwise_add_tail", in(r, "b", bb)
				if wide {
					b = make([]float64, n)
					w := make([]float32, n)
					for i := range w {
						w[i] = float32(bf[i] * 1.001)
						b[i] = float64(w[i])
					}
					entry, B = "elementwise_add_wide_tail", in(r, "b in fp32", w)
				}
				r.run(Elementwise(entry, int64(n)), Y, T, A, low, B, int64(n))
				return [][]byte{get[byte](r, Y, 2*n), get[byte](r, T, n)}
			})
			want := make([]float64, n)
			for i := range want {
				want[i] = tailedSum(a[i], b[i])
			}
			name := fmt.Sprintf("n %d, carried %v, wide %v", n, carried, wide)
			nearBF16(t, name, bfFloats(out[0]), want)
			if distance(joinedFloats(out[0], out[1]), want) != 0 {
				t.Errorf("%s: sum and low bits are not the sum in 16 bits", name)
			}
		}
	}
	inf, nan := math.Inf(1), math.NaN()
	a := []float64{nan, inf, -inf, inf, 0, -1, 3e38, 1}
	b := []float64{1, 1, -1, -inf, 0, 1, 3e38, nan}
	want := []float64{nan, inf, -inf, nan, 0, 0, inf, nan}
	for _, n := range []int{8, 5} { // eight at once, and one by one
		bits := func(x []float64) []uint16 {
			v := make([]uint16, n)
			for i := range v {
				v[i] = bf16(float32(x[len(x)-n+i]))
			}
			return v
		}
		out := r.repeat(func() [][]byte {
			Y, T := r.out("y", int64(2*n)), r.out("low bits", int64(n))
			r.run(Elementwise("elementwise_add_tail", int64(n)), Y, T, in(r, "a", bits(a)), gpu.Ptr(0),
				in(r, "b", bits(b)), int64(n))
			return [][]byte{get[byte](r, Y, 2*n), get[byte](r, T, n)}
		})
		near, whole := bfFloats(out[0]), joinedFloats(out[0], out[1])
		for i := range n {
			w := want[len(want)-n+i]
			if same := func(x float64) bool { return x == w || x != x && w != w }; !same(near[i]) || !same(whole[i]) {
				t.Errorf("of %d: %v + %v is %v, with its low bits %v", n, a[len(a)-n+i], b[len(b)-n+i], near[i],
					whole[i])
			}
		}
	}
}

// TestAddLowBitsOfF16: the low bits add seven bits and more to numbers that f16 holds as normal ones.
func TestAddLowBitsOfF16(t *testing.T) {
	r := newHarness(t, 64<<20)
	r.elem = "f16"
	half := func(bits uint16) float64 {
		f := math.Ldexp(1+float64(bits&1023)/1024, int(bits>>10&31)-15)
		return math.Copysign(f, -float64(bits>>15)+0.5)
	}
	joined := func(near uint16, low byte) float64 {
		return float64(math.Float32frombits(uint32(int(math.Float32bits(float32(half(near)))) + (int(low)-0x80)<<5)))
	}
	for _, n := range []int{1, 7, 8, 1000, 100003} {
		var a, b []float64
		out := r.repeat(func() [][]byte {
			a, b = make([]float64, n), make([]float64, n)
			ab, bb, tb := make([]uint16, n), make([]uint16, n), make([]byte, n)
			for i := range n {
				ab[i] = uint16(r.rnd.Uint32()&0x83ff | (12+r.rnd.Uint32()%6)<<10)
				bb[i] = ab[i]&0x8000 | uint16(r.rnd.Uint32()&0x03ff|(12+r.rnd.Uint32()%6)<<10)
				tb[i] = byte(r.rnd.Uint32())
				a[i], b[i] = joined(ab[i], tb[i]), half(bb[i])
			}
			Y, T := r.out("y", int64(2*n)), r.out("y's low bits", int64(n))
			r.run(Elementwise("elementwise_add_tail", int64(n)), Y, T, in(r, "a", ab), in(r, "low bits", tb),
				in(r, "b", bb), int64(n))
			return [][]byte{get[byte](r, Y, 2*n), get[byte](r, T, n)}
		})
		for i := range n {
			sum := a[i] + b[i]
			near, whole := half(words(out[0], i)), joined(words(out[0], i), out[1][i])
			if !(math.Abs(near-sum) <= math.Abs(sum)/(1<<11)) || !(math.Abs(whole-sum) <= math.Abs(sum)/(1<<17)) {
				t.Fatalf("%d of %d: %v + %v is %v, with its low bits %v", i, n, a[i], b[i], near, whole)
			}
		}
	}
}
