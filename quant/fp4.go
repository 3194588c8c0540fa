package quant

import "math"

// fp4 is the 4-bit float of bitsandbytes: a sign, two bits of exponent and one of mantissa, scaled so that the largest
// is 1. It encodes as its CPU code does: the nearest entry of a table that has four digits, in float32, the first of
// two that are as near; a zero has no sign. Its CUDA code has other midpoints, by up to 4e-5, and a code for -0.
type fp4 struct{}

var fp4Table = [16]float32{
	0, 0.0625 / 12.0, 8.0 / 12.0, 1, 4.0 / 12.0, 6.0 / 12.0, 2.0 / 12.0, 3.0 / 12.0,
	float32(math.Copysign(0, -1)), -0.0625 / 12.0, -8.0 / 12.0, -1, -4.0 / 12.0, -6.0 / 12.0, -2.0 / 12.0, -3.0 / 12.0,
}

// fp4Search is the table that the reference searches.
var fp4Search = [16]float32{
	0, 0.0052, 0.6667, 1, 0.3333, 0.5, 0.1667, 0.25,
	0, -0.0052, -0.6667, -1, -0.3333, -0.5, -0.1667, -0.25,
}

func (fp4) Name() string      { return "fp4" }
func (fp4) Bits() int         { return 4 }
func (fp4) BlockSizes() []int { return blocksOf64 }
func (fp4) Nests() bool       { return true }
func (fp4) Table() []float32  { return fp4Table[:] }
func (fp4) table4() *table4   { return fp4Values }

var fp4Values = newTable4(fp4Table)

func (fp4) Parts(c Config, rows, cols int) []Part { return blockParts(c, rows, cols) }

// fp4Nearest returns the code of y in [-1,1] by the reference's rule; NaN is code 0.
func fp4Nearest(y float32) uint8 {
	best := 0
	for c := range fp4Search {
		if abs(y-fp4Search[c]) < abs(y-fp4Search[best]) {
			best = c
		}
	}
	return uint8(best)
}

// fp4Rising are the codes of the magnitudes, ascending, and fp4Least the least magnitude, as bits, that has each.
var (
	fp4Rising = [8]uint8{0, 1, 6, 7, 4, 5, 2, 3}
	fp4Least  = func() (least [9]uint32) {
		for i := 1; i < 8; i++ {
			lo, hi := math.Float32bits(fp4Search[fp4Rising[i-1]]), math.Float32bits(fp4Search[fp4Rising[i]])
			for lo+1 < hi {
				mid := (lo + hi) / 2
				if fp4Nearest(math.Float32frombits(mid)) == fp4Rising[i] {
					hi = mid
				} else {
					lo = mid
				}
			}
			least[i] = hi
		}
		least[8] = math.MaxUint32 // no magnitude
		return least
	}()
)

// fp4Start is how many codes end below each stretch of magnitudes with the same leading bits; none holds two ends, so
// one comparison settles the rest.
var fp4Start = func() (start [1 << 11]uint8) {
	for b := range start {
		for _, least := range fp4Least[1:8] {
			if int(least>>20) < b {
				start[b]++
			}
		}
	}
	return start
}()

// fp4Code returns fp4Nearest(y) by one comparison, and for any y: what is above 1 or infinite is 1.
func fp4Code(y float32) uint8 {
	b := math.Float32bits(y)
	m := b &^ (1 << 31)
	if m > 0x7f800000 {
		return 0
	}
	i := fp4Start[m>>20] & 7
	if m >= fp4Least[i+1] {
		i++
	}
	if i == 0 {
		return 0
	}
	return fp4Rising[i&7] | uint8(b>>31)<<3
}

func (fp4) Encode(codes []byte, x []float32) float32 {
	absmax := largest(x)
	inv := 1 / absmax
	for i := range codes[:(len(x)+1)/2] {
		codes[i] = fp4Code(x[2*i]*inv) << 4
		if 2*i+1 < len(x) {
			codes[i] |= fp4Code(x[2*i+1] * inv)
		}
	}
	return absmax
}

func (fp4) Decode(dst []float32, codes []byte, absmax float32) {
	decode4(fp4Values, dst, codes, absmax)
}

func abs(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }
