package quant

import "math"

// nf4 is the 4-bit NormalFloat of QLoRA (Dettmers et al. 2023, appendix E),
// with the rounding of bitsandbytes: code = number of thresholds strictly
// below x * (1/absmax), in float32.
type nf4 struct{}

var nf4Table = [16]float32{
	-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
	-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0,
	0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
	0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
}

// nf4Thresholds lie half way between neighbours. The last entry only stops the
// search: no value lies above it.
var nf4Thresholds = func() (t [16]float32) {
	for i := range t[:15] {
		t[i] = float32((float64(nf4Table[i]) + float64(nf4Table[i+1])) / 2)
	}
	t[15] = float32(math.Inf(1))
	return t
}()

func (nf4) Name() string      { return "nf4" }
func (nf4) Bits() int         { return 4 }
func (nf4) BlockSizes() []int { return blocksOf64 }
func (nf4) Nests() bool       { return true }
func (nf4) Table() []float32  { return nf4Table[:] }
func (nf4) table4() *table4   { return nf4Values }

func (nf4) Parts(c Config, rows, cols int) []Part { return blockParts(c, rows, cols) }

// nf4Bucket maps y to one of 65 equal steps of [-1,1]. It never decreases, so
// a threshold in another bucket is already decided.
func nf4Bucket(y float32) int {
	b := int((y + 1) * 32)
	return min(max(b, 0), 64)
}

// nf4Start is the number of thresholds in the buckets before each; no bucket
// holds two, so one comparison settles the rest (nf4_test.go checks both).
var nf4Start = func() (start [65]uint8) {
	for b := range start {
		for _, t := range nf4Thresholds[:15] {
			if nf4Bucket(t) < b {
				start[b]++
			}
		}
	}
	return start
}()

func (nf4) Encode(codes []byte, x []float32) float32 {
	absmax := largest(x)
	nf4Encode(codes[:(len(x)+1)/2], x, 1/absmax)
	return absmax
}

// largest returns the largest magnitude, NaN above all: the bits of magnitudes are in
// the order of their values.
func largest(x []float32) float32 {
	top := uint32(0)
	for _, v := range x {
		top = max(top, math.Float32bits(v)&^(1<<31))
	}
	return math.Float32frombits(top)
}

func nf4EncodeGo(codes []byte, x []float32, inv float32) {
	if !finite(inv) {
		// Numbers times such a scale may be NaN, which has no bucket.
		for i := range codes {
			low := float32(0)
			if 2*i+1 < len(x) {
				low = x[2*i+1]
			}
			codes[i] = nf4CodeAny(x[2*i]*inv)<<4 | nf4CodeAny(low*inv)
		}
		return
	}
	for len(x) >= 2 {
		codes[0] = nf4Code(x[0]*inv)<<4 | nf4Code(x[1]*inv)
		codes, x = codes[1:], x[2:]
	}
	if len(x) == 1 {
		codes[0] = nf4Code(x[0]*inv)<<4 | nf4Code(0)
	}
}

// nf4Code returns the code of a finite y.
func nf4Code(y float32) uint8 {
	c := nf4Start[nf4Bucket(y)]
	if y > nf4Thresholds[c&15] {
		c++
	}
	return c
}

// nf4CodeAny returns the code of any y: NaN fails every comparison and is code 0.
func nf4CodeAny(y float32) uint8 {
	c := uint8(0)
	for _, t := range nf4Thresholds[:15] {
		if y > t {
			c++
		}
	}
	return c
}

func (nf4) Decode(dst []float32, codes []byte, absmax float32) {
	decode4(nf4Values, dst, codes, absmax)
}

var nf4Values = newTable4(nf4Table)
