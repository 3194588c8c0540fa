package gradcheck

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/kernel"
)

// rule is how far gradients of a precision may be from float64: some times as far as those of a plain computation, in
// which the CPU rounds the result of every operation to the precision's bits. So the limit is of the user's own
// model, data and length. It finds what is wrong, a term left out, a mask or a scale that is off; kernels that are
// somewhat worse than they should be are found by trainer selfcheck.
//
// One computation's error in one tensor is chance. So where something is beyond its limit, further ones are made,
// which round up or down at random, in proportion to what is left; their errors, which are sqrt(2) times those of
// rounding to the nearest, are divided by that, and the largest of all counts.
type rule struct {
	bits    int     // of mantissa that the plain computation keeps, the leading one counted
	weights bool    // of the base model are rounded as well
	scale   float64 // of its error: errors are in proportion to the unit of rounding
	times   float64
	least   float64 // of the limit: sums over many numbers lose some last bits whatever the operations keep
	draws   int     // at most
	draw    int     // which one; 0 rounds to the nearest
}

// rules are those of all precisions (docs/internals/NUMERICS.md).
var rules = map[kernel.Precision]rule{
	kernel.PrecisionBF16: {8, true, 1, 3, 0.01, 5, 0},
	kernel.PrecisionFP8:  {8, true, 1, 8, 0.08, 5, 0}, // 6 times was measured on a model of 1.1 billion parameters
	kernel.PrecisionFP16: {11, true, 1, 3, 0.01 / 8, 5, 0},
	kernel.PrecisionTF32: {11, true, 1, 2, 0.01 / 8, 5, 0},
	kernel.PrecisionFP32: {16, false, 1.0 / (1 << 8), 32, 1e-5, 1, 0},
}

func (r rule) limit(plain float64) float64 { return max(r.times*plain, r.least) }

// of says the rule in words, of so many draws.
func (r rule) of(draws int) string {
	of := fmt.Sprintf("the error of a plain computation that rounds every result to %d bits", r.bits)
	if r.scale != 1 {
		of = fmt.Sprintf("1/%v of %s", 1/r.scale, of)
	}
	if draws > 1 {
		of += fmt.Sprintf(", the largest of %d", draws)
	}
	return fmt.Sprintf("at most %v times %s, or %.2g", r.times, of, r.least)
}

// rounding rounds matrices as the draw does.
func (r rule) rounding() func(x kernel.Tensor) {
	if r.draw == 0 {
		return func(x kernel.Tensor) { roundTo(x, r.bits, nil) }
	}
	random := rand.New(rand.NewPCG(uint64(r.draw), 0))
	return func(x kernel.Tensor) { roundTo(x, r.bits, random) }
}

// errors are those of gradients, as parts of the exact ones' norms.
func (r *Report) errors(got, exact Gradients) {
	var error2, norm2 float64
	for i, name := range exact.Names {
		e, n := difference(got.Of[i], exact.Of[i]), difference(exact.Of[i], nil)
		error2, norm2 = error2+e*e, norm2+n*n
		r.Tensors = append(r.Tensors, Error{Name: adapter.PEFTName(name), Norm: n, Error: part(e, n)})
	}
	norm := math.Sqrt(norm2)
	r.All = Error{Name: "all", Norm: norm, Error: part(math.Sqrt(error2), norm)}
}

// judge sets the limits by a plain computation, where it is further off than those before.
func (r *Report) judge(limits rule, plain, exact Gradients) {
	scale := limits.scale
	if limits.draw > 0 {
		scale /= math.Sqrt2
	}
	var plain2 float64
	for i := range r.Tensors {
		t, e := &r.Tensors[i], difference(plain.Of[i], exact.Of[i])
		plain2 += e * e
		t.Plain = max(t.Plain, part(e, t.Norm)*scale)
	}
	r.All.Plain = max(r.All.Plain, part(math.Sqrt(plain2), r.All.Norm)*scale)
	r.All.Limit = limits.limit(r.All.Plain)
	r.OK, r.Failed = r.All.OK(), 0
	for i := range r.Tensors {
		t := &r.Tensors[i]
		if t.Limit = limits.limit(max(t.Plain, r.All.Plain)); !t.OK() {
			r.Failed++
		}
	}
	r.OK = r.OK && r.Failed == 0
}

// roundTo rounds matrices to so many bits of mantissa, to the nearest, ties to even, or at random to one of the two
// neighbours. Numbers, and vectors of statistics, stay as they are.
func roundTo(x kernel.Tensor, bits int, random *rand.Rand) {
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
		up := half + b>>drop&1
		if random != nil {
			up = random.Uint32() & mask
		}
		x.F32()[i] = math.Float32frombits((b + up) &^ mask)
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

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
