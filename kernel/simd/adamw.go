package simd

// AdamScalars are the numbers of a step of AdamW, each made in float64 and rounded once, as torch has them. With d = g
// Factor:
//
//	m += ToGrad (d - m);  v = v Beta2 + ToSquare d²;  p = p Keep + Size m / (sqrt(v)/Correct + Eps)
//
// adamw_amd64.s reads them by their offsets.
type AdamScalars[F Float] struct {
	Factor, ToGrad, Beta2, ToSquare, Correct, Eps, Keep, Size F
}
