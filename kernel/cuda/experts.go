package cuda

import (
	"fmt"
	"strings"
)

// warps returns the geometry of kernels of which a warp takes a row: warps rows a block, with shared bytes each.
func warps(stem, entry string, rows, warps, shared int) Geometry {
	return Geometry{stem, entry, [3]int{max(1, ceil(rows, warps)), 1, 1}, [3]int{32 * warps, 1, 1}, warps * shared}
}

// MoERoute returns the geometry of moe_route over M rows of E logits, MoERouteGrad that of moe_route_grad.
func MoERoute(M, E int) Geometry     { return warps("moe", "moe_route", M, 8, 4*E) }
func MoERouteGrad(M, E int) Geometry { return warps("moe", "moe_route_grad", M, 8, 8*E) }

// MoEScores returns the geometry of moe_scores over M rows of E logits, MoEScoresGrad that of moe_scores_grad.
func MoEScores(M, E int) Geometry     { return warps("moe_scores", "moe_scores", M, 8, 4*(E+32)) }
func MoEScoresGrad(M, E int) Geometry { return warps("moe_scores", "moe_scores_grad", M, 8, 8*E) }

// MoEWeigh returns the geometry of moe_weigh over n values.
func MoEWeigh(n int64) Geometry { return Flat("moe_weigh", "moe_weigh", n) }

// MoEPieces returns into how many pieces n slots are sorted; moe_count and moe_place keep a count of each expert for
// each.
func MoEPieces(n int) int { return max(1, ceil(n, 256)) }

// MoECount, MoEOffsets and MoEPlace are the geometries of what sorts n slots by E experts, one after the other.
func MoECount(n, E int) Geometry {
	return Geometry{"moe", "moe_count", [3]int{MoEPieces(n), 1, 1}, [3]int{256, 1, 1}, 8 * 4 * E}
}
func MoEOffsets() Geometry { return Sum("moe", "moe_offsets") }
func MoEPlace(n, E int) Geometry {
	return Geometry{"moe", "moe_place", [3]int{MoEPieces(n), 1, 1}, [3]int{256, 1, 1}, 8 * 4 * E}
}

// MoERows returns the geometry of moe_gather, moe_sum and moe_scale over rows of width values.
func MoERows(entry string, rows, width int) Geometry { return flatRows("moe", entry, rows, width) }

// DropoutSlots returns the geometry of dropout_slots over rows of width values.
func DropoutSlots(rows, width int) Geometry { return flatRows("dropout", "dropout_slots", rows, width) }

// flatRows returns flat over groups of 8 values where the width allows it, else over values.
func flatRows(stem, entry string, rows, width int) Geometry {
	n := int64(rows) * int64(width)
	if width%8 == 0 {
		n /= 8
	}
	return Flat(stem, entry, n)
}

// MoEScaleGrad returns the geometry of moe_scale_grad over n slots.
func MoEScaleGrad(n int) Geometry { return warps("moe", "moe_scale_grad", n, 8, 0) }

// MoEBalanceBlocks is how many parts moe_balance_rows writes for a layer: fixed, so that the sum's order is.
const MoEBalanceBlocks = 64

// MoEBalanceRows, MoEBalanceFinish and MoEBalanceGrad are the geometries of the balance of E experts over M rows.
func MoEBalanceRows(E int) Geometry {
	return warps("moe_balance", "moe_balance_rows", 4*MoEBalanceBlocks, 4, 12*E)
}
func MoEBalanceFinish() Geometry       { return Sum("moe_balance", "moe_balance_finish") }
func MoEBalanceGrad(M, E int) Geometry { return warps("moe_balance", "moe_balance_grad", M, 4, 4*E) }

// ExpertGemm returns the geometry of expert_gemm_nn_* (transB: nt) over S rows of any E experts, with N columns of the
// result. The tile follows from the shape alone; it suits experts of about S/E rows.
func ExpertGemm(transB bool, S, N, E int) Geometry {
	t := expertTile{"large", 128, 128, 32, 4, 4}
	switch {
	case N <= 32:
		t = expertTile{"thin", 64, 32, 128, 3, 8}
	case N <= 64:
		t = expertTile{"narrow", 64, 64, 128, 2, 4}
	case S <= 96*E:
		t = expertTile{"small", 64, 64, 32, 4, 4}
	}
	return Geometry{"expert_gemm", "expert_gemm_" + rowsLayout(transB) + "_" + t.name,
		[3]int{ceil(N, t.bn), expertTiles(S, E, t.bm), 1}, [3]int{32 * t.warps, 1, 1}, t.shared()}
}

// expertTile is a tile bm x bn of expert_gemm.cu: a block has so many warps, and stages of a depth of bk.
type expertTile struct {
	name                      string
	bm, bn, bk, stages, warps int
}

func (t expertTile) shared() int { return 2 * t.bk * t.stages * (t.bm + t.bn) }

// ExpertUp returns ExpertGemm for a depth K of at most 64; N, K and addresses are as expert_up.cu says.
func ExpertUp(transB bool, S, N, K, E int) Geometry {
	depth := ceil(K, 16) * 16
	weights := 136 * depth
	if transB {
		weights = 128 * (depth + 8)
	}
	return Geometry{"expert_up", "expert_up_" + rowsLayout(transB), [3]int{ceil(N, 128), expertTiles(S, E, 64), 1},
		[3]int{128, 1, 1}, 2 * (64*(depth+8+136) + weights)}
}

