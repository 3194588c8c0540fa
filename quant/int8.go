package quant

import "math"

// int8s are the rows of LLM.int8() (Dettmers et al. 2022): a row's numbers in float16, each times 1/absmax * 127 in
// float32, rounded to even. A code is a signed byte; a row of zeros has codes of zero.
//
// bitsandbytes multiplies inputs in 8 bits too and keeps those above a threshold apart; here the weight is dequantised
// and the inputs are what they are, which is what its backward pass does.
type int8s struct{}

func (int8s) Name() string      { return "int8" }
func (int8s) Bits() int         { return 8 }
func (int8s) BlockSizes() []int { return nil }
func (int8s) Nests() bool       { return false }

// int8Step is 1/127 as the reference writes it.
const int8Step = float32(7.874015718698502e-3)

func (int8s) Encode(codes []byte, x []float32) float32 {
	absmax := half(largest(x)) // rounding keeps the order
	codes = codes[:len(x)]
	if absmax == 0 || !finite(absmax) {
		clear(codes)
		return absmax
	}
	scale := float32(1/absmax) * 127 // as torch divides a number by a tensor
	for i, v := range x {
		b := math.Float32bits(v)
		if m := b &^ (1 << 31); m-0x38800000 < 0x477ff000-0x38800000 { // a normal number in float16
			v = math.Float32frombits((b + 0xfff + b>>13&1) &^ 0x1fff)
		} else {
			v = half(v)
		}
		codes[i] = byte(math.Float32bits(float32(v*scale) + toEven))
	}
	return absmax
}

// toEven is where float32 has steps of 1: adding it rounds to even, and the low byte of the sum is the whole number's.
const toEven = 3 << 22

// half rounds to float16, to even; what is too large is infinite.
func half(v float32) float32 {
	b := math.Float32bits(v)
	sign, m := b&(1<<31), b&^(1<<31)
	switch {
	case m >= 0x7f800000:
		return v
	case m >= 0x477ff000: // 65520, half way from the largest number to the next
		m = 0x7f800000
	case m < 0x38800000: // below 2^-14 the steps are 2^-24, as those of numbers from 0.5 on in float32
		m = math.Float32bits(float32(math.Float32frombits(m)+0.5) - 0.5)
	default:
		m = (m + 0xfff + m>>13&1) &^ 0x1fff
	}
	return math.Float32frombits(sign | m)
}

// Decode writes code * absmax * (1/127), two float32 products.
func (int8s) Decode(dst []float32, codes []byte, absmax float32) { int8Decode(dst, codes, absmax) }

func int8DecodeGo(dst []float32, codes []byte, absmax float32) {
	codes = codes[:len(dst)]
	for i, c := range codes {
		dst[i] = float32(float32(int8(c))*absmax) * int8Step
	}
}

// Parts returns the types of the codes and of a scale for each row, which bitsandbytes calls SCB.
func (int8s) Parts(_ Config, rows, cols int) []Part {
	return []Part{
		{Len: rows * cols, Bytes: func(p *Packed) []byte { return p.Codes }},
		{Suffix: ".SCB", Len: rows, Floats: (*Packed).Scales},
	}
}
