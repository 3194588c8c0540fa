package kernel

import (
	"fmt"
	"math/bits"
)

// Dropout sets elements to zero with probability P and scales the others, so that the mean stays (Srivastava
// et al. 2014). The mask is a function of its place: it is never stored, and the gradient draws it again.
//
//	y = x * keep / (1-P)   // x f[M,C], counter i32[2] = (seed, step) -> f[M,C]
//
// keep of element e is: word e%4 of Philox4x32-10(counter = (e/4 low, e/4 high, step, 0), key = (seed,
// unsigned) + Stream, low word first) is at least P*2^32, rounded to the nearest (Salmon et al. 2011).
type Dropout struct {
	P      float64
	Stream uint64
}

func (Dropout) Name() string { return "dropout" }

func (k Dropout) Shape(in []Type) ([]Type, error) {
	if !(k.P > 0 && k.P < 1) {
		return nil, fmt.Errorf("the probability is %v, want more than 0 and less than 1", k.P)
	}
	if _, err := Want(in, "f[M,C]", "i32[2]"); err != nil {
		return nil, err
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
	scale, threshold := F(1/(1-k.P)), k.Threshold()
	const grain = 1 << 12 // a multiple of 4
	return c.Range(len(y), grain, func(lo, hi int) {
		key := uint64(uint32(counter[0])) + k.Stream
		step := uint32(counter[1])
		for at := lo; at < hi; at += 4 {
			group := uint64(at / 4)
			words := philox([4]uint32{uint32(group), uint32(group >> 32), step, 0}, [2]uint32{uint32(key), uint32(key >> 32)})
			for j := at; j < min(at+4, hi); j++ {
				if words[j-at] >= threshold {
					y[j] = x[j] * scale
				} else {
					y[j] = 0
				}
			}
		}
	})
}

// philox is Philox4x32-10: four random words for a counter under a key.
func philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	const (
		rounds       = 10
		mul0, mul1   = 0xd2511f53, 0xcd9e8d57
		weyl0, weyl1 = 0x9e3779b9, 0xbb67ae85
	)
	a, b, c, d := counter[0], counter[1], counter[2], counter[3]
	k0, k1 := key[0], key[1]
	for range rounds {
		hi0, lo0 := bits.Mul32(mul0, a)
		hi1, lo1 := bits.Mul32(mul1, c)
		a, b, c, d = hi1^b^k0, lo1, hi0^d^k1, lo0
		k0, k1 = k0+weyl0, k1+weyl1
	}
	return [4]uint32{a, b, c, d}
}
