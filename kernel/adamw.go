package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/simd"
	"github.com/tierlora/tierlora/quant"
)

// AdamW is one step of Adam with decoupled weight decay (Loshchilov and Hutter 2019), in the order of torch's
// AdamW, over all trained elements at once.
//
//	p, g, m, v f[P]; clip f[2] as GradNorm gives it; hyper f[4] = (lr, 1-Beta1^t, 1-Beta2^t, t as the bits of
//	a float32); (scaling if Scaled)
//	g' = g clip[1]
//	p' = p (1 - lr WeightDecay) - lr/hyper[1] m' / (sqrt(v')/sqrt(hyper[2]) + Eps)
//	m' = m + (1-Beta1)(g' - m);  v' = Beta2 v + (1-Beta2) g'²
//
// Outputs p', m', v' are in the memory of p, m and v. Where clip[1] is not a number nothing changes.
// Scaled, the corrections are those of t less the steps skipped.
type AdamW struct {
	Beta1, Beta2, Eps, WeightDecay float64
	Scaled                         bool
}

func (AdamW) Name() string { return "adamw" }

func (k AdamW) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, withScaling(k.Scaled, "f[P]", "f[P]", "f[P]", "f[P]", "f[2]", "f[4]")...); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 2, 3, 4, 5, len(in)-1); err != nil {
		return nil, err
	}
	return []Type{in[0], in[2], in[3]}, nil
}

func (AdamW) Overwrites() []Alias { return []Alias{{0, 0}, {1, 2}, {2, 3}} }

func (k AdamW) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], adamW[float32], adamW[float64])(k, c, in, out)
}

func adamW[F Float](k AdamW, c *CPU, in, out []Tensor) func() {
	g, clip, hyper, scaling := Floats[F](in[1]), Floats[F](in[4]), Floats[F](in[5]), lossScaling[F](k.Scaled, in, 6)
	p, m, v := Floats[F](out[0]), Floats[F](out[1]), Floats[F](out[2])
	s := simd.AdamScalars[F]{ToGrad: F(1 - k.Beta1), Beta2: F(k.Beta2), ToSquare: F(1 - k.Beta2), Eps: F(k.Eps)}
	fast, _ := any(simd.AdamW()).(func(p, g, m, v []F, s simd.AdamScalars[F]) int)
	return c.Range(len(p), 1<<13, func(lo, hi int) {
		if math.IsNaN(float64(clip[1])) {
			return
		}
		lr, s := float64(hyper[0]), s
		correct1, correct2 := float64(hyper[1]), float64(hyper[2])
		if k.Scaled {
			t := float64(math.Float32bits(float32(hyper[3]))) - float64(scaling[LossScaleSkipped])
			correct1, correct2 = float64(F(1-math.Pow(k.Beta1, t))), float64(F(1-math.Pow(k.Beta2, t)))
		}
		s.Factor, s.Correct = clip[1], F(math.Sqrt(correct2))
		s.Keep, s.Size = F(1-lr*k.WeightDecay), F(-lr/correct1)
		if fast != nil {
			lo += fast(p[lo:hi], g[lo:hi], m[lo:hi], v[lo:hi], s)
		}
		p, g, m, v := p[lo:hi], g[lo:hi], m[lo:hi], v[lo:hi]
		for i, w := range p {
			d := F(g[i] * s.Factor)
			m[i] += F(s.ToGrad * (d - m[i]))
			v[i] = F(v[i]*s.Beta2) + F(s.ToSquare*F(d*d))
			p[i] = F(w*s.Keep) + F(s.Size*F(m[i]/(F(F(math.Sqrt(float64(v[i])))/s.Correct)+s.Eps)))
		}
	})
}

func (AdamW) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 15) }

func (k AdamW) Stored([]DType) (want, out []DType) {
	return storedScaling(k.Scaled, F32, F32, F32, F32, F32, F32), []DType{F32, F32, F32}
}

