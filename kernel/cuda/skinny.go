package cuda

import "fmt"

// SkinnyRows is the most rows that the skinny_* kernels multiply.
const SkinnyRows = 64

// FitsSkinny tells whether the skinny_* kernels take a GEMM of M rows and depth K in 16 bits; of W in 4-bit codes, packed.
func FitsSkinny(M, K int, packed bool) bool {
	unit := 8
	if packed {
		unit = 64
	}
	return M > 0 && M <= SkinnyRows && K > 0 && K%unit == 0
}

// Skinny is the geometry of the skinny_* kernels for D [M,N]: kind is "skinny", "skinny_nf4" or "skinny_nf4_nested". The grid depends on N
// alone, and so does the order in which a row's numbers are added.
func Skinny(kind string, M, N int) Geometry {
	tiles := 1
	for tiles*8 < M {
		tiles *= 2
	}
	return Geometry{"skinny", fmt.Sprintf("%s_%d", kind, tiles), [3]int{ceil(N, 16), 1, 1}, [3]int{256, 1, 1}, 0}
}

// RowFactors is the geometry of row_factors over M rows of C.
func RowFactors(M, C int) Geometry {
	return Geometry{"row_factors", "row_factors", [3]int{M, 1, 1}, [3]int{min(256, max(32, ceil(C, 32)*32)), 1, 1}, 0}
}
