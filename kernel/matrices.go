package kernel

import (
	"fmt"
	"math"
)

// Matrix is where a trained matrix lies in a vector of trained numbers: row by row from element From on. Cols = 0 marks
// a tensor that is no matrix, of Rows elements.
type Matrix struct{ From, Rows, Cols int }

// Elems returns the number of elements.
func (m Matrix) Elems() int { return m.Rows * max(m.Cols, 1) }

// small and large return the shorter and the longer side.
func (m Matrix) small() int { return min(m.Rows, m.Cols) }
func (m Matrix) large() int { return max(m.Rows, m.Cols) }

// MatrixColumns is the number of columns of the table that kernels over matrices read on a device: From, Rows, Cols,
// and two places in memory of the kernel's own.
const MatrixColumns = 5

// MatrixTable writes the table of matrices. places says how many elements a matrix takes of two arrays, in which the
// matrices follow one another.
func MatrixTable(dst []int32, all []Matrix, places func(Matrix) (int, int)) {
	at1, at2 := 0, 0
	for i, m := range all {
		row := dst[i*MatrixColumns:][:MatrixColumns]
		for j, v := range []int{m.From, m.Rows, m.Cols, at1, at2} {
			row[j] = int32(uint32(v))
		}
		one, two := places(m)
		at1, at2 = at1+one, at2+two
	}
}

// placesOf returns the sizes of both arrays.
func placesOf(all []Matrix, places func(Matrix) (int, int)) (int, int) {
	at1, at2 := 0, 0
	for _, m := range all {
		one, two := places(m)
		at1, at2 = at1+one, at2+two
	}
	return at1, at2
}

// checkMatrices reports a matrix that does not lie within elems elements, and more elements than a table counts.
func checkMatrices(all []Matrix, elems int) error {
	if len(all) == 0 {
		return fmt.Errorf("there is no matrix")
	}
	if int64(elems) > math.MaxUint32 {
		return fmt.Errorf("%d trained numbers are more than the %d that a table of matrices counts", elems,
			uint32(math.MaxUint32))
	}
	for i, m := range all {
		if m.From < 0 || m.Rows < 1 || m.Cols < 0 || m.From+m.Elems() > elems {
			return fmt.Errorf("matrix %d, %+v, does not lie in %d elements", i, m, elems)
		}
	}
	return nil
}
