package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/quant"
)

// Lion8Bit is Lion whose moment is kept in 8 bits, as bitsandbytes' Lion8bit keeps it: codes of the signed dynamic map
// and, for each block of MomentBlock numbers of a tensor, the block's largest magnitude. The weight decay is decoupled,
// as in bitsandbytes since 0.50.
//
//	p, g f[P]; codes u8[256 Q]; absmax f[Q]; m f[256 R]; blocks i32[B,2]; clip f[2] as GradNorm gives it;
//	hyper f[H], the learning rate lr first; (scaling if Scaled)
//
// blocks has the layout of AdamW8Bit: its first Quantised rows keep their moments in codes and absmax, the others in m.
// With d = g clip[1], and m the moment, which is signed[codes] absmax in the first rows:
//
//	p' = p (1 - lr WeightDecay) - lr sign(Beta1 m + (1-Beta1) d)   // sign(0) = 0
//	m' = Beta2 m + (1-Beta2) d
//	absmax' = the block's largest |m'|;  codes' = the nearest codes of m'/absmax' (quant.DynamicMap);
//	a negative m' whose nearest code is 0's takes the one below
//
// Betas are rounded to float32. An absmax below the smallest normal float32 is 0. Outputs p', codes', absmax', m' are
// in the memory of what they replace. If clip[1] is not a number nothing changes.
type Lion8Bit struct {
	Beta1, Beta2, WeightDecay float64
	Quantised                 int // number of rows of blocks whose moments are codes
	Scaled                    bool
}

func (Lion8Bit) Name() string { return "lion_8bit" }

// Shape returns the types of p', codes', absmax' and m'.
func (k Lion8Bit) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, withScaling(k.Scaled, "f[P]", "f[P]", "u8[C]", "f[Q]", "f[S]", "i32[B,2]", "f[2]", "f[H]")...)
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 3, 4, 6, 7, len(in)-1); err != nil {
		return nil, err
	}
	P, C, Q, S, B := d.At('P'), d.At('C'), d.At('Q'), d.At('S'), d.At('B')
	switch {
	case C != MomentBlock*Q:
		return nil, fmt.Errorf("%d codes of %d blocks: want %d a block", C, Q, MomentBlock)
	case k.Quantised < 0 || k.Quantised > min(Q, B):
		return nil, fmt.Errorf("%d of %d blocks in 8 bits, there are scales for %d", k.Quantised, B, Q)
	case (B-k.Quantised)*MomentBlock > S:
		return nil, fmt.Errorf("%d blocks in 32 bits, there are moments for %d numbers", B-k.Quantised, S)
	case int64(P) > math.MaxUint32:
		return nil, fmt.Errorf("%d trained numbers are more than the %d that Lion with moments in 8 bits counts; "+
			"take training.optimizer: lion", P, uint32(math.MaxUint32))
	}
	return []Type{in[0], in[2], in[3], in[4]}, nil
}

func (Lion8Bit) Overwrites() []Alias { return []Alias{{0, 0}, {1, 2}, {2, 3}, {3, 4}} }

func (k Lion8Bit) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], lion8Bit[float32], lion8Bit[float64])(k, c, in, out)
}

func lion8Bit[F Float](k Lion8Bit, c *CPU, in, out []Tensor) func() {
	g, blocks, clip, hyper := Floats[F](in[1]), in[5].I32(), Floats[F](in[6]), Floats[F](in[7])
	p, codes, absmax, small := Floats[F](out[0]), out[1].Bytes(), Floats[F](out[2]), Floats[F](out[3])
	b1, b2 := float64(float32(k.Beta1)), float64(float32(k.Beta2))
	fixed := lionScalars[F]{b1: F(b1), to1: F(1 - b1), b2: F(b2), to2: F(1 - b2)}
	return c.Range(len(blocks)/2, 32, func(lo, hi int) {
		if math.IsNaN(float64(clip[1])) {
			return
		}
		s := fixed
		s.factor, s.lr, s.keep = clip[1], hyper[0], F(1-float64(hyper[0])*float64(F(k.WeightDecay)))
		var wide [MomentBlock]F
		for b := lo; b < hi; b++ {
			at, n := int(uint32(blocks[2*b])), int(blocks[2*b+1])
			p, g := p[at:at+n], g[at:at+n]
			if b >= k.Quantised {
				s.update(p, g, small[(b-k.Quantised)*MomentBlock:][:n])
				continue
			}
			own := codes[b*MomentBlock:][:n]
			for i, c := range own {
				wide[i] = F(F(quant.DynamicSigned.Values[c]) * absmax[b])
			}
			m := wide[:n]
			s.update(p, g, m)
			var inverse F
			absmax[b], inverse = scaleOf(m)
			encode(own, m, inverse, quant.DynamicSigned)
			for i, c := range own {
				if c == signedZero && math.Signbit(float64(m[i])) {
					own[i]--
				}
			}
		}
	})
}

// lionScalars are the numbers of a step of Lion8Bit: the clip factor, the learning rate, 1 - lr WeightDecay, and the
// weights of moment and gradient in the update and in the new moment.
type lionScalars[F Float] struct {
	factor, lr, keep, b1, to1, b2, to2 F
}

// update rounds every operation by itself, as the device does.
func (s lionScalars[F]) update(p, g, m []F) {
	for i, w := range p {
		d := F(g[i] * s.factor)
		step := F(s.b1*m[i]) + F(s.to1*d)
		switch {
		case step > 0:
			step = 1
		case step < 0:
			step = -1
		}
		p[i] = F(w*s.keep) - F(s.lr*step)
		m[i] = F(s.b2*m[i]) + F(s.to2*d)
	}
}

func (Lion8Bit) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 25) }

func (k Lion8Bit) Stored([]DType) (want, out []DType) {
	return storedScaling(k.Scaled, F32, F32, U8, F32, F32, I32, F32, F32), []DType{F32, U8, F32, F32}
}
