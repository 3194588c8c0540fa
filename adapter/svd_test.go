package adapter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// drawn is a matrix of normal numbers of a rank, with singular values that fall by a factor from one to the next.
func drawn(rng *rand.Rand, rows, cols, rank int, factor float64) matrix {
	w := matrix{rows, cols, make([]float32, rows*cols)}
	sum := make([]float64, rows*cols)
	for k, s := 0, 1.0; k < rank; k, s = k+1, s*factor {
		u, v := make([]float64, rows), make([]float64, cols)
		for i := range u {
			u[i] = rng.NormFloat64()
		}
		for j := range v {
			v[j] = rng.NormFloat64()
		}
		for i := range u {
			for j := range v {
				sum[i*cols+j] += s * u[i] * v[j]
			}
		}
	}
	for i, x := range sum {
		w.data[i] = float32(x)
	}
	return w
}

// gramOf is WᵀW.
func gramOf(w matrix) [][]float64 {
	g := make([][]float64, w.cols)
	for i := range g {
		g[i] = make([]float64, w.cols)
		for j := range g[i] {
			for k := range w.rows {
				g[i][j] += float64(w.data[k*w.cols+i]) * float64(w.data[k*w.cols+j])
			}
		}
	}
	return g
}

// TestSymmetricEigen compares products: A v = λ v, orthonormal v, the trace.
func TestSymmetricEigen(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, w := range []matrix{
		drawn(rng, 40, 30, 30, 0.9), drawn(rng, 5, 30, 5, 1), drawn(rng, 7, 1, 1, 1), drawn(rng, 9, 2, 2, 0.1), drawn(rng, 50, 50, 50, 0.4),
		{4, 6, make([]float32, 24)}, {3, 3, []float32{1, 0, 0, 0, 1, 0, 0, 0, 1}}, {2, 3, []float32{3, 0, 0, 0, 2, 0}}, drawn(rng, 300, 200, 200, 0.98),
	} {
		a := gramOf(w)
		values, vectors := symmetricEigen(a)
		size := max(values[0], 1e-300)
		var trace, sum float64
		for i, v := range vectors {
			trace, sum = trace+a[i][i], sum+values[i]
			if i > 0 && values[i] > values[i-1] {
				t.Errorf("%d x %d: eigenvalues are not sorted", w.rows, w.cols)
			}
			for j := range v {
				if d := math.Abs(dot(a[j], v) - values[i]*v[j]); !(d <= 1e-13*size) {
					t.Fatalf("%d x %d: eigenpair %d is off by %g of %g", w.rows, w.cols, i, d, size)
				}
			}
			for j, u := range vectors[:i+1] {
				want := 0.0
				if i == j {
					want = 1
				}
				if d := math.Abs(dot(u, v) - want); !(d <= 1e-12) {
					t.Fatalf("%d x %d: vectors %d and %d are off orthonormal by %g", w.rows, w.cols, i, j, d)
				}
			}
		}
		if math.Abs(trace-sum) > 1e-12*size*float64(len(a)) {
			t.Errorf("%d x %d: the trace is %g, the eigenvalues' sum %g", w.rows, w.cols, trace, sum)
		}
	}
}

