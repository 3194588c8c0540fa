package kernel

import (
	"fmt"
	"math"
)

// WidenBF16 reads a trained tensor that a GPU stores in bf16 alone as float32, which an optimizer changes.
//
//	y = w   // w f[P], bf16 on a GPU -> f[P]
type WidenBF16 struct{}

// Name returns "widen_bf16".
func (WidenBF16) Name() string { return "widen_bf16" }

// Shape returns the type of y.
func (WidenBF16) Shape(in []Type) ([]Type, error) {
	_, err := Want(in, "f[P]")
	return in, err
}

// CPU works in pieces that do not depend on the number of workers.
func (WidenBF16) CPU(c *CPU, in, out []Tensor) func() {
	return c.Range(in[0].Elems(), 1<<14, func(lo, hi int) {
		size := in[0].DType.Size()
		copy(out[0].Bytes()[lo*size:hi*size], in[0].Bytes()[lo*size:hi*size])
	})
}

// Cost counts the bytes read and written.
func (WidenBF16) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 0) }

// Stored asks for the tensor in bf16.
func (WidenBF16) Stored([]DType) (want, out []DType) { return []DType{BF16}, []DType{F32} }

// RoundStochastic rounds numbers to bf16 at random, so that a mean of many rounded numbers is the number: to the
// neighbour above with the probability that the number's distance from the one below has in their distance.
//
//	w' = bf16(x)   // w f[P], bf16 on a GPU; x f[P]; counter i32[2] = (seed, step) -> w', in the memory of w
//
// Element e adds 16 random bits to the bits of x as a float32 and drops the lower 16: the half e%2, lower first, of
// word e/2%4 of Philox4x32-10(counter = (e/8 low, e/8 high, step, 1), key = (seed, unsigned) + Stream). A bf16 stays as
// it is, and so do infinities; a NaN stays one. On a CPU w' are float32 numbers with bf16's values.
type RoundStochastic struct{ Stream uint64 }

// Name returns "round_stochastic".
func (RoundStochastic) Name() string { return "round_stochastic" }

// Shape returns the type of w'.
func (RoundStochastic) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[P]", "f[P]", "i32[2]"); err != nil {
		return nil, err
	}
	if in[0].DType != in[1].DType {
		return nil, fmt.Errorf("%v is rounded to %v: they must hold the same type of number", in[1], in[0])
	}
	return in[:1], nil
}

// Overwrites puts w' in the memory of w.
func (RoundStochastic) Overwrites() []Alias { return []Alias{{0, 0}} }

// CPU works in pieces that do not depend on the number of workers.
func (k RoundStochastic) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], roundStochastic[float32], roundStochastic[float64])(k, c, in, out)
}

func roundStochastic[F Float](k RoundStochastic, c *CPU, in, out []Tensor) func() {
	x, w, counter := Floats[F](in[1]), Floats[F](out[0]), in[2].I32()
	return c.Range(len(w), 1<<13, func(lo, hi int) { // pieces begin at a multiple of 8
		keys := philoxKeys(uint64(uint32(counter[0])) + k.Stream)
		for at := lo; at < hi; at += 8 {
			group := uint64(at) / 8
			w0, w1, w2, w3 := philox(uint32(group), uint32(group>>32), uint32(counter[1]), 1, &keys)
			words := [4]uint32{w0, w1, w2, w3}
			for e := at; e < min(at+8, hi); e++ {
				w[e] = F(addAndCut(float32(x[e]), words[e/2%4]>>(e%2*16)&0xffff))
			}
		}
	})
}

// addAndCut returns the bf16 that 16 random bits choose for x.
func addAndCut(x float32, random uint32) float32 {
	b := math.Float32bits(x)
	switch {
	case x != x:
		b |= 1 << 22
	case b&0x7f800000 != 0x7f800000:
		b += random
	}
	return math.Float32frombits(b &^ 0xffff)
}

// Cost counts the bytes read and written.
func (RoundStochastic) Cost(in, out []Type, _ Content) Cost { return pointwise(in[1:], out, in[1], 8) }

// Stored asks for the tensor in bf16 and the new numbers in float32.
func (RoundStochastic) Stored([]DType) (want, out []DType) {
	return []DType{BF16, F32, I32}, []DType{BF16}
}
