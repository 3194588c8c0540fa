package kernel

import (
	"math"

	"github.com/tierlora/tierlora/kernel/cuda"
)

// GradNorm is the norm of the whole gradient and the factor that clips it.
//
//	g f[P], loss f[], clip f[2], (scaling if Scaled) -> clip' f[2]
//	clip'[0] = sqrt(sum g²) / S
//	clip'[1] = min(1, MaxNorm / (clip'[0] + 1e-6)) / S; 1/S where MaxNorm is not positive;
//	           NaN where clip'[0] or the loss is not finite: AdamW then changes nothing
//
// S is the loss scale where g is Scaled by it, else 1. The output is in the memory of clip, which is not read. The sum
// is taken in float64, in pieces of a fixed size in ascending order. The constant is torch's (clip_grad_norm_).
type GradNorm struct {
	MaxNorm float64
	Scaled  bool
}

func (GradNorm) Name() string { return "gradnorm" }

func (k GradNorm) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, withScaling(k.Scaled, "f[P]", "f[]", "f[2]")...); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 2, len(in)-1); err != nil {
		return nil, err
	}
	return []Type{in[2]}, nil
}

func (GradNorm) Overwrites() []Alias { return []Alias{{Out: 0, In: 2}} }

// normPiece is the elements of one partial sum.
const normPiece = 1 << 14

func normPieces(n int) int { return max(1, (n+normPiece-1)/normPiece) }

func (GradNorm) Scratch(in []Type, _ int) int64 { return T(F64, normPieces(in[0].Elems())).Bytes() }

func (k GradNorm) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], gradNorm[float32], gradNorm[float64])(k, c, in, out)
}

func gradNorm[F Float](k GradNorm, c *CPU, in, out []Tensor) func() {
	g, loss, y, scaling := Floats[F](in[0]), Floats[F](in[1]), Floats[F](out[0]), lossScaling[F](k.Scaled, in, 3)
	sums := NewTensor(T(F64, normPieces(len(g))), c.Scratch).F64()
	pieces := c.Range(len(g), normPiece, func(lo, hi int) { sums[lo/normPiece] = squares(g[lo:hi]) })
	return func() {
		pieces()
		sum := 0.0
		for _, s := range sums {
			sum += s
		}
		scale := float64(scaling[LossScaleNow])
		norm := math.Sqrt(sum) / scale
		factor := 1.0
		if k.MaxNorm > 0 {
			factor = math.Min(1, k.MaxNorm/(norm+1e-6))
		}
		y[0], y[1] = F(norm), F(factor/scale)
		if !finite(float64(y[0])) || !finite(float64(loss[0])) {
			y[1] = F(math.NaN())
		}
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// squares returns the sum of squares in float64, in four chains.
func squares[F Float](x []F) float64 {
	var s0, s1, s2, s3 float64
	for len(x) >= 4 {
		a, b, c, d := float64(x[0]), float64(x[1]), float64(x[2]), float64(x[3])
		s0, s1, s2, s3 = s0+float64(a*a), s1+float64(b*b), s2+float64(c*c), s3+float64(d*d)
		x = x[4:]
	}
	for _, v := range x {
		s0 += float64(float64(v) * float64(v))
	}
	return (s0 + s1) + (s2 + s3)
}

func (GradNorm) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 2) }

func (k GradNorm) Stored([]DType) (want, out []DType) {
	return storedScaling(k.Scaled, F32, F32, F32), []DType{F32}
}

func (GradNorm) ScratchGPU(_, _ []Type, _ int) int64 { return cuda.NormBlocks * 4 }
