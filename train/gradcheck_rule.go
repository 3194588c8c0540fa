package train

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel"
)

// gradRule is how far gradients of a precision may be from float64: some times as far as those of a plain computation,
// in which the CPU rounds the result of every operation to the precision's bits. So the limit is of the user's own
// model, data and length. It finds what is wrong, a term left out, a mask or a scale that is off; kernels that are somewhat
// worse than they should be are found by trainer selfcheck.
type gradRule struct {
	bits    int     // of mantissa that the plain computation keeps, the leading one counted
	weights bool    // of the base model are rounded as well
	scale   float64 // of its error: errors are in proportion to the unit of rounding
	times   float64
	least   float64 // of the limit: sums over many numbers lose some last bits whatever the operations keep
}

// gradRules are those of all precisions (docs/NUMERICS.md).
var gradRules = map[kernel.Precision]gradRule{
	kernel.PrecisionBF16: {8, true, 1, 3, 0.01},
	kernel.PrecisionFP16: {11, true, 1, 3, 0.01 / 8},
	kernel.PrecisionTF32: {11, true, 1, 2, 0.01 / 8},
	kernel.PrecisionFP32: {16, false, 1.0 / (1 << 8), 32, 1e-5},
}

func (r gradRule) limit(plain float64) float64 { return max(r.times*plain, r.least) }

func (r gradRule) String() string {
	of := fmt.Sprintf("the error of a plain computation that rounds every result to %d bits", r.bits)
	if r.scale != 1 {
		of = fmt.Sprintf("1/%v of %s", 1/r.scale, of)
	}
	return fmt.Sprintf("at most %v times %s, or %.2g", r.times, of, r.least)
}

// roundTo rounds matrices to so many bits of mantissa, ties to even. Numbers, and vectors of statistics, stay as they are.
func roundTo(x kernel.Tensor, bits int) {
	if x.DType != kernel.F32 || len(x.Shape) < 2 {
		return
	}
	drop := 24 - bits
	half, mask := uint32(1)<<(drop-1)-1, uint32(1)<<drop-1
	for i, v := range x.F32() {
		b := math.Float32bits(v)
		if b&0x7f800000 == 0x7f800000 {
			continue // infinite, or no number
		}
		x.F32()[i] = math.Float32frombits((b + half + b>>drop&1) &^ mask)
	}
}

// float64s copies numbers divided by a scale.
func float64s(x kernel.Tensor, scale float64) []float64 {
	out := make([]float64, x.Elems())
	if x.DType == kernel.F64 {
		for i, v := range x.F64() {
			out[i] = v / scale
		}
		return out
	}
	for i, v := range x.F32() {
		out[i] = float64(v) / scale
	}
	return out
}

// difference is the norm of x less y; nil is zero.
func difference(x, y []float64) float64 {
	sum := 0.0
	for i, v := range x {
		if y != nil {
			v -= y[i]
		}
		sum += v * v
	}
	return math.Sqrt(sum)
}

// part is an error as a part of a norm; of a norm of zero nothing may be left.
func part(e, norm float64) float64 {
	if norm == 0 && e == 0 {
		return 0
	}
	return bounded(e / norm)
}

// bounded is what JSON can hold: the largest number for one that is none, or infinite.
func bounded(x float64) float64 {
	if !finite(x) {
		return math.MaxFloat64
	}
	return x
}
