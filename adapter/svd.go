package adapter

import (
	"fmt"
	"math"
	"slices"
)

// A singular value decomposition W = U S Vᵀ of a weight [Out,In], of which an adapter needs the leading triplets only. All
// sums are in float64 and in a fixed order, so the numbers depend on the weight and the start alone.

// matrix is a weight [Rows,Cols] in row-major order.
type matrix struct {
	rows, cols int
	data       []float32
}

// squares returns the sum of the squares of a matrix, summed in float64.
func (w matrix) squares() (sum float64) {
	for _, x := range w.data {
		sum += float64(x) * float64(x)
	}
	return sum
}

// triplets are singular triplets of a matrix, the largest singular value first: u[i] and v[i] are the unit vectors of s[i].
type triplets struct {
	s    []float64
	u, v [][]float64
}

// block is a set of vectors of one length, which a basis is made of.
type block [][]float64

const (
	// krylovExtra is how many vectors a block has beside those that are asked for: they separate the last of these from the
	// rest of the spectrum.
	krylovExtra = 8
	// krylovResidual bounds |WᵀW v - s² v| of every returned v, in units of the largest s². float32 resolves 6e-8.
	krylovResidual = 1e-11
	// independent is the share of a vector's length that orthogonalisation must leave for its direction to be new.
	independent = 1e-10
)

// leading returns the r largest singular triplets of w, exact to float32, by block Lanczos on WᵀW with full
// orthogonalisation. uniform returns numbers in [0,1): they decide the start of the iteration.
func leading(w matrix, r int, uniform func() float64) (triplets, error) {
	if r < 1 || r > min(w.rows, w.cols) {
		return triplets{}, fmt.Errorf("a matrix of %d x %d has no %d singular values", w.rows, w.cols, r)
	}
	size := min(r+krylovExtra, w.cols)
	next := make(block, size)
	for i := range next {
		next[i] = make([]float64, w.cols)
		for j := range next[i] {
			next[i][j] = 2*uniform() - 1
		}
	}
	var basis block
	next, _ = orthonormalised(nil, next)
	h := [][]float64{} // basisᵀ WᵀW basis
	check := 0         // the size of the basis at which convergence is looked at next
	for {
		from := len(basis)
		basis = append(basis, next...)
		image := w.gram(next)
		for i := range h {
			h[i] = append(h[i], make([]float64, len(next))...)
		}
		for range next {
			h = append(h, make([]float64, len(basis)))
		}
		for j, y := range image {
			for i, q := range basis {
				x := dot(q, y)
				h[i][from+j], h[from+j][i] = x, x
			}
		}
		var rest [][]float64 // rest[j] has the coordinates of the j-th image in next
		next, rest = orthonormalised(basis, image)
		last := len(next) == 0 || len(basis) == w.cols
		if !last && len(basis) < check {
			continue
		}
		check = len(basis) + max(size, len(basis)/4)
		values, vectors := symmetricEigen(h)
		if last || converged(values, vectors, rest, from, r) {
			return w.ritz(basis, vectors[:r]), nil
		}
	}
}

// converged reports whether the residuals of the first r eigenpairs of the projected matrix are small: the part of the
// last block's images that lies outside of the basis, seen by each eigenvector.
func converged(values []float64, vectors, rest [][]float64, from, r int) bool {
	for _, y := range vectors[:r] {
		var residual float64
		for k := range rest[0] {
			var x float64
			for j := range rest {
				x += float64(rest[j][k] * y[from+j])
			}
			residual += float64(x * x)
		}
		if !(math.Sqrt(residual) <= krylovResidual*values[0]) {
			return false
		}
	}
	return true
}

