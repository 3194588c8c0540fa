package kernel

import "math"

// Draw draws a place of each row from the softmax of its numbers, which an inverse temperature multiplies.
//
//	x f[M,N], draws f[M,2] -> place i32[M], logp f[M]
//
// draws[m] are a random number from 0 up to, but without, 1, and one over the temperature of row m. place[m] is the
// first place at which the running sum of exp((x - max) / temperature) exceeds the random number's share of the whole
// sum, and logp[m] is its log-probability. Where number i of a row is the first that is not finite, place is -1 - i and
// logp NaN. A row's result does not depend on the other rows. Arithmetic is in float64.
type Draw struct{}

// Name returns "draw".
func (Draw) Name() string { return "draw" }

// Shape returns the types of places and log-probabilities.
func (Draw) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,N]", "f[M,2]")
	if err != nil {
		return nil, err
	}
	return []Type{T(I32, d.At('M')), T(in[1].DType, d.At('M'))}, nil
}

// CPU binds the float64 or the float32 body.
func (o Draw) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], bindDraw[float32], bindDraw[float64])(c, o, in, out)
}

func bindDraw[F Float](c *CPU, _ Draw, in, out []Tensor) func() {
	x, draws, width := Floats[F](in[0]), Floats[F](in[1]), in[0].Shape[1]
	places, logp := out[0].I32(), Floats[F](out[1])
	return c.Range(len(places), 1, func(lo, hi int) {
		for m := lo; m < hi; m++ {
			place, l := drawOf(x[m*width:][:width], float64(draws[2*m]), float64(draws[2*m+1]))
			places[m], logp[m] = place, F(l)
		}
	})
}

// drawOf draws from a row.
func drawOf[F Float](row []F, share, by float64) (place int32, logp float64) {
	best := likeliestOf(row)
	if best < 0 {
		return best, math.NaN()
	}
	top, sum := float64(row[best]), 0.0
	for _, v := range row {
		sum += math.Exp((float64(v) - top) * by)
	}
	place, running := best, 0.0
	for i, v := range row {
		w := math.Exp((float64(v) - top) * by)
		if running += w; w > 0 {
			place = int32(i)
		}
		if running > share*sum {
			break
		}
	}
	return place, (float64(row[place])-top)*by - math.Log(sum)
}

// Cost counts two exponentials for each number.
func (Draw) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 16) }

// Stored keeps everything in fp32.
func (Draw) Stored([]DType) (want, out []DType) { return []DType{F32, F32}, []DType{I32, F32} }