// TestLeading compares the leading triplets with all eigenpairs of WᵀW.
func TestLeading(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	identity := matrix{20, 20, make([]float32, 400)}
	for i := range 20 {
		identity.data[21*i] = 1
	}
	for _, c := range []struct {
		name string
		w    matrix
		r    int
	}{
		{"tall", drawn(rng, 120, 60, 60, 0.95), 8}, {"wide", drawn(rng, 60, 130, 60, 0.95), 8}, {"flat spectrum", drawn(rng, 100, 100, 100, 1), 4},
		{"steep", drawn(rng, 64, 48, 48, 0.3), 6}, {"whole rank", drawn(rng, 12, 17, 12, 0.8), 12}, {"one", drawn(rng, 1, 1, 1, 1), 1}, {"row", drawn(rng, 1, 9, 1, 1), 1},
		{"rank below r", drawn(rng, 30, 30, 3, 0.5), 5}, {"zero", matrix{6, 7, make([]float32, 42)}, 3}, {"one value twenty times", identity, 5},
		{"large", drawn(rng, 400, 300, 300, 0.99), 16},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := leading(c.w, c.r, rng.Float64)
			if err != nil {
				t.Fatal(err)
			}
			values, _ := symmetricEigen(gramOf(c.w))
			first := math.Sqrt(max(values[0], 0))
			for i, s := range got.s {
				want := 0.0
				if i < len(values) {
					want = math.Sqrt(max(values[i], 0))
				}
				if d := math.Abs(s - want); !(d <= 1e-7*first) {
					t.Errorf("singular value %d is %g, want %g", i, s, want)
				}
				for j, v := range c.w.times(got.v[i : i+1])[0] {
					if d := math.Abs(v - s*got.u[i][j]); !(d <= 1e-12*first) {
						t.Fatalf("W v of triplet %d is off s u by %g", i, d)
					}
				}
				for j := range i + 1 {
					want := 0.0
					if i == j {
						want = 1
					}
					if d := math.Abs(dot(got.v[i], got.v[j]) - want); !(d <= 1e-11) {
						t.Errorf("right vectors %d and %d are off orthonormal by %g", i, j, d)
					}
				}
			}
			if rest := spectralRest(c.w, got); !(rest <= restOf(values, c.r)+1e-7*first) {
				t.Errorf("the residual has the norm %g, the best rank %d leaves %g", rest, c.r, restOf(values, c.r))
			}
		})
	}
	for _, r := range []int{0, 7} {
		if _, err := leading(drawn(rng, 6, 9, 6, 1), r, rng.Float64); err == nil {
			t.Errorf("%d triplets of a 6 x 9 matrix are no error", r)
		}
	}
}

// spectralRest is the Frobenius norm of W less its triplets.
func spectralRest(w matrix, t triplets) float64 {
	var sum float64
	for i := range w.rows {
		for j := range w.cols {
			x := float64(w.data[i*w.cols+j])
			for k := range t.s {
				x -= t.s[k] * t.u[k][i] * t.v[k][j]
			}
			sum += x * x
		}
	}
	return math.Sqrt(sum)
}

// restOf is the least Frobenius norm that a matrix with these squared singular values has less one of rank r.
func restOf(values []float64, r int) float64 {
	var sum float64
	for _, x := range values[min(r, len(values)):] {
		sum += max(x, 0)
	}
	return math.Sqrt(sum)
}

// TestRandomised: with many iterations the subspace is the leading one; with few it is worse, and never better.
func TestRandomised(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, size := range [][2]int{{80, 50}, {50, 80}} {
		w := drawn(rng, size[0], size[1], 50, 0.9)
		values, _ := symmetricEigen(gramOf(w))
		best, before := restOf(values, 6), math.Inf(1)
		for _, iterations := range []int{0, 1, 4, 200} {
			got, err := randomised(w, 6, iterations, rng.NormFloat64)
			if err != nil {
				t.Fatal(err)
			}
			rest := spectralRest(w, got)
			if rest < best*(1-1e-6) || rest > before*(1+1e-6) {
				t.Errorf("%v, %d iterations leave %g, the best is %g and fewer left %g", size, iterations, rest, best, before)
			}
			if iterations == 200 && rest > best*(1+1e-6) {
				t.Errorf("%v: %d iterations leave %g, the best is %g", size, iterations, rest, best)
			}
			before = rest
		}
	}
	got, err := randomised(matrix{6, 7, make([]float32, 42)}, 3, 2, rng.NormFloat64)
	if err != nil || fmt.Sprint(got.s) != "[0 0 0]" {
		t.Errorf("a zero matrix has %v, %v", got.s, err)
	}
}

func BenchmarkLeading(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	w := matrix{576, 576, make([]float32, 576*576)}
	for i := range w.data {
		w.data[i] = float32(rng.NormFloat64())
	}
	for b.Loop() {
		if _, err := leading(w, 16, rng.Float64); err != nil {
			b.Fatal(err)
		}
	}
}
