package cuda

import (
	"fmt"
	"strings"
)

// SkinnyRows is the most rows that the skinny_* kernels multiply.
const SkinnyRows = 256

// skinnyTileFrom is the number of rows from which GEMMs of few rows run on skinny_tile_*: they read the rows once for
// 64 columns, where skinny_* reads them for 16.
const skinnyTileFrom = 17

// SkinnyTiled tells whether a GEMM of M rows that FitsSkinny takes runs on the skinny_tile_* kernels.
func SkinnyTiled(M int) bool { return M >= skinnyTileFrom }

// clusteredTiles is the number of tiles below which four blocks share one: more fill a device by themselves.
const clusteredTiles = 100

// SkinnyTile returns the geometry of the skinny_tile_* kernels for D_i [M,N_i], or of a gate and what it gates, both
// [N_0,K], on a device of compute capability sm. store is the weights': "", "_nf4" or "_nf4_nested". All forms give a
// row the bits that the skinny_* kernels give it.
func SkinnyTile(store string, M int, N []int, gated bool, sm int) Geometry {
	const columns, stages = 64, 3
	rows := 32
	for rows < M && rows < 128 {
		rows *= 2
	}
	if rows == 128 && (sm == 86 || sm == 89 || sm >= 120) { // 99 KB of shared memory a block
		rows = 64
	}
	weights, tiles, stem := 2*columns*128, 0, "skinny_tile" // bytes of a stage's weights, and of two tiles beside
	if store != "" {
		weights, tiles, stem = columns*128/2, 2*2*columns*128, "skinny_tile_nf4"
	}
	shared := stages*(2*128*rows+weights) + tiles
	tiles = 0
	for _, n := range N {
		tiles += ceil(n, columns)
	}
	if gated {
		tiles = ceil(N[0], columns/2)
	}
	g := Geometry{stem, fmt.Sprintf("skinny_tile%s_%d", store, rows), [3]int{tiles, ceil(M, rows), 1},
		[3]int{32 * max(4, rows/16), 1, 1}, shared}
	if sm >= 90 && tiles*g.Grid[1] < clusteredTiles {
		g.Entry = strings.Replace(g.Entry, fmt.Sprintf("_%d", rows), fmt.Sprintf("_cluster_%d", rows), 1)
		g.Grid[0] *= 4
	}
	return g
}

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
