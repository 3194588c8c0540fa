package gemm

// scratch is one worker's memory. That of float64 GEMMs, which serve
// gradient checks, is allocated at the first of them.
type scratch struct {
	f32 *space[float32]
	f64 *space[float64]
}

// space holds the packed operands of one worker.
type space[T Float] struct {
	a    []T // a tile of A's rows, one block deep
	b    []T // a chunk of B: slivers [kc,nr]
	rows []T // dequantised rows, before they are packed
	tile []T // a tile of C that reaches over an edge
	flip []T // a tile of a transposed C

}

const maxMR, maxNR = 16, 32

func newSpace[T Float]() *space[T] {
	return &space[T]{
		a:    make([]T, maxMR*kcMax),
		b:    make([]T, kcMax*ncMax),
		rows: make([]T, maxNR*kcMax),
		tile: make([]T, maxMR*maxNR),
		flip: make([]T, maxMR*maxNR),
	}
}

func newScratch() *scratch { return &scratch{f32: newSpace[float32]()} }

func (s *scratch) bytes() int64 {
	n := int64(0)
	if s.f32 != nil {
		n += 4 * int64(len(s.f32.a)+len(s.f32.b)+len(s.f32.rows)+len(s.f32.tile)+len(s.f32.flip))
	}
	if s.f64 != nil {
		n += 8 * int64(len(s.f64.a)+len(s.f64.b)+len(s.f64.rows)+len(s.f64.tile)+len(s.f64.flip))
	}
	return n
}

func spaceOf[T Float](s *scratch) *space[T] {
	switch any(T(0)).(type) {
	case float32:
		return any(s.f32).(*space[T])
	default:
		if s.f64 == nil {
			s.f64 = newSpace[float64]()
		}
		return any(s.f64).(*space[T])
	}
}

// packA returns rows [i,i+rows) of op(A), block k0: values at
// row*ars + depth*acs. It copies them only where they would fall on the same
// cache sets and be read often.
func (j *job[T]) packA(s *space[T], i, rows, k0, kc int) (a []T, ars, acs int) {
	spread := j.lda%1024 != 0
	if j.transA {
		if spread || j.slivers <= 8 {
			return j.a[k0*j.lda+i:], 1, j.lda
		}
		mr := j.kern.mr
		for k := range kc {
			copy(s.a[k*mr:][:rows], j.a[(k0+k)*j.lda+i:])
		}
		return s.a, 1, mr
	}
	if spread {
		return j.a[i*j.lda+k0:], j.lda, 1
	}
	for r := range rows {
		copy(s.a[r*kc:][:kc], j.a[(i+r)*j.lda+k0:])
	}
	return s.a, kc, 1
}

// packB writes columns [j0,j0+nc) of op(B), block k0, as slivers of nr columns,
// each [kc,nr], the missing columns of the last one zero.
func (j *job[T]) packB(s *space[T], k0, kc, j0, nc int) {
	nr := j.kern.nr
	if !j.transB && !j.directB {
		j.packWide(s, k0, kc, j0, nc)
		return
	}
	for x := 0; x < nc; x += nr {
		cols := min(nr, nc-x)
		dst := s.b[x*kc:][:kc*nr]
		switch {
		case j.directB && cols == nr:
		case !j.transB:
			j.kern.packCols(dst, nr, j.b[k0*j.ldb+j0+x:], j.ldb, cols, kc)
		case j.dec == nil:
			j.kern.packRows(dst, nr, j.b[(j0+x)*j.ldb+k0:], j.ldb, cols, kc)
		default:
			for r := range cols {
				j.dequantise(s.rows[r*kc:][:kc], (j0+x+r)*j.ldb+k0)
			}
			j.kern.packRows(dst, nr, s.rows, kc, cols, kc)
		}
	}
}

// packWide is packB for a stored [k,n]: a few rows at a time over the whole
// width of the chunk, because short pieces are dequantised slowly and jump in memory.
func (j *job[T]) packWide(s *space[T], k0, kc, j0, nc int) {
	const batch = 16
	nr := j.kern.nr
	for k := 0; k < kc; k += batch {
		depth := min(batch, kc-k)
		src, stride := s.rows, nc
		if j.dec == nil {
			src, stride = j.b[(k0+k)*j.ldb+j0:], j.ldb
		} else {
			for r := range depth {
				j.dequantise(s.rows[r*nc:][:nc], (k0+k+r)*j.ldb+j0)
			}
		}
		for x := 0; x < nc; x += nr {
			j.kern.packCols(s.b[x*kc+k*nr:][:depth*nr], nr, src[x:], stride, min(nr, nc-x), depth)
		}
	}
}

// dequantise writes the packed values from on to dst.
func (j *job[T]) dequantise(dst []T, from int) {
	d := as[float32](dst)
	j.dec.DequantiseRange(d, from, from+len(d))
}

// packRows transposes rows of src, each kc long, into dst [kc,nr].
func packRows[T Float](dst []T, nr int, src []T, stride, rows, kc int) {
	for r := range nr {
		if r >= rows {
			for k := range kc {
				dst[k*nr+r] = 0
			}
			continue
		}
		for k, v := range src[r*stride:][:kc] {
			dst[k*nr+r] = v
		}
	}
}

// packCols copies kc rows of src, each cols wide, into dst [kc,nr].
func packCols[T Float](dst []T, nr int, src []T, stride, cols, kc int) {
	for k := range kc {
		row := dst[k*nr:][:nr]
		copy(row, src[k*stride:][:cols])
		clear(row[cols:])
	}
}
