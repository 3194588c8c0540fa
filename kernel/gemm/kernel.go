package gemm

// kernel is the innermost multiplication for one processor.
type kernel[T Float] struct {
	name   string
	mr, nr int // rows and columns of a tile

	// tile computes C[rows,cols] = alpha A B (+ C when add is set); B is packed
	// [kc,bs], A lies at row*ars + depth*acs. Each value is one chain over k.
	tile func(s *space[T], rows, cols, kc int, alpha T, a []T, ars, acs int, b []T, bs int, c []T, ldc int, add bool)
	// dot writes the dot products of x and up to dotRows rows of y; k > 0.
	dot func(out, x, y []T, stride int)
	// dot16 is dot for dotRows rows of 16-bit floats, with its bits; nil = there is none.
	dot16 func(out, x []T, y []uint16, stride int, f16 bool)
	// sum adds coef[r] * row r of b to acc, rows in ascending order.
	sum func(acc, coef, b []T, stride int)
	// packRows and packCols fill a sliver [kc,nr].
	packRows func(dst []T, nr int, src []T, stride, rows, kc int)
	packCols func(dst []T, nr int, src []T, stride, cols, kc int)
}

var (
	portable32 = kernel[float32]{"generic", 4, 4, tileGo[float32], dotGo[float32], nil, sumGo[float32],
		packRows[float32], packCols[float32]}
	portable64 = kernel[float64]{"generic", 4, 4, tileGo[float64], dotGo[float64], nil, sumGo[float64],
		packRows[float64], packCols[float64]}
)

// tileGo is the plain 4 x 4 tile.
func tileGo[T Float](_ *space[T], rows, cols, kc int, alpha T, a []T, ars, acs int, b []T, bs int, c []T, ldc int,
	add bool) {
	if rows < 4 || cols < 4 {
		for i := range rows {
			for x := range cols {
				var sum T
				for k := range kc {
					sum += T(a[i*ars+k*acs] * b[k*bs+x])
				}
				put(&c[i*ldc+x], T(alpha*sum), add)
			}
		}
		return
	}
	a0, a1, a2, a3 := a, a[ars:], a[2*ars:], a[3*ars:]
	var s [4][4]T
	for k := range kc {
		r := b[k*bs:][:4]
		b0, b1, b2, b3 := r[0], r[1], r[2], r[3]
		v := a0[k*acs]
		s[0][0] += T(v * b0)
		s[0][1] += T(v * b1)
		s[0][2] += T(v * b2)
		s[0][3] += T(v * b3)
		v = a1[k*acs]
		s[1][0] += T(v * b0)
		s[1][1] += T(v * b1)
		s[1][2] += T(v * b2)
		s[1][3] += T(v * b3)
		v = a2[k*acs]
		s[2][0] += T(v * b0)
		s[2][1] += T(v * b1)
		s[2][2] += T(v * b2)
		s[2][3] += T(v * b3)
		v = a3[k*acs]
		s[3][0] += T(v * b0)
		s[3][1] += T(v * b1)
		s[3][2] += T(v * b2)
		s[3][3] += T(v * b3)
	}
	for i := range 4 {
		for x := range 4 {
			put(&c[i*ldc+x], T(alpha*s[i][x]), add)
		}
	}
}

func put[T Float](c *T, v T, add bool) {
	if add {
		v += *c
	}
	*c = v
}

func dotGo[T Float](out, x, y []T, stride int) {
	for r := range out {
		out[r] = dotRow(x, y[r*stride:][:len(x)])
	}
}

// dotRow sums four interleaved chains.
func dotRow[T Float](x, y []T) T {
	var s0, s1, s2, s3 T
	y = y[:len(x)]
	i := 0
	for ; i+4 <= len(x); i += 4 {
		s0 += T(x[i] * y[i])
		s1 += T(x[i+1] * y[i+1])
		s2 += T(x[i+2] * y[i+2])
		s3 += T(x[i+3] * y[i+3])
	}
	for ; i < len(x); i++ {
		s0 += T(x[i] * y[i])
	}
	return (s0 + s1) + (s2 + s3)
}

func sumGo[T Float](acc, coef, b []T, stride int) {
	for r, v := range coef {
		row := b[r*stride:][:len(acc)]
		for x := range acc {
			acc[x] += T(v * row[x])
		}
	}
}
