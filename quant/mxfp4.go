package quant

import (
	"fmt"
	"math"
)

// MXFP4Block is the number of values that share a scale in MXFP4.
const MXFP4Block = 32

// mxfp4Table is the value of every code: E2M1 of the OCP Microscaling Formats specification 1.0, section 5.3.3.
var mxfp4Table = [16]float32{
	0, 0.5, 1, 1.5, 2, 3, 4, 6,
	float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6,
}

// DequantiseMXFP4 writes the values of whole MXFP4 blocks as gpt-oss stores them: 16 bytes of codes a block, the first
// value in the low nibble, and a scale a block in E8M0: value = E2M1 * 2^(scale-127), exact in float32.
// dst holds MXFP4Block values a scale. A scale of 255 is E8M0's NaN and an error that names its block.
func DequantiseMXFP4(dst []float32, codes, scales []byte) error {
	n := len(scales)
	if len(codes) != n*MXFP4Block/2 || len(dst) != n*MXFP4Block {
		return fmt.Errorf("dequantise MXFP4: %d scales, %d bytes of codes and room for %d values do not go together", n, len(codes), len(dst))
	}
	for b, e := range scales {
		if e == math.MaxUint8 {
			return fmt.Errorf("dequantise MXFP4: the scale of block %d is NaN (255); a frozen weight must be finite", b)
		}
		scale := float32(math.Ldexp(1, int(e)-127))
		to, from := dst[b*MXFP4Block:(b+1)*MXFP4Block], codes[b*MXFP4Block/2:]
		for i := range MXFP4Block / 2 {
			to[2*i] = mxfp4Table[from[i]&15] * scale
			to[2*i+1] = mxfp4Table[from[i]>>4] * scale
		}
	}
	return nil
}
