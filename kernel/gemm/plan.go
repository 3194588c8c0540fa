package gemm

// kcMax is the depth of a block: a tile's rows of A then stay in the first
// cache and a chunk of B in the second. Blocks end on multiples of 64, where
// quantised weights do.
const kcMax = 384

// ncMax is the columns of a chunk of B.
const ncMax = 256

// narrow is the columns up to which the transposed GEMM is computed instead,
// if it has more columns: a tile would be mostly empty.
const narrow = 16

// serialWork is the multiply-adds below which waking a worker costs more than
// it saves.
const serialWork = 1 << 18

// skinnySerialWork is that of a GEMM of few rows, which is bound by reading B: a core reads no more than half of what
// memory gives.
const skinnySerialWork = 1 << 15

// job is one GEMM, cut into tasks that may run in any order.
type job[T Float] struct {
	problem[T]
	kern  *kernel[T]
	do    func(own *Pool, i int)
	tasks int

	kc       int  // depth of a block
	chunk    int  // columns of a task
	rows     int  // rows of a task
	chunks   int  // tasks along n
	skinny   bool // few rows: by dot products or by rows of B
	directB  bool // B is read where it lies
	flip     bool // C = (op(B)ᵀ op(A)ᵀ)ᵀ: tiles are written transposed
	slivers  int
	rowTiles int
}

// prepare binds the jobs' methods once, so that a call allocates nothing.
func (p *Pool) prepare() {
	p.job32.kern, p.job64.kern = chosen, kernel64(chosen)
	p.job32.do, p.job64.do = p.job32.task, p.job64.task
}

func ceil(a, b int) int { return (a + b - 1) / b }

// plan cuts the GEMM for a number of workers. Only kc reaches the numbers,
// and it depends on k alone.
func (j *job[T]) plan(workers int) {
	if j.alpha == 0 {
		j.k = 0
	}
	blocks := max(1, ceil(j.k, kcMax))
	j.kc = max(64, ceil(ceil(j.k, blocks), 64)*64)
	mr, nr := j.kern.mr, j.kern.nr
	j.skinny = !j.tiles && !j.transA && j.m <= skinnyRows
	least := serialWork
	if j.skinny {
		least = skinnySerialWork
	}
	if j.m*j.n*j.k < least {
		workers = 1
	}
	j.flip = !j.skinny && j.dec == nil && j.n <= min(narrow, nr-1) && j.m >= 4*j.n
	if j.flip {
		j.m, j.n = j.n, j.m
		j.a, j.b, j.lda, j.ldb = j.b, j.a, j.ldb, j.lda
		j.transA, j.transB = !j.transB, !j.transA
	}
	if j.skinny {
		nr = thinUnit
	}
	j.rowTiles, j.slivers = ceil(j.m, mr), ceil(j.n, nr)
	// Reading B in place twice pays only while its rows are short: strips of wide
	// rows fall on the same cache sets.
	j.directB = j.dec == nil && !j.transB && (j.rowTiles == 1 || j.rowTiles == 2 && j.ldb < 1024)

	most := ncMax / nr // slivers in a chunk
	if j.skinny {
		most = skinnyColumns / nr
	}
	tiles := j.rowTiles
	chunk := most
	switch {
	case workers == 1:
		chunk = min(chunk, j.slivers)
	// workers end within a quarter of each other
	case 4*workers*ceil(j.slivers, workers) <= 5*j.slivers || j.rowTiles < workers:
		chunk = evenChunk(j.slivers, most, workers)
	default:
		chunk = min(chunk, j.slivers)
		tiles = ceil(j.rowTiles, 2*workers)
	}
	j.chunk, j.rows = chunk*nr, tiles*mr
	j.chunks = ceil(j.n, j.chunk)
	j.tasks = j.chunks * ceil(j.m, j.rows)
}

// evenChunk returns the size of a task, in slivers, with which the workers finish
// first; of equals the largest.
func evenChunk(slivers, most, workers int) int {
	best := min(most, slivers)
	longest := ceil(ceil(slivers, best), workers) * best
	for chunk := best - 1; chunk > 0; chunk-- {
		if t := ceil(ceil(slivers, chunk), workers) * chunk; t < longest {
			best, longest = chunk, t
		}
	}
	return best
}

// task does one chunk of columns for one range of rows.
func (j *job[T]) task(own *Pool, i int) {
	j0, i0 := i%j.chunks*j.chunk, i/j.chunks*j.rows
	nc, mc := min(j.chunk, j.n-j0), min(j.rows, j.m-i0)
	s := spaceOf[T](own.space)
	j.scale(i0, mc, j0, nc)
	switch {
	case j.k == 0:
	case j.skinny && j.transB:
		j.dots(s, j0, nc)
	case j.skinny:
		j.sums(s, j0, nc)
	default:
		j.blocks(s, i0, mc, j0, nc)
	}
}

// scale multiplies a part of C by beta, where the first block will not.
func (j *job[T]) scale(i0, mc, j0, nc int) {
	if j.beta == 1 || j.beta == 0 && j.k > 0 {
		return
	}
	if j.flip {
		i0, mc, j0, nc = j0, nc, i0, mc
	}
	for i := i0; i < i0+mc; i++ {
		row := j.c[i*j.ldc+j0:][:nc]
		if j.beta == 0 {
			clear(row)
			continue
		}
		for x := range row {
			row[x] *= j.beta
		}
	}
}

// blocks is the blocked GEMM of one task: for each depth block, B's chunk
// is packed once, then every tile of rows meets every sliver of columns.
func (j *job[T]) blocks(s *space[T], i0, mc, j0, nc int) {
	mr, nr := j.kern.mr, j.kern.nr
	for k0 := 0; k0 < j.k; k0 += j.kc {
		kc := min(j.kc, j.k-k0)
		add := k0 > 0 || j.beta != 0
		j.packB(s, k0, kc, j0, nc)
		for i := i0; i < i0+mc; i += mr {
			rows := min(mr, i0+mc-i)
			a, ars, acs := j.packA(s, i, rows, k0, kc)
			for x := 0; x < nc; x += nr {
				cols := min(nr, nc-x)
				b, bs := s.b[x*kc:], nr
				if j.directB && cols == nr {
					b, bs = j.b[k0*j.ldb+j0+x:], j.ldb
				}
				if j.flip {
					j.kern.tile(s, rows, cols, kc, j.alpha, a, ars, acs, b, bs, s.flip, nr, false)
					j.putFlipped(s, i, rows, j0+x, cols, add)
					continue
				}
				j.kern.tile(s, rows, cols, kc, j.alpha, a, ars, acs, b, bs, j.c[i*j.ldc+j0+x:], j.ldc, add)
			}
		}
	}
}

// putFlipped moves a tile to its place in a transposed C.
func (j *job[T]) putFlipped(s *space[T], i, rows, j0, cols int, add bool) {
	nr := j.kern.nr
	for x := range cols {
		c := j.c[(j0+x)*j.ldc+i:][:rows]
		for r := range c {
			put(&c[r], s.flip[r*nr+x], add)
		}
	}
}
