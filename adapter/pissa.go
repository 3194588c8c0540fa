package adapter

import (
	"fmt"
	"math"
)

// startPiSSA starts from the leading singular triplets of the base weight, W = U S Vᵀ: B = U sqrt(S/s) and
// A = sqrt(S/s) Vᵀ, so that s B A is the best approximation of W of that rank (Meng et al. 2024). Singular vectors have
// free signs, the product has none.
func startPiSSA(c Config, f Fresh, a, b Param, _ int) error {
	return startFromTriplets(c, f, a, b, func(w matrix) (triplets, error) { return leading(w, a.Shape[0], f.Uniform(a.Name)) })
}

// startFastPiSSA starts from a randomised decomposition with n power iterations, as PEFT's pissa_niter_N does.
func startFastPiSSA(c Config, f Fresh, a, b Param, n int) error {
	return startFromTriplets(c, f, a, b, func(w matrix) (triplets, error) {
		return randomised(w, a.Shape[0], n, normalFrom(f.Uniform(a.Name)))
	})
}

func startFromTriplets(c Config, f Fresh, a, b Param, decompose func(w matrix) (triplets, error)) error {
	w, err := f.Weight()
	if err != nil {
		return err
	}
	t, err := decompose(w)
	if err != nil {
		return fmt.Errorf("decompose %s%s: %w", f.Layer, weightSuffix, err)
	}
	fillFromTriplets(c, f, a, b, t)
	return nil
}

// fillFromTriplets gives A and B the roots of singular triplets, so that s B A is their sum.
func fillFromTriplets(c Config, f Fresh, a, b Param, t triplets) {
	rank, in := a.Shape[0], a.Shape[1]
	for k, s := range t.s {
		root := math.Sqrt(s / c.Scale(f.Layer))
		for i, v := range t.v[k] {
			a.Data[k*in+i] = float32(root * v)
		}
		for o, u := range t.u[k] {
			b.Data[o*rank+k] = float32(root * u)
		}
	}
}

// normalFrom returns a stream of the standard normal distribution from one of numbers in [0,1) (Box and Muller 1958).
func normalFrom(uniform func() float64) func() float64 {
	return func() float64 {
		r := math.Sqrt(-2 * math.Log(1-uniform()))
		return r * math.Cos(2*math.Pi*uniform())
	}
}