// ritz returns the triplets whose right vectors have these coordinates in basis.
func (w matrix) ritz(basis block, coordinates [][]float64) triplets {
	t := triplets{}
	v := make(block, len(coordinates))
	for i, y := range coordinates {
		v[i] = make([]float64, w.cols)
		for k, q := range basis {
			axpy(v[i], y[k], q)
		}
	}
	for i, u := range w.times(v) {
		s := math.Sqrt(dot(u, u))
		if s > 0 {
			scale(u, 1/s)
		}
		t.s, t.u, t.v = append(t.s, s), append(t.u, u), append(t.v, v[i])
	}
	return t
}

// randomised returns r singular triplets of w restricted to a random subspace that power iterations turn towards the
// leading ones (Halko, Martinsson and Tropp 2011), without further vectors: torch.svd_lowrank with q = r, whose random
// numbers are others. normal returns numbers of the standard normal distribution.
func randomised(w matrix, r, iterations int, normal func() float64) (triplets, error) {
	if r < 1 || r > min(w.rows, w.cols) {
		return triplets{}, fmt.Errorf("a matrix of %d x %d has no %d singular values", w.rows, w.cols, r)
	}
	if w.rows < w.cols { // torch decomposes the transpose
		t, err := randomised(w.transposed(), r, iterations, normal)
		t.u, t.v = t.v, t.u
		return t, err
	}
	start := make(block, r) // [r][Cols]; drawn as torch draws [Cols,r]
	for i := range start {
		start[i] = make([]float64, w.cols)
	}
	for j := range w.cols {
		for i := range start {
			start[i][j] = normal()
		}
	}
	q := span(w.times(start))
	for range iterations {
		q = span(w.times(span(w.transposedTimes(q))))
	}
	// The r x Cols matrix QᵀW has the decomposition of its Gram matrix.
	small := w.transposedTimes(q) // [r][Cols]
	h := make([][]float64, r)
	for i := range h {
		h[i] = make([]float64, r)
		for j := range h[i] {
			h[i][j] = dot(small[i], small[j])
		}
	}
	_, vectors := symmetricEigen(h)
	t := triplets{}
	for _, y := range vectors {
		u, v := make([]float64, w.rows), make([]float64, w.cols)
		for k := range y {
			axpy(u, y[k], q[k])
			axpy(v, y[k], small[k])
		}
		s := math.Sqrt(dot(v, v))
		if s > 0 {
			scale(v, 1/s)
		}
		t.s, t.u, t.v = append(t.s, s), append(t.u, u), append(t.v, v)
	}
	return t, nil
}

// span returns an orthonormal basis of what vectors span, completed to as many with zero vectors: a weight of lower rank
// than the adapter has no further directions.
func span(vectors block) block {
	q, _ := orthonormalised(nil, vectors)
	for len(q) < len(vectors) {
		q = append(q, make([]float64, len(vectors[0])))
	}
	return q
}

// orthonormalised makes vectors orthonormal and orthogonal to an orthonormal basis, by Gram-Schmidt done twice, and drops
// those that depend on the others. rest[j] has the coordinates of the j-th vector in the result: what the basis lacks of it.
func orthonormalised(basis, vectors block) (q block, rest [][]float64) {
	rest = make([][]float64, len(vectors))
	for j, x := range vectors {
		length := math.Sqrt(dot(x, x))
		for range 2 {
			for _, b := range basis {
				axpy(x, -dot(b, x), b)
			}
		}
		rest[j] = make([]float64, len(q), len(vectors))
		for range 2 {
			for k, b := range q {
				c := dot(b, x)
				rest[j][k] += c
				axpy(x, -c, b)
			}
		}
		if left := math.Sqrt(dot(x, x)); left > independent*length {
			scale(x, 1/left)
			q, rest[j] = append(q, x), append(rest[j], left)
		}
	}
	for j := range rest {
		rest[j] = append(rest[j], make([]float64, len(q)-len(rest[j]))...)
	}
	return q, rest
}

// gram returns WᵀW x of every vector x.
func (w matrix) gram(x block) block { return w.passes(x, true, true) }

// times returns W x of every vector x.
func (w matrix) times(x block) block { return w.passes(x, true, false) }

