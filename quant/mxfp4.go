package quant

import (
	"fmt"
	"math"
)

// MXFP4 is a matrix as the microscaling format MXFP4 stores it, 17 bytes for 32 values (OCP Microscaling Formats
// specification 1.0): blocks of MXFP4Block values along its rows, 16 bytes of codes each, the first value in the low
// nibble, and a scale of one byte in E8M0. A value is E2M1 * 2^(scale-127), exact in float32. There are such weights in
// checkpoints; none are made here.
type MXFP4 struct {
	Rows, Cols int    // Cols is a multiple of MXFP4Block
	Codes      []byte // [Rows,Cols/2]
	Scales     []byte // [Rows,Cols/MXFP4Block]
}

// NameMXFP4 is MXFP4's name among the ways of storage, MXFP4Block the number of values that share a scale, and
// MXFP4MaxScale the largest scale with which every code is a float32: 255 is E8M0's NaN.
const (
	NameMXFP4     = "mxfp4"
	MXFP4Block    = 32
	MXFP4MaxScale = 252
)

// StoredMXFP4 returns the configuration of weights stored in MXFP4.
func StoredMXFP4() Config { return Config{Bits: 4, Type: NameMXFP4, BlockSize: MXFP4Block} }

// mxfp4Table is the value of every code: E2M1, section 5.3.3.
var mxfp4Table = [16]float32{
	0, 0.5, 1, 1.5, 2, 3, 4, 6,
	float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6,
}

// mxfp4Scale returns 2^(scale-127); of 255, infinity.
func mxfp4Scale(scale byte) float32 {
	if scale == 0 {
		return 0x1p-127
	}
	return math.Float32frombits(uint32(scale) << 23)
}

// DequantiseRange writes the values [from,to) of the matrix, row-major.
func (m MXFP4) DequantiseRange(dst []float32, from, to int) {
	for i := from; i < to; {
		block := i / MXFP4Block
		end, scale := min(to, (block+1)*MXFP4Block), mxfp4Scale(m.Scales[block])
		part := dst[i-from : end-from]
		if i%2 == 0 && end%2 == 0 {
			for k, b := range m.Codes[i/2 : end/2] {
				part[2*k], part[2*k+1] = mxfp4Table[b&15]*scale, mxfp4Table[b>>4]*scale
			}
		} else {
			for k := range part {
				part[k] = mxfp4Table[m.Codes[(i+k)/2]>>(4*((i+k)%2))&15] * scale
			}
		}
		i = end
	}
}

// CheckMXFP4 refuses scales whose numbers do not fit in float32. first is the index of the first scale's block, for the
// error.
func CheckMXFP4(scales []byte, first int) error {
	for i, s := range scales {
		switch {
		case s == math.MaxUint8:
			return fmt.Errorf("the scale of block %d is NaN (255); a frozen weight must be finite", first+i)
		case s > MXFP4MaxScale:
			return fmt.Errorf("the scale of block %d is 2^%d, with which codes stand for numbers beyond float32; a "+
				"frozen weight must be finite", first+i, int(s)-127)
		}
	}
	return nil
}
