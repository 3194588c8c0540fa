package simd

import "math"

// exp32 returns e to the x, correctly rounded but for about one in a thousand results: the polynomial is
// evaluated in float64. e^x = 2^n e^r with r in [-ln2/2, ln2/2], e^r by its Taylor polynomial of degree 8.
func exp32(x float32) float32 {
	switch {
	case x > 89:
		return float32(math.Inf(1))
	case x < -104:
		return 0
	case x != x:
		return x
	}
	const toNearest = 3 << 51 // adding it leaves the nearest integer in the low bits of the sum
	t := float64(x)*math.Log2E + toNearest
	n := t - toNearest
	r := float64(x) - n*math.Ln2
	p := 1 + r*(1+r*(1./2+r*(1./6+r*(1./24+r*(1./120+r*(1./720+r*(1./5040+r*(1./40320))))))))
	return float32(p * math.Float64frombits(uint64(int64(n)+1023)<<52))
}