// MomentBlock is the numbers of a tensor that share a scale of each moment.
const MomentBlock = 256

// AdamW8Bit is AdamW whose moments are kept in 8 bits, as bitsandbytes' AdamW8bit has it (Dettmers et al., "8-bit
// Optimizers via Block-wise Quantization", 2022): codes of a dynamic map, signed for the first moment, unsigned for the
// second, and for each block of MomentBlock numbers of a tensor its largest magnitude.
//
//	p, g f[P]; codes1, codes2 u8[256 Q]; absmax1, absmax2 f[Q]; m, v f[256 R]; blocks i32[B,2]; clip f[2] as GradNorm gives it;
//	hyper f[4] = (lr, 1-Beta1^t, 1-Beta2^t, t as the bits of a float32); (scaling if Scaled)
//
// Row b of blocks is where numbers of one tensor begin in p and g, as a uint32, and how many they are, 1 to 256. The
// first Quantised rows have their moments in codes and absmax from places 256 b and b on, the others in m and v from
// 256 (b - Quantised) on. With d = g clip[1], and m, v the moments, of the first rows signed[codes1] absmax1 and
// unsigned[codes2] absmax2:
//
//	m' = Beta1 m + (1-Beta1) d;  v' = Beta2 v + (1-Beta2) d²
//	p' = (p - lr sqrt(hyper[2])/hyper[1] m' / (sqrt(v') + Eps sqrt(hyper[2]))) (1 - lr WeightDecay)
//	absmax' = the block's largest |m'| or v';  codes' = the nearest codes of m'/absmax', v'/absmax' (quant.DynamicMap);
//	a negative m' whose nearest code is 0's takes the one below
//
// p' is computed with the moments as they are before they are rounded to codes. Betas are rounded to float32, as
// theirs. An absmax below the smallest normal float32 is 0. Outputs p', codes1', codes2', absmax1', absmax2', m', v'
// are in the memory of what they replace. Where clip[1] is not a number nothing changes. Scaled, the corrections are
// those of t less the steps skipped.
type AdamW8Bit struct {
	Beta1, Beta2, Eps, WeightDecay float64
	Quantised                      int
	Scaled                         bool
}

func (AdamW8Bit) Name() string { return "adamw_8bit" }

func (k AdamW8Bit) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, withScaling(k.Scaled, "f[P]", "f[P]", "u8[C]", "u8[C]", "f[Q]", "f[Q]", "f[S]", "f[S]",
		"i32[B,2]", "f[2]", "f[4]")...)
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 4, 5, 6, 7, 9, 10, len(in)-1); err != nil {
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
		return nil, fmt.Errorf("%d trained numbers are more than the %d that AdamW with moments in 8 bits counts; take training.optimizer: adamw", P, uint32(math.MaxUint32))
	}
	return []Type{in[0], in[2], in[3], in[4], in[5], in[6], in[7]}, nil
}

func (AdamW8Bit) Overwrites() []Alias {
	return []Alias{{0, 0}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}}
}

func (k AdamW8Bit) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], adamW8Bit[float32], adamW8Bit[float64])(k, c, in, out)
}