// transposedTimes returns Wᵀ x of every vector x.
func (w matrix) transposedTimes(x block) block { return w.passes(x, false, true) }

// passes multiplies vectors by W where right is true, and what comes of it by Wᵀ where left is true, in one pass over W.
func (w matrix) passes(x block, right, left bool) block {
	n := len(x)
	var in, rows, out []float64 // [Cols,n], [Rows,n], [Cols,n]: the vectors lie side by side
	if right {
		in, rows = x.interleaved(), make([]float64, w.rows*n)
	} else {
		rows = x.interleaved()
	}
	if left {
		out = make([]float64, w.cols*n)
	}
	for i := range w.rows {
		own := rows[i*n : (i+1)*n]
		row := w.data[i*w.cols : (i+1)*w.cols]
		if right {
			for j, a := range row {
				axpy(own, float64(a), in[j*n:(j+1)*n])
			}
		}
		if left {
			for j, a := range row {
				axpy(out[j*n:(j+1)*n], float64(a), own)
			}
		}
	}
	if left {
		return separated(out, n)
	}
	return separated(rows, n)
}

// interleaved puts vectors side by side: element i of all of them, then element i+1.
func (b block) interleaved() []float64 {
	n := len(b)
	all := make([]float64, n*len(b[0]))
	for k, x := range b {
		for i, v := range x {
			all[i*n+k] = v
		}
	}
	return all
}

// separated undoes interleaved.
func separated(all []float64, n int) block {
	b := make(block, n)
	for k := range b {
		b[k] = make([]float64, len(all)/n)
		for i := range b[k] {
			b[k][i] = all[i*n+k]
		}
	}
	return b
}

// transposed returns Wᵀ.
func (w matrix) transposed() matrix {
	t := matrix{w.cols, w.rows, make([]float32, len(w.data))}
	for i := range w.rows {
		for j := range w.cols {
			t.data[j*w.rows+i] = w.data[i*w.cols+j]
		}
	}
	return t
}

// dot returns the inner product of two vectors of one length.
func dot(x, y []float64) float64 {
	var s0, s1, s2, s3 float64
	y = y[:len(x)]
	i := 0
	for ; i+4 <= len(x); i += 4 {
		s0 += float64(x[i] * y[i])
		s1 += float64(x[i+1] * y[i+1])
		s2 += float64(x[i+2] * y[i+2])
		s3 += float64(x[i+3] * y[i+3])
	}
	for ; i < len(x); i++ {
		s0 += float64(x[i] * y[i])
	}
	return s0 + s1 + s2 + s3
}

// axpy adds a times y to x.
func axpy(x []float64, a float64, y []float64) {
	x = x[:len(y)]
	for i, v := range y {
		x[i] += float64(a * v)
	}
}

// scale multiplies a vector.
func scale(x []float64, by float64) {
	for i := range x {
		x[i] *= by
	}
}

// symmetricEigen returns the eigenvalues of a symmetric matrix, the largest first, and their unit eigenvectors:
// Householder reflections make the matrix tridiagonal, and QL steps with implicit shifts make it diagonal (Golub and
// Van Loan, Matrix Computations, section 8.3). h is not changed.
func symmetricEigen(h [][]float64) (values []float64, vectors [][]float64) {
	n := len(h)
	a := make([][]float64, n)
	for i := range a {
		a[i] = slices.Clone(h[i])
	}
	diagonal, off, q := tridiagonal(a)
	diagonalise(diagonal, off, q)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case diagonal[i] > diagonal[j]:
			return -1
		case diagonal[i] < diagonal[j]:
			return 1
		}
		return 0
	})
	for _, i := range order {
		values, vectors = append(values, diagonal[i]), append(vectors, q[i])
	}
	return values, vectors
}

