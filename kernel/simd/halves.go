package simd

import "math"

// ToBF16 rounds to the nearest bf16, ties to even; a NaN stays one.
func ToBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// FromBF16 returns the number that bf16 bits stand for.
func FromBF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// ToF16 rounds to the nearest IEEE binary16, ties to even: above 65504 and its half step to infinity, below 2^-14 to
// multiples of 2^-24; a NaN stays one.
func ToF16(x float32) uint16 {
	b := math.Float32bits(x)
	sign, a := uint16(b>>16)&0x8000, b&0x7fffffff
	switch {
	case a > 0x7f800000:
		return sign | 0x7e00
	case a >= 0x477ff000: // 65520: what is halfway to the next, rounds up
		return sign | 0x7c00
	case a < 0x38800000: // 2^-14: one fp32 addition rounds to the last place of 2^-24
		return sign | uint16(math.Float32bits(math.Float32frombits(a)+0.5)-math.Float32bits(0.5))
	}
	return sign | uint16((a-0x38000000+0xfff+a>>13&1)>>13)
}

// FromF16 returns the value of an IEEE binary16.
func FromF16(v uint16) float32 {
	sign, exponent, fraction := uint32(v>>15)<<31, uint32(v>>10)&31, uint32(v)&1023
	switch exponent {
	case 0: // zero and subnormals: fraction * 2^-24
		f := float32(fraction) * (1. / (1 << 24))
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 31:
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

func fromBF16[F Float](dst []F, src []uint16) {
	src = src[:len(dst)]
	for j := range dst {
		dst[j] = F(math.Float32frombits(uint32(src[j]) << 16))
	}
}

func fromF16[F Float](dst []F, src []uint16) {
	src = src[:len(dst)]
	for j := range dst {
		dst[j] = F(FromF16(src[j]))
	}
}
