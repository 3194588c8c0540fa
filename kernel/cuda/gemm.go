package cuda

import "fmt"

// GemmLayout says which operands a GEMM reads transposed: nn X W, nt X W^T, tn X^T W.
type GemmLayout string

// The layouts gemm.cu has.
const (
	NN GemmLayout = "nn"
	NT GemmLayout = "nt"
	TN GemmLayout = "tn"
)

// multiprocessors is what tiles are reckoned for. It is no device's in particular: the choice of a tile decides in
// which order numbers are added, so it may depend on the shape alone.
const multiprocessors = 132

// Gemm picks the tile for D[M,N] = op(A)[M,K] op(B)[K,N] and the geometry. With parts > 1, K is divided and the output
// is [parts][M,N] fp32, to be added by reduce_splits.
func Gemm(layout GemmLayout, M, N, K, parts int) Geometry {
	size, bm, bn, threads := "large", 128, 128, 128
	switch {
	case N <= 32:
		size, bn = "thin", 32
	case ceil(M, 128)*ceil(N, 128)*parts < 100 || M <= 64 || N <= 64:
		size, bm, bn = "small", 64, 64
	case N > 128 && ceil(M, 128)*ceil(N, 256)*parts >= 100:
		size, bn, threads = "wide", 256, 256
	}
	return Geometry{"gemm", "gemm_" + string(layout) + "_" + size, [3]int{ceil(M, bm) * ceil(N, bn), 1, max(1, parts)},
		[3]int{threads, 1, 1}, 4 * 64 * (bm + bn)}
}

// GemmParts says into how many parts K is worth dividing so that a GEMM with few tiles still fills the device. It
// depends on the shape alone, so results do too.
func GemmParts(layout GemmLayout, M, N, K int) int {
	return divide(Gemm(layout, M, N, K, 1).Grid[0], K, 256)
}

// GemmSingle returns the geometry of the gemm_single_* kernels, fp32 without tensor cores; parts as of Gemm.
func GemmSingle(layout GemmLayout, M, N, parts int) Geometry {
	return Geometry{"gemm_single", "gemm_single_" + string(layout), [3]int{ceil(M, 64) * ceil(N, 64), 1, max(1, parts)},
		[3]int{256, 1, 1}, 0}
}

// GemmSingleParts returns GemmParts for GemmSingle.
func GemmSingleParts(layout GemmLayout, M, N, K int) int {
	return divide(GemmSingle(layout, M, N, 1).Grid[0], K, 256)
}

// divide doubles the parts until there are enough tiles, while a part keeps least inner values.
func divide(tiles, K, least int) int {
	parts := 1
	for tiles*parts < 128 && K/(parts*2) >= least {
		parts *= 2
	}
	return parts
}

// GemmHopper returns Gemm for compute capability 9.0, whose kernels take A and B as tensor maps: boxA and boxB are the
// boxes, innermost first. Rows of A, B and their addresses must be multiples of 16 bytes.
func GemmHopper(layout GemmLayout, M, N, K, parts int) (g Geometry, boxA, boxB [2]int) {
	return gemmHopper(layout, M, N, parts, hopperTile(ceil(M, 128), N, K, parts))
}

func gemmHopper(layout GemmLayout, M, N, parts int, t gemmTile) (g Geometry, boxA, boxB [2]int) {
	boxA, boxB = [2]int{64, 128}, [2]int{64, 64}
	if layout == TN {
		boxA = [2]int{64, 64}
	}
	if layout == NT {
		boxB = [2]int{64, t.bn}
	}
	return Geometry{"gemm_hopper", fmt.Sprintf("gemm_hopper_%s_%d", layout, t.bn),
		[3]int{ceil(M, 128) * ceil(N, t.bn), 1, max(1, parts)},
		[3]int{384, 1, 1}, t.shared()}, boxA, boxB
}

// gemmStageBytes is the shared memory that the stages of gemm_hopper.cu share.
const gemmStageBytes = 200 << 10

// gemmTile is a tile of a GEMM by wgmma: 128 rows by bn columns; step is the time of 64 inner values on a scale where
// 128 x 256 take 100.
type gemmTile struct{ bn, step int }

// shared returns the memory of the tile's stages.
func (t gemmTile) shared() int {
	stage := (128 + t.bn) * 64 * 2
	return stage*(gemmStageBytes/stage) + 1024
}

var gemmTiles = []gemmTile{{256, 100}, {192, 77}, {128, 54}, {64, 35}}

// hopperTile returns the tile whose rounds over the multiprocessors take the least time: a narrower one's
// multiplications cost more a column, and each takes time to start and to be stored. There are that many tiles of rows.
func hopperTile(rows, N, K, parts int) gemmTile {
	var best gemmTile
	least := 0
	for _, t := range gemmTiles {
		steps, n := ceil(ceil(K, 64), max(1, parts)), rows*ceil(N, t.bn)*max(1, parts)
		if time := ceil(n, multiprocessors) * (steps*t.step + 100 + t.bn); best.bn == 0 || time < least {
			best, least = t, time
		}
	}
	return best
}

// GemmHopperParts returns GemmParts for GemmHopper.
func GemmHopperParts(layout GemmLayout, M, N, K int) int {
	g, _, _ := GemmHopper(layout, M, N, K, 1)
	return divide(2*g.Grid[0], K, 512)
}
