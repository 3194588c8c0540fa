package kernel

import (
	"fmt"
	"math/bits"

	"github.com/tierlora/tierlora/kernel/simd"
)

// Dropout sets elements to zero with probability P and scales the others, so that the mean stays (Srivastava
// et al. 2014). The mask is a function of its place: it is never stored, and the gradient draws it again.
//
//	y = x * keep / (1-P)   // x f[M,C], counter i32[2] = (seed, step) -> f[M,C]
//
// keep of element e is: word e%4 of Philox4x32-10(counter = (e/4 low, e/4 high, step, 0), key = (seed,
// unsigned) + Stream, low word first) is at least P*2^32, rounded to the nearest (Salmon et al. 2011). A dropped
// element is x * 0. With Ranks, e counts from the first row of the first rank: the mask is that of one rank with all rows.
type Dropout struct {
	P      float64
	Stream uint64
	Ranks  int // that have a share of the rows each, all as many; 0 = this one has all
}

// Cheap: its output costs less to recompute than to keep.
func (Dropout) Cheap() {}

func (Dropout) Name() string { return "dropout" }

func (k Dropout) Shape(in []Type) ([]Type, error) {
	if !(k.P > 0 && k.P < 1) {
		return nil, fmt.Errorf("the probability is %v, want more than 0 and less than 1", k.P)
	}
	if _, err := Want(in, "f[M,C]", "i32[2]"); err != nil {
		return nil, err
	}
	if k.Ranks > 1 && in[0].Elems()%8 != 0 {
		return nil, fmt.Errorf("each of %d ranks has %v, want a multiple of 8 elements", k.Ranks, in[0])
	}
	return []Type{in[0]}, nil
}

func (k Dropout) Grads() Backward {
	return Backward{
		Calls: []Call{{Kernel: k, In: []Ref{Upstream(), In(1)}}},
		Grads: []Ref{FromCall(0, 0), {}},
	}
}

func (Dropout) InPlace() []Alias { return []Alias{{0, 0}} }

func (k Dropout) CPU(c *CPU, in, out []Tensor) func() {
	if in[0].DType == F64 {
		return dropout[float64](k, c, in, out)
	}
	return dropout[float32](k, c, in, out)
}

// Threshold is the smallest random word that keeps an element.
func (k Dropout) Threshold() uint32 { return uint32(min(k.P*(1<<32)+0.5, 1<<32-1)) }

func dropout[F Float](k Dropout, c *CPU, in, out []Tensor) func() {
	x, counter, y := Floats[F](in[0]), in[1].I32(), Floats[F](out[0])
	threshold, factor := uint64(k.Threshold()), [2]F{F(1 / (1 - k.P)), 0}
	// A product with a looked-up factor: a branch would be guessed wrong at a rate of P.
	masked := func(x F, word uint32) F { return x * factor[(uint64(word)-threshold)>>63] }
	fast, _ := any(simd.Dropout(k.Threshold(), float32(factor[0]))).(func(y, x []F, group uint64, step uint32, keys [10][2]uint32) int)
	const grain = 1 << 12 // a multiple of 4
	first := uint64(c.share(k.Ranks)) * uint64(len(y)/4)
	return c.Range(len(y), grain, func(lo, hi int) {
		keys, step := philoxKeys(uint64(uint32(counter[0]))+k.Stream), uint32(counter[1])
		if fast != nil {
			lo += fast(y[lo:hi], x[lo:hi], first+uint64(lo/4), step, keys)
		}
		for at := lo; at < hi; at += 4 {
			group := first + uint64(at/4)
			w0, w1, w2, w3 := philox(uint32(group), uint32(group>>32), step, 0, &keys)
			if at+4 > hi {
				for j, w := range [4]uint32{w0, w1, w2, w3} {
					if at+j < hi {
						y[at+j] = masked(x[at+j], w)
					}
				}
				return
			}
			x, y := x[at:at+4], y[at:at+4]
			y[0], y[1], y[2], y[3] = masked(x[0], w0), masked(x[1], w1), masked(x[2], w2), masked(x[3], w3)
		}
	})
}

// philoxKeys are the keys of the ten rounds.
func philoxKeys(key uint64) (keys [10][2]uint32) {
	const weyl0, weyl1 = 0x9e3779b9, 0xbb67ae85
	k0, k1 := uint32(key), uint32(key>>32)
	for i := range keys {
		keys[i] = [2]uint32{k0, k1}
		k0, k1 = k0+weyl0, k1+weyl1
	}
	return keys
}

// philox is Philox4x32-10: four random words for a counter (a, b, c, d).
func philox(a, b, c, d uint32, keys *[10][2]uint32) (w0, w1, w2, w3 uint32) {
	const mul0, mul1 = 0xd2511f53, 0xcd9e8d57
	for i := range keys {
		hi0, lo0 := bits.Mul32(mul0, a)
		hi1, lo1 := bits.Mul32(mul1, c)
		a, b, c, d = hi1^b^keys[i][0], lo1, hi0^d^keys[i][1], lo0
	}
	return a, b, c, d
}

func (Dropout) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }
