package kernel

import (
	"fmt"
	"math"
)

// Muon is one step of Muon (Jordan et al. 2024) over matrices, in the order of torch's Muon: momentum, five
// Newton-Schulz iterations that bring the update near an orthogonal matrix, decoupled weight decay.
//
//	p, g, b f[P]; table i32[N,5] of Matrices with MuonPlaces; clip f[2] as GradNorm gives it;
//	hyper f[H], the learning rate lr first; (scaling if Scaled)
//	d = g clip[1];  b' = Momentum b + (1-Momentum) d
//	u = b', or (1-Momentum) d + Momentum b' with Nesterov; X = u, transposed if it has more rows than columns
//	X = X / max(|X|, 1e-7); five times G = X Xᵀ, X = 3.4445 X + (-4.775 G + 2.0315 G G) X
//	p' = p (1 - lr WeightDecay) - lr s X;  s = sqrt(max(1, rows/cols)), or 0.2 sqrt(max(rows, cols)) with MatchRMS
//
// Elements outside of Matrices keep their values. In float32, X, G and what is computed from them are rounded to
// bfloat16 where torch rounds; in float64 nothing is rounded. Outputs p' and b' are in the memory of p and b. If
// clip[1]
// is not a number nothing changes.
type Muon struct {
	Matrices           []Matrix
	Momentum           float64
	WeightDecay        float64
	Nesterov, MatchRMS bool
	Scaled             bool
}

// Coefficients and number of the Newton-Schulz iterations of torch's Muon.
const (
	schulzA, schulzB, schulzC = 3.4445, -4.7750, 2.0315
	schulzSteps               = 5
	schulzLeast               = 1e-7 // least norm that a matrix is divided by
)

func (Muon) Name() string { return "muon" }

// Shape returns the types of p' and b'.
func (k Muon) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, withScaling(k.Scaled, "f[P]", "f[P]", "f[P]", "i32[N,5]", "f[2]", "f[H]")...)
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 2, 4, 5, len(in)-1); err != nil {
		return nil, err
	}
	if len(k.Matrices) != d.At('N') {
		return nil, fmt.Errorf("a table of %d rows for %d matrices", d.At('N'), len(k.Matrices))
	}
	for i, m := range k.Matrices {
		if m.Cols < 1 {
			return nil, fmt.Errorf("matrix %d, %+v, is a vector: Muon updates matrices", i, m)
		}
	}
	if err := checkMatrices(k.Matrices, d.At('P')); err != nil {
		return nil, err
	}
	return []Type{in[0], in[2]}, nil
}

func (Muon) Overwrites() []Alias { return []Alias{{0, 0}, {1, 2}} }

// MuonPlaces returns the elements of scratch memory that a matrix takes: one X, and one G.
func MuonPlaces(m Matrix) (x, gram int) {
	return (m.Elems() + 7) &^ 7, (m.small()*m.small() + 7) &^ 7
}

// Scratch returns the bytes of two X and two G of each matrix.
func (k Muon) Scratch(in []Type, _ int) int64 {
	x, gram := placesOf(k.Matrices, MuonPlaces)
	return int64(2*(x+gram)) * int64(in[0].DType.Size())
}

// ScratchGPU returns the bytes of two X and two G of each matrix in bf16.
func (k Muon) ScratchGPU([]Type, []Type, int) int64 {
	x, gram := placesOf(k.Matrices, MuonPlaces)
	return int64(2*(x+gram)) * 2
}

func (k Muon) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], muon[float32], muon[float64])(k, c, in, out)
}

func muon[F Float](k Muon, c *CPU, in, out []Tensor) func() {
	g, clip, hyper, p, b := Floats[F](in[1]), Floats[F](in[4]), Floats[F](in[5]), Floats[F](out[0]), Floats[F](out[1])
	x, gram := placesOf(k.Matrices, MuonPlaces)
	work := Floats[F](NewTensor(T(in[0].DType, 2*(x+gram)), c.Scratch))
	of := make([]schulz[F], len(k.Matrices))
	atX, atG := 0, 2*x
	for i, m := range k.Matrices {
		nx, ng := MuonPlaces(m)
		of[i] = schulz[F]{rows: m.small(), cols: m.large(), x: work[atX:][:m.Elems()], y: work[x+atX:][:m.Elems()],
			gram: work[atG:][:m.small()*m.small()], update: work[gram+atG:][:m.small()*m.small()], round: rounder[F]()}
		atX, atG = atX+nx, atG+ng
	}
	mu, toGrad := F(k.Momentum), F(1-k.Momentum)
	return c.Range(len(k.Matrices), 1, func(lo, hi int) {
		factor, lr := clip[1], float64(hyper[0])
		if math.IsNaN(float64(factor)) {
			return
		}
		keep := F(1 - lr*k.WeightDecay)
		for i := lo; i < hi; i++ {
			m, s := k.Matrices[i], of[i]
			p, g, b := p[m.From:][:m.Elems()], g[m.From:][:m.Elems()], b[m.From:][:m.Elems()]
			for j := range p {
				d := F(g[j] * factor)
				b[j] = F(mu*b[j]) + F(toGrad*d)
				u := b[j]
				if k.Nesterov {
					u = F(toGrad*d) + F(mu*u)
				}
				s.x[m.place(j)] = s.round(u)
			}
			s.orthogonal()
			size := F(lr * k.scale(m))
			for j := range p {
				p[j] = F(p[j]*keep) - F(size*s.x[m.place(j)])
			}
		}
	})
}

// scale returns what the learning rate of a matrix is multiplied by.
func (k Muon) scale(m Matrix) float64 {
	if k.MatchRMS {
		return 0.2 * math.Sqrt(float64(m.large()))
	}
	return math.Sqrt(max(1, float64(m.Rows)/float64(m.Cols)))
}

// place returns where X, whose rows are the shorter side, has the matrix's element j.
func (m Matrix) place(j int) int {
	if m.Rows <= m.Cols {
		return j
	}
	return j%m.Cols*m.Rows + j/m.Cols
}

// rounder rounds to the nearest bfloat16 in float32, and not at all in float64.
func rounder[F Float]() func(F) F {
	if _, wide := any(F(0)).(float64); wide {
		return func(x F) F { return x }
	}
	return func(x F) F { return F(FromBF16(ToBF16(float32(x)))) }
}

// schulz is the memory of the Newton-Schulz iterations of one matrix x [rows,cols], rows <= cols.
type schulz[F Float] struct {
	rows, cols         int
	x, y, gram, update []F
	round              func(F) F
}

// orthogonal replaces x by what five iterations make of it.
func (s *schulz[F]) orthogonal() {
	sum := F(0)
	for _, v := range s.x {
		sum += F(v * v)
	}
	norm := s.round(F(max(float64(s.round(F(math.Sqrt(float64(sum))))), schulzLeast)))
	for i, v := range s.x {
		s.x[i] = s.round(v / norm)
	}
	for range schulzSteps {
		s.iterate()
	}
}

// iterate is one iteration: y gets the new x, and both change places.
func (s *schulz[F]) iterate() {
	n, cols := s.rows, s.cols
	for i := range n {
		for j := range i + 1 {
			dot, other := F(0), s.x[j*cols:][:cols]
			for k, v := range s.x[i*cols:][:cols] {
				dot += F(v * other[k])
			}
			s.gram[i*n+j] = s.round(dot)
			s.gram[j*n+i] = s.gram[i*n+j]
		}
	}
	for i := range n {
		row := s.gram[i*n:][:n]
		for j := range n {
			dot, other := F(0), s.gram[j*n:][:n] // the matrix is symmetric
			for k, v := range row {
				dot += F(v * other[k])
			}
			s.update[i*n+j] = s.round(F(schulzB*row[j]) + F(schulzC*dot))
		}
	}
	for i := range n {
		to := s.y[i*cols:][:cols]
		clear(to)
		for j, w := range s.update[i*n:][:n] {
			for k, v := range s.x[j*cols:][:cols] {
				to[k] += F(w * v)
			}
		}
		for k, v := range s.x[i*cols:][:cols] {
			to[k] = s.round(F(schulzA*v) + to[k])
		}
	}
	s.x, s.y = s.y, s.x
}

// Cost counts the products of the iterations besides what the step reads and writes.
func (k Muon) Cost(in, out []Type, _ Content) Cost {
	c := pointwise(in, out, in[0], 12)
	for _, m := range k.Matrices {
		n, elems := int64(m.small()), int64(m.Elems())
		c.FLOPs += schulzSteps * (4*n*elems + 2*n*n*n)
	}
	return c
}

// Stored returns fp32 for all tensors but the table.
func (k Muon) Stored([]DType) (want, out []DType) {
	return storedScaling(k.Scaled, F32, F32, F32, I32, F32, F32), []DType{F32, F32}
}
