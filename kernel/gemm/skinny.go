package gemm

// skinnyRows is the rows up to which B is not packed: that would cost more than
// the GEMM, which then is bound by reading B.
const skinnyRows = 4

// skinnyColumns is the most columns of a task of such a GEMM.
const skinnyColumns = 1024

// thinUnit divides a task's columns: what is left over at the end of a row is
// summed in another way, so it must lie at C's edge whatever the tasks.
const thinUnit = 32

// dotRows is the rows of B that meet a row of A at once.
const dotRows = 4

// skinnyDepth is the depth at which a dot product is cut, so that a dequantised row
// fits the scratch memory.
const skinnyDepth = 4096

// sumDepth is the rows of B that are added up at a time.
const sumDepth = 8

// dots computes columns [j0,j0+nc) as dot products of A's rows and the stored
// rows of a transposed B, dotRows of them at a time. j0 is a multiple of that.
func (j *job[T]) dots(s *space[T], j0, nc int) {
	halves, _ := j.dec.(*Halves)
	for col := j0; col < j0+nc; col += dotRows {
		rows := min(dotRows, j0+nc-col)
		for k0 := 0; k0 < j.k; k0 += skinnyDepth {
			kc := min(skinnyDepth, j.k-k0)
			if halves != nil && j.kern.dot16 != nil && rows == dotRows && kc >= 16 {
				for i := range j.m {
					j.kern.dot16(s.tile[:rows], j.a[i*j.lda+k0:][:kc], halves.Bits[col*j.ldb+k0:], j.ldb, halves.F16)
					j.putDots(s, i, col, rows, k0)
				}
				continue
			}
			var b []T
			stride := j.ldb
			if j.dec != nil {
				b, stride = s.b, kc
				for r := range rows {
					j.dequantise(b[r*kc:][:kc], (col+r)*j.ldb+k0)
				}
			} else {
				b = j.b[col*j.ldb+k0:]
			}
			for i := range j.m {
				j.kern.dot(s.tile[:rows], j.a[i*j.lda+k0:][:kc], b, stride)
				j.putDots(s, i, col, rows, k0)
			}
		}
	}
}

// putDots moves row i's dot products with the rows of B from col on to C.
func (j *job[T]) putDots(s *space[T], i, col, rows, k0 int) {
	for r, v := range s.tile[:rows] {
		put(&j.c[i*j.ldc+col+r], T(j.alpha*v), k0 > 0 || j.beta != 0)
	}
}

// sums computes columns [j0,j0+nc) as sums of the rows of B, each times a value
// of A, in ascending order.
func (j *job[T]) sums(s *space[T], j0, nc int) {
	sum := s.a[:j.m*nc]
	clear(sum)
	for k := 0; k < j.k; k += sumDepth {
		depth := min(sumDepth, j.k-k)
		var b []T
		stride := j.ldb
		if j.dec != nil {
			b, stride = s.rows, nc
			for r := range depth {
				j.dequantise(b[r*nc:][:nc], (k+r)*j.ldb+j0)
			}
		} else {
			b = j.b[k*j.ldb+j0:]
		}
		for i := range j.m {
			j.kern.sum(sum[i*nc:][:nc], j.a[i*j.lda+k:][:depth], b, stride)
		}
	}
	for i := range j.m {
		c := j.c[i*j.ldc+j0:][:nc]
		for x, v := range sum[i*nc:][:nc] {
			put(&c[x], T(j.alpha*v), j.beta != 0)
		}
	}
}
