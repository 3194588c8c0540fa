//go:build gpu && linux

package cuda

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// e4m3Value returns the value of a code.
func e4m3Value(code byte) float64 {
	sign, exponent, mantissa := 1-2*float64(code>>7), float64(code>>3&15), float64(code&7)
	switch {
	case code&0x7f == 0x7f:
		return math.NaN()
	case exponent == 0:
		return sign * mantissa / 512
	}
	return sign * math.Pow(2, exponent-7) * (1 + mantissa/8)
}

// e4m3Nearest finds the code of a number by looking at all of them.
func e4m3Nearest(x float32) byte {
	if x != x {
		return 0x7f
	}
	best, distance := byte(0), math.Inf(1)
	for code := range byte(0x7f) {
		if d := math.Abs(e4m3Value(code) - math.Abs(float64(x))); d < distance || d == distance && code&1 == 0 {
			best, distance = code, d
		}
	}
	if math.Signbit(float64(x)) {
		best |= 0x80
	}
	return best
}

func e4m3Factor(largest float32) (scale, factor float32) {
	if largest < 0x1p-100 {
		return 0, 0
	}
	scale = largest * (1.0 / 448)
	return scale, 1 / scale
}

// TestFP8Rows compares codes and scales with the formula, bit for bit.
func TestFP8Rows(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, size := range [][2]int{{1, 1}, {3, 8}, {5, 77}, {7, 2048}, {7, 4096}, {3, 5632}, {3, 11008}, {2, 14336},
		{2, 16384}, {2, 16392}, {2, 20001}} {
		M, K := size[0], size[1]
		x := make([]uint16, M*K)
		out := r.repeat(func() [][]byte {
			for i := range x {
				x[i] = bf16(float32(r.rnd.NormFloat64() * math.Pow(4, float64(i/K))))
			}
			if M > 4 {
				clear(x[K : 2*K])
				x[2*K+K/2] = 0x7fc0 // NaN
			}
			codes, scales := r.out("codes", int64(M*K)), r.out("scales", int64(4*M))
			r.run(FP8Rows(M, K), codes, scales, in(r, "x", x), i32(K))
			return [][]byte{get[byte](r, codes, M*K), get[byte](r, scales, 4*M)}
		})
		want, scales := make([]byte, M*K), f32Floats(out[1])
		for m := range M {
			largest := float32(0)
			for _, v := range x[m*K : (m+1)*K] {
				largest = max(largest, float32(math.Abs(float64(f32(v)))))
			}
			scale, factor := e4m3Factor(largest)
			if s := scales[m]; s != float64(scale) && !(s != s && scale != scale) {
				t.Errorf("[%d,%d]: scale of row %d is %v, want %v", M, K, m, s, scale)
			}
			for k, v := range x[m*K : (m+1)*K] {
				want[m*K+k] = e4m3Nearest(f32(v) * factor)
			}
		}
		if at := differs(out[0], want); at >= 0 {
			t.Errorf("[%d,%d]: code %d is %#x, want %#x", M, K, at, out[0][at], want[at])
		}
	}
}

// differs returns the first place where codes are unlike; NaNs of either sign are alike.
func differs(got, want []byte) int {
	for i := range got {
		if got[i] != want[i] && (got[i]&0x7f != 0x7f || want[i]&0x7f != 0x7f) {
			return i
		}
	}
	return -1
}

// TestFP8Weight compares a 4-bit weight in 8-bit floats with the formula, in both orders, bit for bit.
func TestFP8Weight(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, size := range [][2]int{{128, 64}, {256, 192}, {384, 1024}} {
		for _, nested := range []bool{false, true} {
			N, K := size[0], size[1]
			n, blocks := N*K, N*K/64
			outer := (blocks + 255) / 256
			code, table := make([]float32, 16), make([]float32, 256)
			for i := range code {
				code[i] = float32(i)/7.5 - 1
			}
			for i := range table {
				table[i] = float32(i)/127.5 - 1
			}
			packed, absmax := make([]byte, n/2), make([]float32, blocks)
			scale8, scale2 := make([]byte, blocks), make([]float32, outer)
			offset := []float32{0.625}
			out := r.repeat(func() [][]byte {
				for i := range packed {
					packed[i] = byte(r.rnd.IntN(256))
				}
				for i := range absmax {
					absmax[i], scale8[i] = r.rnd.Float32(), byte(r.rnd.IntN(256))
				}
				for i := range scale2 {
					scale2[i] = r.rnd.Float32() / 2
				}
				columns := max(N, K)
				scales, w, wt := r.out("scales", int64(4*columns)), r.out("w", int64(n)), r.out("wt", int64(n))
				P, C := in(r, "packed", packed), in(r, "code", code)
				if nested {
					S8, T := in(r, "scale8", scale8), in(r, "table", table)
					S2, O := in(r, "scale2", scale2), in(r, "offset", offset)
					r.run(Sum("fp8", "fp8_scale"), scales, S2, O, i32(outer), i32(columns))
					r.run(FP8Weight("fp8_weight_nested", false, N, K), w, scales, P, C, S8, T, S2, O, i32(N), i32(K))
					r.run(FP8Weight("fp8_weight_nested", true, N, K), wt, scales, P, C, S8, T, S2, O, i32(N), i32(K))
				} else {
					A := in(r, "absmax", absmax)
					r.run(Sum("fp8", "fp8_scale"), scales, A, gpu.Ptr(0), i32(blocks), i32(columns))
					r.run(FP8Weight("fp8_weight", false, N, K), w, scales, P, C, A, i32(N), i32(K))
					r.run(FP8Weight("fp8_weight", true, N, K), wt, scales, P, C, A, i32(N), i32(K))
				}
				return [][]byte{get[byte](r, scales, 4*columns), get[byte](r, w, n), get[byte](r, wt, n)}
			})
			bound := float32(0)
			for _, v := range map[bool][]float32{false: absmax, true: scale2}[nested] {
				bound = max(bound, v)
			}
			if nested {
				bound += offset[0]
			}
			scale, factor := e4m3Factor(bound)
			want, turned := make([]byte, n), make([]byte, n)
			for i := range n {
				c := packed[i/2] >> 4
				if i%2 == 1 {
					c = packed[i/2] & 15
				}
				a := absmax[i/64]
				if nested {
					a = table[scale8[i/64]] * scale2[i/64/256]
					a += offset[0]
				}
				v := code[c] * a
				want[i] = e4m3Nearest(v * factor)
				turned[i%K*N+i/K] = want[i]
			}
			what := fmt.Sprintf("[%d,%d] nested %v", N, K, nested)
			for i, s := range f32Floats(out[0]) {
				if s != float64(scale) {
					t.Fatalf("%s: scale %d is %v, want %v", what, i, s, scale)
				}
			}
			if !bytes.Equal(out[1], want) {
				t.Errorf("%s: other codes", what)
			}
			if !bytes.Equal(out[2], turned) {
				t.Errorf("%s: other codes, transposed", what)
			}
		}
	}
}
