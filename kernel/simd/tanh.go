package simd

import "math"

// tanh32 returns the hyperbolic tangent as 1 - 2/(e^2x + 1) in float64, with exp32's polynomial: correctly rounded but
// for about one in a thousand results.
func tanh32(x float32) float32 {
	switch {
	case x > 10:
		return 1
	case x < -10:
		return -1
	case x != x:
		return x
	}
	const toNearest = 3 << 51
	t := float64(x)*(2*math.Log2E) + toNearest
	n := t - toNearest
	r := 2*float64(x) - n*math.Ln2
	// e^r - 1 keeps its digits where x is small: there n is 0.
	p := r * (1 + r*(1./2+r*(1./6+r*(1./24+r*(1./120+r*(1./720+r*(1./5040+r*(1./40320))))))))
	power := math.Float64frombits(uint64(int64(n)+1023) << 52)
	less := p*power + (power - 1)
	return float32(less / (less + 2))
}

// tanh is tanh32 or math.Tanh.
func tanh[F Float]() func(F) F {
	var f F
	if _, single := any(f).(float32); single {
		return any(tanh32).(func(F) F)
	}
	return any(math.Tanh).(func(F) F)
}

func softCap[F Float](dst, src []F, cap F) {
	f := tanh[F]()
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = cap * f(x/cap)
	}
}

// The argument of gelu's tanh is geluRoot*(x + geluCube*x^3); (1 + tanh(u))/2 = sigmoid(2u).
const (
	geluRoot = 0.7978845608028654 // sqrt(2/pi)
	geluCube = 0.044715
)

func geglu[F Float](exp func(F) F) func(h, gate, up []F) {
	return func(h, gate, up []F) {
		gate, up = gate[:len(h)], up[:len(h)]
		for i, x := range gate {
			h[i] = x / (1 + exp(-2*geluRoot*x*(1+geluCube*x*x))) * up[i]
		}
	}
}

func gegluGrad[F Float](exp func(F) F) func(dgate, dup, gate, up, dh []F) {
	return func(dgate, dup, gate, up, dh []F) {
		dup, gate, up, dh = dup[:len(dgate)], gate[:len(dgate)], up[:len(dgate)], dh[:len(dgate)]
		for i, x := range gate {
			square := geluCube * x * x
			s := 1 / (1 + exp(-2*geluRoot*x*(1+square)))
			u, d := up[i], dh[i]
			dgate[i] = d * u * s * (1 + 2*geluRoot*x*(1+3*square)*(1-s))
			dup[i] = d * x * s
		}
	}
}
