package quant

import "math"

// E4M3 returns the value of an 8-bit float of 4 exponent and 3 mantissa bits (OFP8 E4M3, without infinities). The codes
// 0x7f and 0xff are NaN.
func E4M3(code byte) float32 { return e4m3Values[code] }

var e4m3Values = func() (all [256]float32) {
	for i := range all {
		exponent, mantissa := i>>3&15, float64(i&7)
		v := math.Ldexp(8+mantissa, exponent-10)
		switch {
		case i&0x7f == 0x7f:
			v = math.NaN()
		case exponent == 0:
			v = math.Ldexp(mantissa, -9)
		}
		if i >= 128 {
			v = -v
		}
		all[i] = float32(v)
	}
	return all
}()

// E2M1 returns the value of the 4-bit float in a code's low four bits.
func E2M1(code byte) float32 { return mxfp4Table[code&15] }

// E8M0 returns the scale 2^(code-127); of 255, which is E8M0's NaN, infinity.
func E8M0(code byte) float32 { return mxfp4Scale(code) }
