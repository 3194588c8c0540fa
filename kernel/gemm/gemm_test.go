package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func fill[T Float](n int, r *rand.Rand) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = T(r.NormFloat64())
	}
	return x
}

const sentinel = 12345.5

// onPath runs a test for every kernel of this processor, on pools made for it.
func onPath(t *testing.T, f func(t *testing.T)) {
	for _, k := range kernels {
		t.Run(k.name, func(t *testing.T) {
			old := chosen
			chosen = k
			defer func() { chosen = old }()
			f(t)
		})
	}
}

func newPool(t testing.TB, workers int) *Pool {
	p := NewPool(workers)
	t.Cleanup(p.Close)
	return p
}

// shape is one case; pad widens every row.
type shape struct {
	transA, transB bool
	m, n, k, pad   int
	alpha, beta    float64
}

func (s shape) String() string {
	return fmt.Sprintf("m%d n%d k%d tA%v tB%v pad%d alpha%v beta%v", s.m, s.n, s.k, s.transA, s.transB, s.pad, s.alpha,
		s.beta)
}

func (s shape) strides() (lda, ldb, ldc int) {
	lda, ldb = s.k, s.n
	if s.transA {
		lda = s.m
	}
	if s.transB {
		ldb = s.k
	}
	return lda + s.pad, ldb + s.pad, s.n + s.pad
}

// check computes the case and compares every value with a float64 sum, and
// every cell of C outside the matrix with its sentinel.
func check[T Float](t *testing.T, p *Pool, s shape, eps float64) {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(s.m*1000003+s.n*1009+s.k), 5))
	lda, ldb, ldc := s.strides()
	rowsA, rowsB := s.m, s.k
	if s.transA {
		rowsA = s.k
	}
	if s.transB {
		rowsB = s.n
	}
	a, b := fill[T](rowsA*lda, r), fill[T](rowsB*ldb, r)
	// C lies between two margins of a row and a bit.
	margin := ldc + 3
	whole := fill[T](s.m*ldc+2*margin, r)
	before := whole[margin:][:s.m*ldc]
	for i := range whole {
		if x := i - margin; x < 0 || x >= s.m*ldc || x%ldc >= s.n {
			whole[i] = sentinel
		} else if s.beta == 0 {
			whole[i] = T(math.NaN())
		}
	}
	before = append([]T(nil), before...)
	c := whole[margin:][:s.m*ldc]
	defer func() {
		for i, v := range whole {
			if x := i - margin; (x < 0 || x >= s.m*ldc) && v != sentinel {
				t.Fatalf("%v: cell %d outside C was written", s, x)
			}
		}
	}()
	Gemm(p, s.transA, s.transB, s.m, s.n, s.k, T(s.alpha), a, lda, b, ldb, T(s.beta), c, ldc)
	for i, got := range c {
		row, col := i/ldc, i%ldc
		if row >= s.m || col >= s.n {
			if got != sentinel {
				t.Fatalf("%v: cell %d outside C was written", s, i)
			}
			continue
		}
		sum, size := 0.0, 0.0
		for x := range s.k {
			ai, bi := row*lda+x, x*ldb+col
			if s.transA {
				ai = x*lda + row
			}
			if s.transB {
				bi = col*ldb + x
			}
			v := float64(a[ai]) * float64(b[bi])
			sum += v
			size += math.Abs(v)
		}
		want := s.alpha * sum
		size = math.Abs(s.alpha) * size
		if s.beta != 0 {
			want += s.beta * float64(before[i])
			size += math.Abs(s.beta * float64(before[i]))
		}
		if d := math.Abs(float64(got) - want); !(d <= eps*(size+1e-30)*(3+math.Sqrt(float64(s.k)))) {
			t.Fatalf("%v: C[%d,%d] = %v, want %v", s, row, col, got, want)
		}
	}
}

