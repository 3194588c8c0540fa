package kernel

// NEFTune adds uniform noise to the embeddings of tokens (Jain et al. 2023).
//
//	x f[M,C], rows i32[M], positions i32[M], scale f[M], counter i32[2] = (seed, step)
//	  -> f[M,C] = x + scale u,  u in [-1,1)
//
// A token has a row's number and a position in that row, so that its noise depends on seed, step, row and position
// alone, and not on the batch that the token is in. With the word w = word c%4 of Philox4x32-10(counter = (c/4,
// position, row, step), key = (seed, unsigned) + a constant, low word first), u of column c is (w >> 8) 2^-23 - 1, the
// same on every device.
type NEFTune struct{}

// neftuneStream is added to the seed, so that the noise is not that of a dropout mask.
const neftuneStream = 0x4e454654756e65

// Cheap tells that the output costs less to recompute than to keep.
func (NEFTune) Cheap() {}

// Name returns "neftune".
func (NEFTune) Name() string { return "neftune" }

// Shape returns the type of x.
func (NEFTune) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,C]", "i32[M]", "i32[M]", "f[M]", "i32[2]"); err != nil {
		return nil, err
	}
	return in[:1], sameElements(in, 0, 3)
}

// Grads gives x the gradient of the output.
func (NEFTune) Grads() Backward { return Backward{Grads: []Ref{Upstream(), {}, {}, {}, {}}} }

// InPlace allows the output in the memory of x.
func (NEFTune) InPlace() []Alias { return []Alias{{0, 0}} }

// CPU binds the float64 or the float32 body.
func (NEFTune) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], neftune[float32], neftune[float64])(c, in, out)
}

func neftune[F Float](c *CPU, in, out []Tensor) func() {
	x, rows, positions, scale := Floats[F](in[0]), in[1].I32(), in[2].I32(), Floats[F](in[3])
	counter, y := in[4].I32(), Floats[F](out[0])
	M, C := in[0].Shape[0], in[0].Shape[1]
	return c.Range(M, rowGrain(C), func(lo, hi int) {
		keys, step := philoxKeys(uint64(uint32(counter[0]))+neftuneStream), uint32(counter[1])
		for m := lo; m < hi; m++ {
			row, position := uint32(rows[m]), uint32(positions[m])
			from, to := x[m*C:][:C], y[m*C:][:C]
			for c := 0; c < C; c += 4 {
				w0, w1, w2, w3 := philox(uint32(c/4), position, row, step, &keys)
				for k, w := range [4]uint32{w0, w1, w2, w3} {
					if c+k < C {
						to[c+k] = from[c+k] + scale[m]*(F(w>>8)*0x1p-23-1)
					}
				}
			}
		}
	})
}

// Cost counts a multiplication and a sum for each number.
func (NEFTune) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 2) }

// Stored keeps embeddings in the compute type and scales in fp32.
func (NEFTune) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32, I32, F32, I32}, []DType{ComputeType}
}
