//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"testing"
)

// philox returns the four words of Philox4x32-10 (Salmon et al. 2011).
func philox(c [4]uint32, key uint64) [4]uint32 {
	k0, k1 := uint32(key), uint32(key>>32)
	for range 10 {
		h0, l0 := bits.Mul32(0xd2511f53, c[0])
		h1, l1 := bits.Mul32(0xcd9e8d57, c[2])
		c = [4]uint32{h1 ^ c[1] ^ k0, l1, h0 ^ c[3] ^ k1, l0}
		k0, k1 = k0+0x9e3779b9, k1+0xbb67ae85
	}
	return c
}

func TestDropout(t *testing.T) {
	// The published known answers for a counter and key of zeros and of ones.
	if w := philox([4]uint32{}, 0); w != [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8} {
		t.Fatalf("philox of zeros: %x", w)
	}
	if w := philox([4]uint32{1<<32 - 1, 1<<32 - 1, 1<<32 - 1, 1<<32 - 1}, 1<<64-1); w != [4]uint32{0x408f276d,
		0x41c83b0e, 0xa20bc7c6, 0x6d5451fd} {
		t.Fatalf("philox of ones: %x", w)
	}
	r := newHarness(t, 64<<20)
	for _, c := range []struct {
		n          int
		seed, step int32
		stream     uint64
		p          float64
		inPlace    bool
		first      int // of the elements
	}{{1, 0, 0, 0, 0.5, false, 0}, {5, 1, 2, 3, 0.05, true, 0}, {8, -3, 17, 5 << 33, 0.25, false, 0},
		{4099, -1, -1, 1<<64 - 7, 0.1, true, 0}, {700001, 42, 1 << 30, 1 << 40, 0.9, false, 0},
		{4096, 7, 3, 5, 0.3, false, 3 * 4096}, {264, 7, 3, 5, 0.3, true, 1 << 35}} {
		threshold, scale := uint32(c.p*(1<<32)+0.5), float32(1/(1-c.p))
		var x []float64
		out := r.repeat(func() [][]byte {
			xb, xf := r.random(c.n, 1)
			x = xf
			X, Y := in(r, "x", xb), r.out("y", int64(2*c.n))
			if c.inPlace {
				Y = X
			}
			r.run(Flat("dropout", "dropout_apply", (int64(c.n)+7)/8), Y, X, in(r, "counter", []int32{c.seed, c.step}),
				int64(c.stream), threshold, scale, int64(c.n), int64(c.first))
			return [][]byte{get[byte](r, Y, 2*c.n), get[byte](r, X, 2*c.n)}
		})
		want, kept := make([]float64, c.n), 0
		for i := range want {
			group := (c.first + i) / 4
			w := philox([4]uint32{uint32(group), uint32(group >> 32), uint32(c.step), 0},
				uint64(uint32(c.seed))+c.stream)
			if w[i%4] >= threshold {
				want[i] = float64(f32(bf16(float32(x[i]) * scale)))
				kept++
			}
		}
		if got := bfFloats(out[0]); !slices.Equal(got, want) {
			t.Errorf("%+v: dropout is not the one defined", c)
		}
		if !c.inPlace && !slices.Equal(bfFloats(out[1]), x) {
			t.Errorf("%+v: the input changed", c)
		}
		if c.n > 100000 && math.Abs(float64(kept)/float64(c.n)-(1-c.p)) > 0.005 {
			t.Errorf("%+v: %d kept", c, kept)
		}
	}
}

// TestDropoutSlots: rows in any order have the masks of their slots, wide or not, in place or not; rows without a slot
// are zero.
func TestDropoutSlots(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, c := range []struct {
		rows, width int
		inPlace     bool
		first       int // of the elements
	}{{1, 1, false, 0}, {5, 33, true, 0}, {7, 8, false, 0}, {65, 172, true, 0}, {300, 2048, false, 0},
		{40, 24, true, 3 * 960}, {9, 64, false, 1 << 35}} {
		const seed, step, p, stream = int32(-3), int32(17), 0.3, uint64(5 << 33)
		drop, scale := p, 1-p
		threshold, factor := uint32(drop*(1<<32)+0.5), float32(1/scale)
		order := make([]int32, c.rows)
		for i := range order {
			if order[i] = int32(c.rows - 1 - i); i%5 == 3 {
				order[i] = -1
			}
		}
		n := c.rows * c.width
		var x []float64
		out := r.repeat(func() [][]byte {
			xb, xf := r.random(n, 1)
			x = xf
			X, Y := in(r, "x", xb), r.out("y", int64(2*n))
			if c.inPlace {
				Y = X
			}
			r.run(DropoutSlots(c.rows, c.width), Y, X, in(r, "counter", []int32{seed, step}), in(r, "source", order),
				int64(stream), threshold, factor, i32(c.rows), i32(c.width), int64(c.first))
			return [][]byte{get[byte](r, Y, 2*n), get[byte](r, X, 2*n)}
		})
		want := make([]float64, n)
		for i := range want {
			if order[i/c.width] < 0 {
				continue
			}
			at := c.first + int(order[i/c.width])*c.width + i%c.width
			w := philox([4]uint32{uint32(at / 4), uint32(at / 4 >> 32), uint32(step), 0},
				uint64(1<<32+int64(seed))+stream)
			if w[at%4] >= threshold {
				want[i] = float64(f32(bf16(float32(x[i]) * factor)))
			}
		}
		if got := bfFloats(out[0]); !slices.Equal(got, want) {
			t.Errorf("%+v: the masks are not those of the slots", c)
		}
		if !c.inPlace && !slices.Equal(bfFloats(out[1]), x) {
			t.Errorf("%+v: the input changed", c)
		}
	}
}

func TestBias(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, c := range [][2]int{{1, 8}, {3, 64}, {5, 33}, {7, 2048}, {65, 172}, {2, 1}, {300, 4864}} {
		M, N := c[0], c[1]
		var x, b []float64
		out := r.repeat(func() [][]byte {
			xb, xf := r.random(M*N, 1)
			bb, bf := r.random(N, 1)
			x, b = xf, bf
			X, B, Y := in(r, "x", xb), in(r, "b", bb), r.out("y", int64(2*M*N))
			launch := Flat("bias", "bias_add", (int64(M)*int64(N)+7)/8)
			r.run(launch, Y, X, B, i32(M), i32(N))
			unchanged := get[byte](r, X, 2*M*N)
			r.run(launch, X, X, B, i32(M), i32(N))
			return [][]byte{get[byte](r, Y, 2*M*N), get[byte](r, X, 2*M*N), unchanged, get[byte](r, B, 2*N)}
		})
		want := make([]float64, M*N)
		for i := range want {
			want[i] = x[i] + b[i%N]
		}
		nearBF16(t, fmt.Sprintf("%v y", c), bfFloats(out[0]), want)
		if !slices.Equal(out[0], out[1]) {
			t.Errorf("%v: in place is different", c)
		}
		if !slices.Equal(bfFloats(out[2]), x) || !slices.Equal(bfFloats(out[3]), b) {
			t.Errorf("%v: an input changed", c)
		}
	}
}