func TestAgainstFloat64(t *testing.T) {
	sizes := []int{1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 172}
	onPath(t, func(t *testing.T) {
		p := newPool(t, 3)
		r := rand.New(rand.NewPCG(1, 1))
		one := func(s shape) {
			check[float32](t, p, s, 6e-8)
			check[float64](t, p, s, 1.2e-16)
		}
		for _, m := range sizes {
			for _, n := range sizes {
				s := shape{r.IntN(2) == 1, r.IntN(2) == 1, m, n, sizes[r.IntN(len(sizes))], r.IntN(3) * 5, 1, 0}
				s.alpha, s.beta = []float64{1, 1, -0.5, 2}[r.IntN(4)], []float64{0, 1, 0.25}[r.IntN(3)]
				one(s)
			}
		}
		for trans := range 4 {
			for _, k := range []int{1, 63, 64, 65, 384, 385, 769, 1000} {
				for _, beta := range []float64{0, 1, -2} {
					one(shape{trans&1 == 1, trans&2 == 2, 29, 70, k, 1, 1, beta})
				}
			}
			one(shape{trans&1 == 1, trans&2 == 2, 130, 600, 40, 0, 0.5, 1})
			one(shape{trans&1 == 1, trans&2 == 2, 2, 300, 5000, 0, 1, 0})
			one(shape{trans&1 == 1, trans&2 == 2, 17, 400, 1024, 0, 1, 1})
			one(shape{trans&1 == 1, trans&2 == 2, 1024, 400, 9, 0, 1, 1})
			one(shape{trans&1 == 1, trans&2 == 2, 300, 4, 500, 0, 1, 1})
			one(shape{trans&1 == 1, trans&2 == 2, 33, 37, 0, 2, 1, 0.5})
			one(shape{trans&1 == 1, trans&2 == 2, 33, 37, 20, 2, 0, 0})
		}
	})
}

// The same bits with any number of threads.
func TestThreadsDoNotChangeBits(t *testing.T) {
	onPath(t, func(t *testing.T) {
		pools := []*Pool{newPool(t, 1), newPool(t, 2), newPool(t, 3), newPool(t, 4)}
		for _, s := range []shape{{m: 129, n: 577, k: 576}, {m: 1, n: 1000, k: 777, transB: true},
			{m: 300, n: 8, k: 900, transB: true}, {m: 8, n: 900, k: 300, transA: true},
			{m: 700, n: 16, k: 130, transA: true}, {m: 3, n: 1000, k: 777}} {
			r := rand.New(rand.NewPCG(3, 5))
			lda, ldb, ldc := s.strides()
			a, b := fill[float32](s.m*s.k, r), fill[float32](s.n*s.k, r)
			var want []float32
			for _, p := range pools {
				c := make([]float32, s.m*s.n)
				Gemm(p, s.transA, s.transB, s.m, s.n, s.k, 1.5, a, lda, b, ldb, 0, c, ldc)
				if want == nil {
					want = c
				}
				sameBits(t, fmt.Sprint(s, " threads ", p.Workers()), c, want)
			}
		}
	})
}

// TestTilesGiveARowTheSameBits compares rows of GEMMs by tiles of few rows with those of GEMMs of more rows.
func TestTilesGiveARowTheSameBits(t *testing.T) {
	const most = 40
	onPath(t, func(t *testing.T) {
		p := newPool(t, 2)
		r := rand.New(rand.NewPCG(7, 5))
		for _, s := range []shape{{n: 25, k: 8, transB: true}, {n: 8, k: 25}, {n: 128, k: 64, transB: true},
			{n: 64, k: 128}, {n: 1, k: 500}, {n: 33, k: 800, transB: true}} {
			a, b, start := fill[float32](most*s.k, r), fill[float32](s.n*s.k, r), fill[float32](most*s.n, r)
			_, ldb, _ := s.strides()
			rows := func(m int) []float32 {
				c := slices.Clone(start[:m*s.n])
				GemmByTiles(p, false, s.transB, m, s.n, s.k, 1, a, s.k, b, ldb, 1, c, s.n)
				return c
			}
			all := rows(most)
			for m := range most {
				sameBits(t, fmt.Sprint(s, " of ", m, " rows"), rows(m), all[:m*s.n])
			}
		}
	})
}