// tridiagonal reduces a symmetric matrix, which it overwrites, to QᵀAQ with a diagonal and the elements beside it, off[i]
// between i and i+1. q[i] is the i-th column of Q.
func tridiagonal(a [][]float64) (diagonal, off []float64, q [][]float64) {
	n := len(a)
	diagonal, off = make([]float64, n), make([]float64, n)
	reflections := make([][]float64, 0, n) // the k-th is a unit vector that is zero up to element k
	p := make([]float64, n)
	for k := 0; k+2 < n; k++ {
		v := make([]float64, n)
		copy(v[k+1:], a[k][k+1:])
		length := math.Sqrt(dot(v, v))
		off[k] = -math.Copysign(length, v[k+1])
		v[k+1] -= off[k]
		reflections = append(reflections, v)
		if rest := math.Sqrt(dot(v, v)); rest > 0 {
			scale(v, 1/rest)
		} else {
			off[k] = 0
			continue // the row is zero already
		}
		for i := k + 1; i < n; i++ {
			p[i] = dot(a[i][k+1:], v[k+1:])
		}
		c := dot(p[k+1:], v[k+1:])
		for i := k + 1; i < n; i++ {
			p[i] = 2 * (p[i] - float64(c*v[i]))
		}
		for i := k + 1; i < n; i++ {
			axpy(a[i][k+1:], -v[i], p[k+1:])
			axpy(a[i][k+1:], -p[i], v[k+1:])
		}
	}
	if n > 1 {
		off[n-2] = a[n-2][n-1]
	}
	q = make([][]float64, n)
	for i := range q {
		diagonal[i] = a[i][i]
		q[i] = make([]float64, n)
		q[i][i] = 1
		for k := len(reflections) - 1; k >= 0; k-- {
			v := reflections[k]
			axpy(q[i][k+1:], -2*dot(v[k+1:], q[i][k+1:]), v[k+1:])
		}
	}
	return diagonal, off, q
}

// qlSteps bounds the steps that one eigenvalue takes; two or three are usual.
const qlSteps = 60

// diagonalise turns a tridiagonal matrix into its eigenvalues, in diagonal, and q's vectors with it.
func diagonalise(diagonal, off []float64, q [][]float64) {
	n := len(diagonal)
	for l := range n {
		for range qlSteps {
			m := l // the first element below l beside which the matrix falls apart
			for m+1 < n {
				size := math.Abs(diagonal[m]) + math.Abs(diagonal[m+1])
				if math.Abs(off[m]) <= 0x1p-53*size {
					break
				}
				m++
			}
			if m == l {
				break
			}
			qlStep(diagonal, off, q, l, m)
		}
	}
}

// qlStep is one implicit QL step on elements l to m, shifted by the eigenvalue of the first 2 x 2 that is nearer to its
// first element.
func qlStep(diagonal, off []float64, q [][]float64, l, m int) {
	g := (diagonal[l+1] - diagonal[l]) / (2 * off[l])
	shift := diagonal[l] - off[l]/(g+math.Copysign(math.Hypot(g, 1), g))
	g = diagonal[m] - shift
	sin, cos, p := 1.0, 1.0, 0.0
	for i := m - 1; i >= l; i-- {
		f, b := float64(sin*off[i]), float64(cos*off[i])
		r := math.Hypot(f, g)
		off[i+1] = r
		if r == 0 { // the matrix falls apart here
			diagonal[i+1] -= p
			off[m] = 0
			return
		}
		sin, cos = f/r, g/r
		g = diagonal[i+1] - p
		t := float64((diagonal[i]-g)*sin) + 2*float64(cos*b)
		p = sin * t
		diagonal[i+1] = g + p
		g = float64(cos*t) - b
		x, y := q[i], q[i+1]
		for k := range x {
			above, below := x[k], y[k]
			y[k] = float64(sin*above) + float64(cos*below)
			x[k] = float64(cos*above) - float64(sin*below)
		}
	}
	diagonal[l] -= p
	off[l] = g
	off[m] = 0
}
