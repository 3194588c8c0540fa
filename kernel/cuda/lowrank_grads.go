package cuda

import "fmt"

// LowRankGrads is how lowrank_hopper.cu makes both gradients of a low-rank GEMM from one reading of the wide one: a
// pass of blocks that leave shares, and their sums.
type LowRankGrads struct {
	Pass, Finish Geometry
	Tiles        int    // of 64 rows, of a block; an argument of Pass
	Box          [2]int // of the wide operand's tensor map, innermost first
	// bytes of the blocks' shares of dt, and of db behind them
	ScratchDT, ScratchDB int64
}

// Scratch returns the bytes of all shares.
func (g LowRankGrads) Scratch() int64 { return g.ScratchDT + g.ScratchDB }

// FitsGrads tells whether lowrank_hopper.cu has a kernel for it.
func (l LowRank) FitsGrads() bool {
	return l.Count == 1 && (l.R == 8 || l.R == 16 || l.R == 32) && l.C%8 == 0 && l.C >= 8 && l.M >= 1
}

// LargeGrads tells whether one reading is faster than two (docs/internals/decisions/0192).
func (l LowRank) LargeGrads() bool { return l.M >= 2048 && l.C >= 2048 }

// Grads returns the launches for one GEMM.
func (l LowRank) Grads() LowRankGrads {
	const chunks, piece = 8, 16384 // as in lowrank_hopper.cu
	columns, tiles := ceil(l.C, 64*chunks), ceil(l.M, 64)
	per := ceil(tiles, max(1, min(tiles, multiprocessors/columns)))
	box := 128 * l.R
	shared := (228352-(chunks+2)*box)/piece*piece + (chunks+2)*box + 1024
	bands := ceil(tiles, per)
	return LowRankGrads{
		Pass: Geometry{"lowrank_hopper", fmt.Sprintf("lowrank_hopper_grads_%d", l.R), [3]int{columns, bands, 1},
			[3]int{160, 1, 1}, shared},
		Finish: Geometry{"lowrank_hopper", "lowrank_hopper_finish", [3]int{ceil((l.M+l.C)*l.R, 1024), 1, 1},
			[3]int{256, 1, 1}, 0},
		Tiles: per, Box: [2]int{64, 64},
		ScratchDT: 4 * int64(columns) * int64(l.M) * int64(l.R),
		ScratchDB: 4 * int64(bands) * int64(l.C) * int64(l.R),
	}
}