// TestFloat64HasTheSameBitsOnEveryPath compares every kernel's float64 result with plain Go's.
func TestFloat64HasTheSameBitsOnEveryPath(t *testing.T) {
	var shapes []shape
	for _, m := range []int{5, 6, 7, 8, 33} { // fewer rows take no tile
		for _, n := range []int{1, 3, 4, 5, 7, 8, 12, 15, 100} {
			for trans := range 4 {
				shapes = append(shapes,
					shape{trans&1 == 1, trans&2 == 2, m, n, 17, n % 3, 1, 0},
					shape{trans&1 == 1, trans&2 == 2, m, n, 401, m % 2, -0.3, 0.7})
			}
		}
	}
	results := func() (all [][]float64) {
		p := newPool(t, 2)
		for _, s := range shapes {
			r := rand.New(rand.NewPCG(7, uint64(s.m*s.n)))
			lda, ldb, ldc := s.strides()
			a, b, c := fill[float64](max(s.m, s.k)*lda, r), fill[float64](max(s.n, s.k)*ldb,
				r), fill[float64](s.m*ldc, r)
			Gemm(p, s.transA, s.transB, s.m, s.n, s.k, s.alpha, a, lda, b, ldb, s.beta, c, ldc)
			all = append(all, c)
		}
		return all
	}
	defer func(old *kernel[float32]) { chosen = old }(chosen)
	chosen = &portable32
	want := results()
	onPath(t, func(t *testing.T) {
		for i, got := range results() {
			for x := range got {
				if math.Float64bits(got[x]) != math.Float64bits(want[i][x]) {
					t.Fatalf("%v: value %d is %v, plain Go has %v", shapes[i], x, got[x], want[i][x])
				}
			}
		}
	})
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: value %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// plain is a Dequantiser of what is not quantised.
type plain []float32

func (p plain) DequantiseRange(dst []float32, from, to int) { copy(dst, p[from:to]) }

func TestDequantisedIsGemmBitForBit(t *testing.T) {
	onPath(t, func(t *testing.T) {
		p := newPool(t, 2)
		for _, m := range []int{1, 3, 5, 16, 40, 130} {
			for _, s := range []shape{{n: 65, k: 172}, {n: 172, k: 65}, {n: 576, k: 640}, {n: 33, k: 5000},
				{n: 700, k: 100}} {
				r := rand.New(rand.NewPCG(9, uint64(m)))
				a, b := fill[float32](m*s.k, r), fill[float32](s.n*s.k, r)
				for _, trans := range []bool{false, true} {
					ldb := s.n
					if trans {
						ldb = s.k
					}
					got, want := fill[float32](m*s.n, r), make([]float32, m*s.n)
					copy(want, got)
					GemmDequantised(p, trans, m, s.n, s.k, 1, a, s.k, plain(b), 1, got, s.n)
					Gemm(p, false, trans, m, s.n, s.k, 1, a, s.k, b, ldb, 1, want, s.n)
					sameBits(t, fmt.Sprint(m, s, trans), got, want)
				}
			}
		}
	})
}

func TestNothingIsAllocated(t *testing.T) {
	onPath(t, func(t *testing.T) {
		p := newPool(t, 2)
		r := rand.New(rand.NewPCG(9, 9))
		a, b, c := fill[float32](256*256, r), fill[float32](256*256, r), make([]float32, 256*256)
		a64, b64, c64 := make([]float64, 100*100), make([]float64, 100*100), make([]float64, 100*100)
		var w Dequantiser = plain(b)
		f := func(i int) { c[i]++ }
		if n := testing.AllocsPerRun(20, func() {
			Gemm(p, false, true, 256, 256, 256, 1, a, 256, b, 256, 0, c, 256)
			Gemm(p, true, false, 100, 100, 100, 1, a64, 100, b64, 100, 0, c64, 100)
			GemmDequantised(p, true, 256, 256, 256, 1, a, 256, w, 1, c, 256)
			p.Parallel(100, f)
		}); n != 0 {
			t.Errorf("%v allocations a call", n)
		}
	})
}

func TestRefusesShortSlices(t *testing.T) {
	for name, f := range map[string]func(x []float32){
		"A":      func(x []float32) { Gemm(nil, false, false, 3, 2, 3, 1, x, 3, x, 2, 0, make([]float32, 9), 3) },
		"B":      func(x []float32) { Gemm(nil, false, true, 2, 3, 4, 1, x, 4, x, 4, 0, make([]float32, 9), 3) },
		"C":      func(x []float32) { Gemm(nil, false, false, 2, 2, 2, 1, x, 2, x, 2, 0, x[:3], 2) },
		"stride": func(x []float32) { Gemm(nil, false, false, 2, 2, 2, 1, x, 1, x, 2, 0, x, 2) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f(make([]float32, 8))
		}()
	}
}
