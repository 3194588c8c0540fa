package cuda

import (
	"fmt"
	"slices"
)

// LowRank is one launch of lowrank.cu: Count GEMMs that share their wide operand, of rank R each.
type LowRank struct {
	Count, M, C, R int
}

// Small tells whether a GEMM alone runs faster on lowrank.cu than by cuBLASLt (docs/internals/decisions/0022).
func (l LowRank) Small() bool { return l.M <= 1024 && l.Count*l.R <= 16 }

// LowRankWidth is the largest rank, of all GEMMs of a launch together.
const LowRankWidth = 48

// Fits tells whether there is a kernel for it.
func (l LowRank) Fits() bool {
	return l.Count >= 1 && l.Count <= 4 && l.R >= 8 && l.R%8 == 0 && l.Count*l.R <= LowRankWidth && l.C%8 == 0 &&
		l.M >= 1 && l.C >= 8
}

// lowRankTiles are the numbers of columns of eight that the kernels are compiled for.
var lowRankTiles = []int{1, 2, 4, 6}

func (l LowRank) tiles() int {
	i, _ := slices.BinarySearch(lowRankTiles, l.Count*l.R/8)
	return lowRankTiles[i]
}

// Down returns the geometry of lowrank_down_*: NT T_i = X A_iᵀ, NN dT = dY B.
func (l LowRank) Down(layout GemmLayout) Geometry {
	nt, rows, warps := l.tiles(), 2, 8
	if l.M <= 16*multiprocessors {
		rows = 1
		if nt < 6 {
			warps = 16
		}
	}
	warps = min(warps, ceil(l.C, 32))
	return Geometry{"lowrank", fmt.Sprintf("lowrank_down_%s_%d_%d", layout, rows, nt), [3]int{ceil(l.M, 16*rows), 1, 1},
		[3]int{32 * warps, 1, 1}, 512 * warps * rows * nt}
}

// Up returns the geometry of lowrank_up_*: NT Y = T Bᵀ, NN dX = Σ dT_i A_i; tiles is its argument.
func (l LowRank) Up(layout GemmLayout) (g Geometry, tiles int) {
	kt := l.tiles()
	blocks := ceil(l.C, 256) * ceil(l.M, 16)
	tiles = max(1, min(8, blocks/(4*multiprocessors)))
	return Geometry{"lowrank", fmt.Sprintf("lowrank_up_%s_%d", layout, kt),
		[3]int{ceil(l.C, 256), ceil(l.M, 16*tiles), 1}, [3]int{256, 1, 1}, 0}, tiles
}

// Grad returns the geometry of lowrank_grad_*: the sums over M; scratch is the memory for the blocks' shares, in bytes.
func (l LowRank) Grad() (g Geometry, scratch int64) {
	nt, units := l.tiles(), 1
	if nt >= 4 {
		units = 2
	}
	columns := ceil(l.C, 32*units)
	warps := max(1, min(8, ceil(l.M, 16)))
	shares := max(1, min(2*multiprocessors/columns, ceil(l.M, 16*warps*4)))
	if shares > 1 {
		scratch = int64(columns) * int64(shares) * int64(units*nt*1024)
	}
	return Geometry{"lowrank", fmt.Sprintf("lowrank_grad_%d", nt), [3]int{columns, shares, 1}, [3]int{32 * warps, 1, 1},
		warps * units * nt * 1024}, scratch
}

// LowRankCounters is how many counters Grad's blocks may use, one a column of blocks where there are shares: 32-bit
// numbers, zero before and after.
const LowRankCounters = multiprocessors
