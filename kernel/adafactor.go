package kernel

import (
	"fmt"
	"math"
)

// Adafactor is one step of Adafactor (Shazeer and Stern 2018) over tensors, in the order of transformers' Adafactor:
// of a matrix's second moments, only the means of rows and columns are kept.
//
//	p, g f[P]; rows f[R], cols f[C], which AdafactorPlaces lays out; m f[M]; table i32[N,5] of Matrices;
//	clip f[2] as GradNorm gives it; hyper f[4] = (lr, Beta2, -, t as the bits of a float32); (scaling if Scaled)
//	d = g clip[1];  q = d² + 1e-30;  b = Beta2 of the step, 1 - t^-0.8
//	matrix: rows' = b rows + (1-b) (mean of q's rows); cols' likewise; u = d / sqrt(rows'/mean(rows')) / sqrt(cols')
//	vector: rows' = b rows + (1-b) q; u = d / sqrt(rows')
//	s = lr, or lr max(1e-3, rms(p)) with ScaleParameter
//	u = s u / max(1, rms(u)/ClipThreshold);  with Beta1 > 0: m' = Beta1 m + (1-Beta1) u, u = m'
//	p' = p - s WeightDecay p - u
//
// Elements outside of Matrices keep their values. M is P if Beta1 > 0, else 1. Outputs p', rows', cols', m' are in the
// memory of what they replace. If clip[1] is not a number nothing changes. With Scaled, t does not count skipped steps.
type Adafactor struct {
	Matrices                          []Matrix
	Beta1, ClipThreshold, WeightDecay float64
	ScaleParameter, Scaled            bool
}

// Constants of transformers' Adafactor: what is added to a squared gradient, the least scale of a parameter, and the
// exponent of the step's number.
const (
	adafactorEps   = 1e-30
	adafactorLeast = 1e-3
	AdafactorDecay = -0.8
)

func (Adafactor) Name() string { return "adafactor" }

// AdafactorPlaces returns how many means of rows and columns a tensor has; a vector has all its second moments as rows.
func AdafactorPlaces(m Matrix) (rows, cols int) { return m.Rows, m.Cols }

// AdafactorStates returns the number of elements of rows and cols, each at least 1.
func AdafactorStates(all []Matrix) (rows, cols int) {
	rows, cols = placesOf(all, AdafactorPlaces)
	return max(rows, 1), max(cols, 1)
}

// Shape returns the types of p', rows', cols' and m'.
func (k Adafactor) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, withScaling(k.Scaled, "f[P]", "f[P]", "f[R]", "f[C]", "f[M]", "i32[N,5]", "f[2]", "f[4]")...)
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 2, 3, 4, 6, 7, len(in)-1); err != nil {
		return nil, err
	}
	if len(k.Matrices) != d.At('N') {
		return nil, fmt.Errorf("a table of %d rows for %d tensors", d.At('N'), len(k.Matrices))
	}
	if err := checkMatrices(k.Matrices, d.At('P')); err != nil {
		return nil, err
	}
	rows, cols := AdafactorStates(k.Matrices)
	if rows != d.At('R') || cols != d.At('C') {
		return nil, fmt.Errorf("%d means of rows and %d of columns: want %d and %d", d.At('R'), d.At('C'), rows, cols)
	}
	if want := map[bool]int{true: d.At('P'), false: 1}[k.Beta1 > 0]; d.At('M') != want {
		return nil, fmt.Errorf("%d first moments: want %d", d.At('M'), want)
	}
	return []Type{in[0], in[2], in[3], in[4]}, nil
}

func (Adafactor) Overwrites() []Alias { return []Alias{{0, 0}, {1, 2}, {2, 3}, {3, 4}} }

func (k Adafactor) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], adafactor[float32], adafactor[float64])(k, c, in, out)
}