// decodeRows is as many rows as no step of generation has: 256 sequences of 8 experts a token.
const decodeRows = 2048

// ExpertsByHopper tells whether ExpertHopper is to take S rows of E experts. A sequence's numbers must not depend on
// how many others are continued beside it, so all steps of generation go by the same kernel.
func ExpertsByHopper(S, N, K, E int) bool {
	return (S > 96*E || S > max(16*E, decodeRows)) && N > 64 && N%8 == 0 && K%8 == 0
}

// ExpertsTakeUpdate tells whether ExpertHopper takes a low-rank update of this rank along.
func ExpertsTakeUpdate(rank int) bool { return rank <= 64 && rank%8 == 0 }

// ExpertHopper returns ExpertGemm for compute capability 9.0 where experts have many rows, with the boxes of x and w,
// and of an update's u and v, innermost first; those of w and v hold one expert's. rank is the update's, 0 without one.
// Rows of these and of y and their addresses must be multiples of 16 bytes. Blocks take further tiles when they are
// done: a grid of fewer, as many as the device has multiprocessors, does the same.
func ExpertHopper(transB bool, S, N, K, E, rank int) (g Geometry, boxX [2]int, boxW [3]int) {
	bn := 192
	if 6*128*ceil(N, 128) < 5*192*ceil(N, 192) { // a tile of 128 columns takes a fifth longer a column
		bn = 128
	}
	boxW = [3]int{64, 64, 1}
	if transB {
		boxW[1] = bn
	}
	entry := "expert_hopper_"
	if rank > 0 {
		entry += "update_"
	}
	return Geometry{"expert_hopper", fmt.Sprintf("%s%s_%d", entry, rowsLayout(transB), bn),
			[3]int{ceil(N, bn) * expertTiles(S, E, 128), 1, 1}, [3]int{384, 1, 1}, 216064},
		[2]int{64, 64}, boxW
}

// expertTiles returns more than the tiles of rows that S rows of E experts have: what is left over makes the rows of no
// expert.
func expertTiles(S, E, rows int) int { return S/rows + min(S, E) + 1 }

func rowsLayout(transB bool) string {
	if transB {
		return "nt"
	}
	return "nn"
}

// ExpertWeight returns the geometry of expert_gemm_weight_*, the gradients [N,K] of E matrices.
func ExpertWeight(N, K, E int) Geometry {
	t := expertTile{"small", 64, 64, 32, 4, 4}
	switch {
	case K <= 32:
		t = expertTile{"thin", 128, 32, 32, 4, 4}
	case N <= 32:
		t = expertTile{"wide", 32, 256, 32, 4, 4}
	}
	return Geometry{"expert_gemm", "expert_gemm_weight_" + t.name, [3]int{ceil(K, t.bn), ceil(N, t.bm), E},
		[3]int{32 * t.warps, 1, 1}, t.shared()}
}

// ExpertWeightGathered returns ExpertWeight, or in fp32 ExpertSingleWeight, of rows that are read where their tokens
// have them.
func ExpertWeightGathered(N, K, E int, single bool) Geometry {
	if single {
		g := ExpertSingleWeight(N, K, E)
		g.Entry = "expert_single_weight_gathered"
		return g
	}
	g := ExpertWeight(N, K, E)
	g.Entry = strings.Replace(g.Entry, "weight_", "weight_gathered_", 1)
	return g
}

// ExpertSingle and ExpertSingleWeight are the same in fp32.
func ExpertSingle(transB bool, S, N, E int) Geometry {
	return Geometry{"expert_single", "expert_single_" + rowsLayout(transB),
		[3]int{ceil(N, 64), expertTiles(S, E, 64), 1}, [3]int{256, 1, 1}, 0}
}
func ExpertSingleWeight(N, K, E int) Geometry {
	return Geometry{"expert_single", "expert_single_weight", [3]int{ceil(K, 64), ceil(N, 64), E}, [3]int{256, 1, 1}, 0}
}

// ExpertNF4 returns the geometry of the expert_nf4_dequantise* kernels over E matrices of n values.
func ExpertNF4(entry string, n int64, E int) Geometry {
	return Geometry{"expert_nf4", entry, [3]int{int(max(1, (n+8191)/8192)), E, 1}, [3]int{256, 1, 1}, 0}
}

// ExpertMXFP4 returns the geometry of expert_mxfp4_dequantise over n values of all experts.
func ExpertMXFP4(n int64) Geometry { return Flat("expert_mxfp4", "expert_mxfp4_dequantise", n/8) }

// ExpertBias returns the geometry of expert_bias_add over S rows of E experts, N values wide.
func ExpertBias(S, N, E int) Geometry {
	return Geometry{"expert_bias", "expert_bias_add", [3]int{min(max(1, ceil(S, E)), 256), E + 1, 1},
		[3]int{min(256, max(32, ceil(ceil(N, 8), 32)*32)), 1, 1}, 0}
}

// ClampedSwiGLU returns the geometry of the swiglu_clamped_* kernels over n values of the result.
func ClampedSwiGLU(entry string, n int64) Geometry {
	return Flat("swiglu_clamped", entry, (n+3)/4)
}

// AttentionSinks returns the geometry of attention_sinks_apply over H heads of M rows.
func AttentionSinks(M, H int) Geometry {
	return warps("attention_sinks", "attention_sinks_apply", M*H, 8, 0)
}
