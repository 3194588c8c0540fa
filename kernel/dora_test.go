package kernel_test

import (
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestDoRA(t *testing.T) {
	for _, size := range [][3]int{{3, 7, 2}, {1, 1, 1}, {13, 172, 8}, {300, 40, 33}} {
		M, N, R := size[0], size[1], size[2]
		m, inv := kerneltest.Normal(N), kerneltest.Uniform(0.5, 2, N)
		name := kernel.T(kernel.F32, M, N, R).String()
		kerneltest.Run(t,
			kerneltest.Case{Name: "norm " + name, Kernel: kernel.DoRANorm{Scale: 0.01}, In: []kerneltest.Input{
				kerneltest.Uniform(20, 30, N), kerneltest.Normal(R, N), kerneltest.Normal(R, R),
				kerneltest.Normal(N, R)}, Bound: 3e-7},
			kerneltest.Case{Name: "scale " + name, Kernel: kernel.DoRAScale{},
				In: []kerneltest.Input{kerneltest.Normal(M, N), m, inv}, Bound: 3e-7},
			kerneltest.Case{Name: "gradient " + name, Kernel: kernel.DoRAScaleGrad{},
				In: []kerneltest.Input{kerneltest.Normal(M, N), m, inv, kerneltest.Normal(M, N)}, Bound: 3e-7},
		)
	}
}

// The norm is that of the rows of W + s B A built whole; a row of zeros has none.
func TestDoRANormMeaning(t *testing.T) {
	const s = 2.0
	w, a, b := [][]float64{{1, 2, -1}, {0, 0, 0}, {3, 0, 1}}, [][]float64{{1, 0.5, 2}, {0, -1, 1}},
		[][]float64{{0.5, 1}, {0, 0}, {-1, 0.25}}
	var squares, wa, gram, flat, want []float64
	for o, row := range w {
		norm, square := 0.0, 0.0
		for i, x := range row {
			full := x + s*(b[o][0]*a[0][i]+b[o][1]*a[1][i])
			norm, square = norm+full*full, square+x*x
		}
		squares, flat = append(squares, square), append(flat, b[o]...)
		if norm > 0 {
			norm = 1 / math.Sqrt(norm)
		}
		want = append(want, norm)
	}
	dot := func(x, y []float64) (sum float64) {
		for i := range x {
			sum += x[i] * y[i]
		}
		return sum
	}
	for r := range a {
		for _, row := range w {
			wa = append(wa, dot(a[r], row))
		}
		for k := range a {
			gram = append(gram, dot(a[r], a[k]))
		}
	}
	got := evaluate(t, kernel.DoRANorm{Scale: s}, f64s(squares, 3), f64s(wa, 2, 3), f64s(gram, 2, 2), f64s(flat, 3, 2))
	near(t, "one over the norm", got[0].F64(), want, 1e-15)
}
