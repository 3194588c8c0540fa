package cuda

import "fmt"

// SkinnyRows is the most rows that the skinny_* kernels multiply.
const SkinnyRows = 64

// FitsSkinny tells whether the skinny_* kernels take a GEMM of M rows and depth K in 16 bits; of W in 4-bit codes,
// packed.
func FitsSkinny(M, K int, packed bool) bool {
	unit := 8
	if packed {
		unit = 64
	}
	return M > 0 && M <= SkinnyRows && K > 0 && K%unit == 0
}

// Skinny returns the geometry of the skinny_* kernels for D [M,N]: kind is "skinny", "skinny_nf4" or
// "skinny_nf4_nested". The order in which a row's numbers are added depends on K alone.
func Skinny(kind string, M, N int) Geometry {
	tiles := 1
	for tiles*8 < M && tiles < 4 {
		tiles *= 2
	}
	return Geometry{"skinny", fmt.Sprintf("%s_%d", kind, tiles), [3]int{ceil(N, 16), ceil(M, 8*tiles), 1},
		[3]int{512, 1, 1}, 0}
}

// SkinnyAny returns the geometry of skinny_any, for the depths and element types that the others do not take.
func SkinnyAny(N int) Geometry {
	return Geometry{"skinny_any", "skinny_any", [3]int{ceil(N, 8), 1, 1}, [3]int{256, 1, 1}, 0}
}

// RowFactors returns the geometry of row_factors over M rows of C.
func RowFactors(M, C int) Geometry {
	return Geometry{"row_factors", "row_factors", [3]int{M, 1, 1}, [3]int{min(256, max(32, ceil(C, 32)*32)), 1, 1}, 0}
}

// SkinnySeveral returns the geometry of the skinny_each_* kernels for D_i [M,N_i], or of skinny_gated_*, whose two
// weights are [N_0,K]: kind is such as "skinny_each_nf4".
func SkinnySeveral(kind string, M int, N []int, gated bool) Geometry {
	g := Skinny(kind, M, N[0])
	g.Stem = "skinny_several"
	for _, n := range N[1:] {
		g.Grid[0] += ceil(n, 16)
	}
	if gated {
		g.Grid[0] = ceil(N[0], 8)
	}
	return g
}

// Draw returns the geometry of draw_rows over M rows.
func Draw(M int) Geometry {
	return Geometry{"draw", "draw_rows", [3]int{M, 1, 1}, [3]int{512, 1, 1}, 0}
}

// Likeliest returns the geometry of likeliest_rows over M rows.
func Likeliest(M int) Geometry {
	return Geometry{"likeliest", "likeliest_rows", [3]int{M, 1, 1}, [3]int{1024, 1, 1}, 0}
}