func adamW8Bit[F Float](k AdamW8Bit, c *CPU, in, out []Tensor) func() {
	g, blocks, clip, hyper, scaling := Floats[F](in[1]), in[8].I32(), Floats[F](in[9]), Floats[F](in[10]),
		lossScaling[F](k.Scaled, in, 11)
	p, m, v := Floats[F](out[0]), Floats[F](out[5]), Floats[F](out[6])
	codes1, codes2, absmax1, absmax2 := out[1].Bytes(), out[2].Bytes(), Floats[F](out[3]), Floats[F](out[4])
	b1, b2 := float64(float32(k.Beta1)), float64(float32(k.Beta2))
	fixed := moments8[F]{b1: F(b1), to1: F(1 - b1), b2: F(b2), to2: F(1 - b2)}
	return c.Range(len(blocks)/2, 32, func(lo, hi int) {
		if math.IsNaN(float64(clip[1])) {
			return
		}
		s := fixed
		lr, correct1, correct2 := float64(hyper[0]), float64(hyper[1]), float64(hyper[2])
		if k.Scaled {
			t := float64(math.Float32bits(float32(hyper[3]))) - float64(scaling[LossScaleSkipped])
			correct1, correct2 = float64(F(1-math.Pow(b1, t))), float64(F(1-math.Pow(b2, t)))
		}
		root := math.Sqrt(correct2)
		s.factor, s.size, s.eps = clip[1], F(-lr*root/correct1), F(float64(F(k.Eps))*root)
		s.keep = F(1 - lr*float64(F(k.WeightDecay)))
		var wide1, wide2 [MomentBlock]F
		for b := lo; b < hi; b++ {
			at, n := int(uint32(blocks[2*b])), int(blocks[2*b+1])
			p, g := p[at:at+n], g[at:at+n]
			if b >= k.Quantised {
				from := (b - k.Quantised) * MomentBlock
				s.update(p, g, m[from:from+n], v[from:from+n])
				continue
			}
			c1, c2 := codes1[b*MomentBlock:][:n], codes2[b*MomentBlock:][:n]
			for i, c := range c1 {
				wide1[i], wide2[i] = F(F(quant.DynamicSigned.Values[c])*absmax1[b]),
					F(F(quant.DynamicUnsigned.Values[c2[i]])*absmax2[b])
			}
			m, v := wide1[:n], wide2[:n]
			s.update(p, g, m, v)
			var inverse1, inverse2 F
			absmax1[b], inverse1 = scaleOf(m)
			absmax2[b], inverse2 = scaleOf(v)
			encode(c1, m, inverse1, quant.DynamicSigned)
			encode(c2, v, inverse2, quant.DynamicUnsigned)
			for i, c := range c1 {
				if c == signedZero && math.Signbit(float64(m[i])) {
					c1[i]--
				}
			}
		}
	})
}

// signedZero is the code of 0 in the signed map.
const signedZero = 127

// moments8 are the numbers of a step of AdamW8Bit.
type moments8[F Float] struct {
	factor, b1, to1, b2, to2, size, eps, keep F
}

// update rounds every operation by itself, as the device does: codes are then the same.
func (s moments8[F]) update(p, g, m, v []F) {
	for i, w := range p {
		d := F(g[i] * s.factor)
		m[i] = F(s.b1*m[i]) + F(s.to1*d)
		v[i] = F(s.b2*v[i]) + F(F(s.to2*d)*d)
		p[i] = F(F(w+F(s.size*F(m[i]/F(F(math.Sqrt(float64(v[i])))+s.eps)))) * s.keep)
	}
}

// scaleOf returns the largest magnitude of a block, as finite float32, and what the block is multiplied by for it to be
// 1.
func scaleOf[F Float](x []F) (absmax, inverse F) {
	for _, v := range x {
		if a := F(math.Abs(float64(v))); a > absmax {
			absmax = a
		}
	}
	if absmax < 0x1p-126 {
		return 0, 0
	}
	absmax = min(absmax, math.MaxFloat32)
	return absmax, 1 / absmax
}

// encode writes the codes of x times inverse.
func encode[F Float](to []byte, x []F, inverse F, m *quant.DynamicMap) {
	if x, ok := any(x).([]float32); ok {
		c, inverse := m.Coder(), float32(inverse)
		for i, v := range x {
			to[i] = c.Code(v * inverse)
		}
		return
	}
	for i, v := range x {
		to[i] = m.Code(float64(v * inverse))
	}
}

func (AdamW8Bit) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 40) }

func (k AdamW8Bit) Stored([]DType) (want, out []DType) {
	return storedScaling(k.Scaled, F32, F32, U8, U8, F32, F32, F32, F32, I32, F32, F32),
		[]DType{F32, U8, U8, F32, F32, F32, F32}
}