func adafactor[F Float](k Adafactor, c *CPU, in, out []Tensor) func() {
	g, clip, hyper, scaling := Floats[F](in[1]), Floats[F](in[6]), Floats[F](in[7]), lossScaling[F](k.Scaled, in, 8)
	p, rows, cols, m := Floats[F](out[0]), Floats[F](out[1]), Floats[F](out[2]), Floats[F](out[3])
	of := make([]factored[F], len(k.Matrices))
	atRow, atCol := 0, 0
	for i, x := range k.Matrices {
		of[i] = factored[F]{Adafactor: k, Matrix: x, p: p[x.From:][:x.Elems()], g: g[x.From:][:x.Elems()],
			row: rows[atRow:][:x.Rows], col: cols[atCol:][:x.Cols]}
		if k.Beta1 > 0 {
			of[i].m = m[x.From:][:x.Elems()]
		}
		atRow, atCol = atRow+x.Rows, atCol+x.Cols
	}
	return c.Range(len(of), 1, func(lo, hi int) {
		if math.IsNaN(float64(clip[1])) {
			return
		}
		b2 := hyper[1]
		if k.Scaled {
			t := float64(math.Float32bits(float32(hyper[3]))) - float64(scaling[LossScaleSkipped])
			b2 = F(1 - math.Pow(t, AdafactorDecay))
		}
		for i := lo; i < hi; i++ {
			of[i].step(clip[1], hyper[0], b2)
		}
	})
}

// factored is one tensor of Adafactor: its numbers, and its means of rows and columns.
type factored[F Float] struct {
	Adafactor
	Matrix
	p, g, row, col, m []F
}

// step updates the tensor. Sums are taken in float64.
func (f factored[F]) step(factor, lr, b2 F) {
	to2 := F(1 - b2)
	mean := f.moments(factor, b2, to2)
	sum, squares := 0.0, 0.0
	for j, w := range f.p {
		u := float64(f.update(j, factor, mean))
		sum += u * u
		squares += float64(w) * float64(w)
	}
	n := float64(len(f.p))
	if f.ScaleParameter {
		lr = F(float64(lr) * max(adafactorLeast, math.Sqrt(squares/n)))
	}
	size := F(float64(lr) / max(1, math.Sqrt(sum/n)/f.ClipThreshold))
	decay, b1, to1 := F(float64(lr)*f.WeightDecay), F(f.Beta1), F(1-f.Beta1)
	for j, w := range f.p {
		u := F(size * f.update(j, factor, mean))
		if f.m != nil {
			f.m[j] = F(b1*f.m[j]) + F(to1*u)
			u = f.m[j]
		}
		f.p[j] = w - F(decay*w) - u
	}
}

// moments updates the means of squares and returns the mean of the rows'; 1 for a vector.
func (f factored[F]) moments(factor, b2, to2 F) F {
	square := func(j int) float64 {
		d := float64(F(f.g[j] * factor))
		return d*d + adafactorEps
	}
	if f.Cols == 0 {
		for j := range f.row {
			f.row[j] = F(b2*f.row[j]) + F(to2*F(square(j)))
		}
		return 1
	}
	all := 0.0
	for r := range f.Rows {
		sum := 0.0
		for c := range f.Cols {
			sum += square(r*f.Cols + c)
		}
		f.row[r] = F(b2*f.row[r]) + F(to2*F(sum/float64(f.Cols)))
		all += float64(f.row[r])
	}
	for c := range f.Cols {
		sum := 0.0
		for r := range f.Rows {
			sum += square(r*f.Cols + c)
		}
		f.col[c] = F(b2*f.col[c]) + F(to2*F(sum/float64(f.Rows)))
	}
	return F(all / float64(f.Rows))
}

// update returns an element's update before it is scaled.
func (f factored[F]) update(j int, factor, mean F) F {
	d := F(f.g[j] * factor)
	if f.Cols == 0 {
		return F(d / F(math.Sqrt(float64(f.row[j]))))
	}
	return F(F(d/F(math.Sqrt(float64(F(f.row[j/f.Cols]/mean))))) / F(math.Sqrt(float64(f.col[j%f.Cols]))))
}

func (Adafactor) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 30) }

// Stored returns fp32 for all tensors but the table.
func (k Adafactor) Stored([]DType) (want, out []DType) {
	return storedScaling(k.Scaled, F32, F32, F32, F32, F32, I32, F32, F32), []DType{F32, F32, F32, F32}
}
