package cuda

import "fmt"

// Geometry is how a kernel is launched: its entry, the stem of its source file, grid, block and dynamic shared memory.
type Geometry struct {
	Stem, Entry string
	Grid, Block [3]int
	Shared      int
}

func ceil(a, b int) int { return (a + b - 1) / b }

// Flat returns the geometry of kernels that stride over n units of work with 256 threads a block: elementwise_*,
// swiglu_*, rope_apply, adamw_step, reduce_splits*, attention_combine. The grid depends on n alone, never on the
// device.
func Flat(stem, entry string, n int64) Geometry {
	blocks := max(1, min((n+255)/256, 132*16))
	return Geometry{stem, entry, [3]int{int(blocks), 1, 1}, [3]int{256, 1, 1}, 0}
}

// Elementwise returns the geometry of the elementwise_* kernels over n values.
func Elementwise(entry string, n int64) Geometry { return Flat("elementwise", entry, (n+7)/8) }

// InOrder returns the geometry of inorder_add over n numbers.
func InOrder(n int64) Geometry { return Flat("inorder", "inorder_add", (n+3)/4) }

// Convert returns the geometry of the convert_* kernels over n values; from and to are element types' short names
// ("bf16").
func Convert(from, to string, n int64) Geometry {
	return Flat("convert", "convert_"+from+"_to_"+to, (n+7)/8)
}

// RMSNorm returns the geometry of the rmsnorm_* kernels over M rows of C.
func RMSNorm(entry string, M, C int) Geometry {
	threads := min(512, max(32, ceil(C, 1024)*32)) // four 16-byte loads in flight a thread
	return Geometry{"rmsnorm", entry, [3]int{M, 1, 1}, [3]int{threads, 1, 1}, 0}
}

// FitsHeads tells whether the rmsnorm_heads_* kernels take rows of D values.
func FitsHeads(D int) bool { return D > 0 && D%8 == 0 && D <= 256 }

// FitsHeadsRoPE tells whether the rmsnorm_heads_rope_* kernels do: half a row is whole chunks of 8 too.
func FitsHeadsRoPE(D int) bool { return FitsHeads(D) && D%16 == 0 }

// RMSNormHeads returns the geometry of the rmsnorm_heads_* kernels over that many rows of D, and the threads that hold
// a row.
func RMSNormHeads(entry string, rows, D int) (g Geometry, lanes int) {
	for lanes = 1; lanes*8 < D; lanes *= 2 {
	}
	return Geometry{"rmsnorm", entry, [3]int{max(1, ceil(rows, 256/lanes)), 1, 1}, [3]int{256, 1, 1}, 0}, lanes
}

// Rope returns the geometry of rope_apply over M rows of H query and K key heads, of which it turns R values each.
func Rope(M, H, K, R int) Geometry {
	per := R / 2
	if R%16 == 0 {
		per = R / 16
	}
	return Flat("rope", "rope_apply", int64(M)*int64((H+K)*per))
}

// RopeInterleaved returns Rope for rope_interleaved.
func RopeInterleaved(M, H, K, R int) Geometry {
	per := R / 2
	if R%8 == 0 {
		per = R / 8
	}
	return Flat("rope", "rope_interleaved", int64(M)*int64((H+K)*per))
}

// Swiglu returns the geometry of the swiglu_* kernels over M rows of F.
func Swiglu(entry string, M, F int) Geometry {
	return Flat("swiglu", entry, (int64(M)*int64(F)+7)/8)
}

// SwigluGradRows returns the geometry of swiglu_grad_rows over M rows of F.
func SwigluGradRows(M, F int) Geometry {
	return Geometry{"swiglu_grad", "swiglu_grad_rows", [3]int{M, 1, 1},
		[3]int{min(256, max(32, ceil(ceil(F, 8), 32)*32)), 1, 1}, 0}
}

// Columns returns the geometry of columns_copy over M rows of W.
func Columns(M, W int) Geometry {
	return Geometry{"columns", "columns_copy", [3]int{M, 1, 1},
		[3]int{min(256, max(32, ceil(ceil(W, 8), 32)*32)), 1, 1}, 0}
}

// HeadsUnit returns how many values of heads of D a thread of heads_split and heads_join moves.
func HeadsUnit(D int) int {
	if D%8 == 0 {
		return 8
	}
	return 1
}

// Heads returns the geometry of heads_split and heads_join over so many heads of D in each of M rows.
func Heads(entry string, M, heads, D int) Geometry {
	return Flat("heads", entry, int64(M)*int64(heads)*int64(D/HeadsUnit(D)))
}

// Embedding returns the geometry of embedding_gather over M rows of C.
func Embedding(M, C int) Geometry {
	return Geometry{"embedding", "embedding_gather", [3]int{M, 1, 1},
		[3]int{min(256, max(32, ceil(ceil(C, 8), 32)*32)), 1, 1}, 0}
}

// ScaledEmbedding returns the geometry of embedding_gather_scaled over M rows of C.
func ScaledEmbedding(M, C int) Geometry {
	g := Embedding(M, C)
	g.Entry = "embedding_gather_scaled"
	return g
}

// SetRows returns the geometry of the set_rows_* kernels over M rows of C.
func SetRows(entry string, M, C int) Geometry {
	g := Embedding(M, C)
	g.Stem, g.Entry = "set_rows", entry
	return g
}

// EmbeddingGrad returns the geometry of embedding_grad_rows over M rows of C.
func EmbeddingGrad(M, C int) Geometry {
	return Geometry{"embedding_grad", "embedding_grad_rows", [3]int{M, ceil(C, 1024), 1}, [3]int{256, 1, 1}, 0}
}

// ReplaceRows returns the geometry of replace_rows_copy over M rows of C.
func ReplaceRows(M, C int) Geometry {
	g := Embedding(M, C)
	g.Stem, g.Entry = "replace_rows", "replace_rows_copy"
	return g
}

// ReplaceRowsGrad returns the geometry of replace_rows_grad or replace_rows_grad_wide for K rows of C.
func ReplaceRowsGrad(entry string, K, C int) Geometry {
	return Geometry{"replace_rows", entry, [3]int{K, ceil(C, 1024), 1}, [3]int{256, 1, 1}, 0}
}

// ColumnParts returns the number of parts in which the column_sums_* kernels add up M rows.
func ColumnParts(M int) int { return max(1, min(256, ceil(M, 128))) }

// ColumnSums returns the geometry of the column_sums_* kernels over M rows of C.
func ColumnSums(entry string, M, C int) Geometry {
	return Geometry{"column_sums", entry, [3]int{ceil(C, 64), ColumnParts(M), 1}, [3]int{256, 1, 1}, 0}
}

// CrossEntropy returns the geometry of the crossentropy_* kernels over M rows of V logits.
func CrossEntropy(entry string, M, V int) Geometry {
	return Geometry{"crossentropy", entry, [3]int{M, 1, 1}, [3]int{min(512, max(32, ceil(ceil(V, 8), 32)*32)), 1, 1}, 0}
}

// SmoothedCrossEntropy returns the geometry of the smoothed_crossentropy_* kernels over M rows of V logits.
func SmoothedCrossEntropy(entry string, M, V int) Geometry {
	g := CrossEntropy(entry, M, V)
	g.Stem = "smoothed_crossentropy"
	return g
}

// Divergence returns the geometry of the divergence_* kernels over M rows of V logits.
func Divergence(entry string, M, V int) Geometry {
	g := CrossEntropy(entry, M, V)
	g.Stem = "divergence"
	return g
}

// TopK returns the geometry of topk_rows over M rows of V logits.
func TopK(M, V int) Geometry {
	g := CrossEntropy("topk_rows", M, V)
	g.Stem = "topk"
	return g
}

// LogProbs returns the geometry of logprobs_values, logprobs_slopes and logprobs_both over M rows of V logits.
func LogProbs(entry string, M, V int) Geometry {
	g := CrossEntropy(entry, M, V)
	g.Stem = "logprobs"
	return g
}

// Collision returns the geometry of collision_entropies over M rows of V logits.
func Collision(M, V int) Geometry {
	g := CrossEntropy("collision_entropies", M, V)
	g.Stem = "collision"
	return g
}

// LogitStatistics returns the geometry of logit_statistics_rows over M rows of V logits.
func LogitStatistics(M, V int) Geometry {
	g := CrossEntropy("logit_statistics_rows", M, V)
	g.Stem = "logit_statistics"
	return g
}

// AnswerSums returns the geometry of answer_sums_rows, which runs in one block.
func AnswerSums() Geometry {
	return Geometry{"answer_sums", "answer_sums_rows", [3]int{1, 1, 1}, [3]int{256, 1, 1}, 0}
}

// LogProbsGradient returns the geometry of logprobs_gradient over M rows of C.
func LogProbsGradient(M, C int) Geometry {
	g := Embedding(M, C)
	g.Stem, g.Entry = "logprobs", "logprobs_gradient"
	return g
}

// DoRANorm returns the geometry of dora_norm over N rows of a weight.
func DoRANorm(N int) Geometry {
	return Geometry{"dora", "dora_norm", [3]int{max(1, ceil(N, 8)), 1, 1}, [3]int{256, 1, 1}, 0}
}

// DoRAScale returns the geometry of dora_scale over M rows of N.
func DoRAScale(M, N int) Geometry { return Flat("dora", "dora_scale", (int64(M)*int64(N)+7)/8) }

// DoRAScaleGrad returns the geometry of dora_scale_grad over M rows of N, of which a block takes slice rows.
func DoRAScaleGrad(M, N, slice int) Geometry {
	return Geometry{"dora", "dora_scale_grad", [3]int{ceil(N, 64), max(1, ceil(M, slice)), 1}, [3]int{256, 1, 1}, 0}
}

// DoRAMagnitude returns the geometry of dora_magnitude over N magnitudes.
func DoRAMagnitude(N int) Geometry {
	return Geometry{"dora", "dora_magnitude", [3]int{ceil(N, 256), 1, 1}, [3]int{256, 1, 1}, 0}
}

// BlockRotate returns the geometry of block_rotate over M rows of C in blocks of B.
func BlockRotate(M, C, B int) Geometry {
	return Geometry{"block_rotate", "block_rotate", [3]int{max(1, ceil(M, 128)), C / B * ceil(B, 32), 1},
		[3]int{256, 1, 1}, 0}
}

// BlockOuter returns the geometry of block_outer over M rows of C in blocks of B. A thread block takes slice rows.
func BlockOuter(M, C, B, slice int) Geometry {
	return Geometry{"block_rotate", "block_outer", [3]int{C / B * ceil(B, 32) * ceil(B, 32), BlockSlices(M, slice), 1},
		[3]int{256, 1, 1}, 0}
}

// BlockSlices returns the number of slices that block_outer sums apart.
func BlockSlices(M, slice int) int { return max(1, ceil(M, slice)) }

// BlockSum returns the geometry of block_sum over that many numbers.
func BlockSum(total int64) Geometry { return Flat("block_rotate", "block_sum", total) }

// SequenceSums returns the geometry of sequence_sums_forward over S sequences of some rows.
func SequenceSums(S, rows int) Geometry {
	return Geometry{"sequence_sums", "sequence_sums_forward", [3]int{S, rows, 1}, [3]int{256, 1, 1}, 0}
}

// SequenceSumsGradient returns the geometry of sequence_sums_gradient over M tokens.
func SequenceSumsGradient(M int) Geometry {
	return Flat("sequence_sums", "sequence_sums_gradient", int64(M))
}

// Preference returns the geometry of preference_*, which run in one block.
func Preference(entry string) Geometry {
	return Geometry{"preference", entry, [3]int{1, 1, 1}, [3]int{256, 1, 1}, 0}
}

// Unpaired returns the geometry of unpaired_rows, which runs in one block.
func Unpaired() Geometry {
	return Geometry{"unpaired", "unpaired_rows", [3]int{1, 1, 1}, [3]int{256, 1, 1}, 0}
}

// PolicyLimit returns the geometry of policy_limit, which runs in one block.
func PolicyLimit() Geometry {
	return Geometry{"policy", "policy_limit", [3]int{1, 1, 1}, [3]int{1024, 1, 1}, 0}
}

// PolicyAnswers returns the geometry of policy_answers over S answers.
func PolicyAnswers(S int) Geometry {
	return Geometry{"policy", "policy_answers", [3]int{S + 1, 1, 1}, [3]int{256, 1, 1}, 0}
}

// PolicySums returns the geometry of policy_sums, which runs in one block.
func PolicySums() Geometry {
	return Geometry{"policy", "policy_sums", [3]int{1, 1, 1}, [3]int{256, 1, 1}, 0}
}

// Pool returns the geometry of pool_forward over S sequences of C columns.
func Pool(S, C int) Geometry {
	return Geometry{"pool", "pool_forward", [3]int{S, ceil(C, 256), 1}, [3]int{256, 1, 1}, 0}
}

// PoolGradient returns the geometry of pool_gradient over M tokens of C columns.
func PoolGradient(M, C int) Geometry {
	return Geometry{"pool", "pool_gradient", [3]int{M, 1, 1}, [3]int{min(256, max(32, ceil(C, 32)*32)), 1, 1}, 0}
}

// ClassLoss returns the geometry of task_loss_class over S rows.
func ClassLoss(S int) Geometry { return warps("task_loss", "task_loss_class", S, 8, 0) }

// ContrastLengths returns the geometry of contrastive_lengths over S sequences.
func ContrastLengths(S int) Geometry { return warps("contrastive", "contrastive_lengths", S, 8, 0) }

// Contrast returns the geometry of the other contrastive_* kernels, of so many blocks: one for each sequence, or one for
// contrastive_sums.
func Contrast(entry string, blocks int) Geometry {
	return Geometry{"contrastive", entry, [3]int{blocks, 1, 1}, [3]int{256, 1, 1}, 0}
}

// RewardLoss returns the geometry of task_loss_reward, which runs in one block.
func RewardLoss() Geometry {
	return Geometry{"task_loss", "task_loss_reward", [3]int{1, 1, 1}, [3]int{256, 1, 1}, 0}
}

// AdamW returns the geometry of adamw_step over n parameters.
func AdamW(n int64) Geometry { return Flat("adamw", "adamw_step", (n+3)/4) }

// AdamW8Bit returns the geometry of adamw_8bit_step over so many blocks of numbers, a warp each.
func AdamW8Bit(blocks int) Geometry { return Flat("adamw_8bit", "adamw_8bit_step", int64(blocks)*32) }

// NormBlocks is the number of partial sums that norm_partial writes: fixed, so that the sum's order is.
const NormBlocks = 512

// Norm returns the geometry of norm_partial.
func Norm() Geometry {
	return Geometry{"norm", "norm_partial", [3]int{NormBlocks, 1, 1}, [3]int{512, 1, 1}, 0}
}

// NormFinish returns the geometry of norm_finish.
func NormFinish() Geometry {
	return Geometry{"norm", "norm_finish", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 0}
}

// LossScale returns the geometry of lossscale_update.
func LossScale() Geometry {
	return Geometry{"lossscale", "lossscale_update", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 0}
}

// Equal returns the geometry of equal_bits over n times 16 bytes.
func Equal(n int64) Geometry { return Flat("equal", "equal_bits", n) }

// Sum returns the geometry of reduce_sum and nf4_offset, which run in one block.
func Sum(stem, entry string) Geometry {
	return Geometry{stem, entry, [3]int{1, 1, 1}, [3]int{1024, 1, 1}, 0}
}

// NF4Dequantise returns the geometry of the nf4_dequantise* kernels over n values.
func NF4Dequantise(entry string, n int64) Geometry {
	return Geometry{"nf4", entry, [3]int{int(max(1, (n+8191)/8192)), 1, 1}, [3]int{256, 1, 1}, 0}
}

// FP8Rows returns the geometry of the kernel of fp8_rows_* that reads each of M rows of K numbers once, where there is
// one.
func FP8Rows(M, K int) Geometry {
	kept := 8
	for _, n := range []int{6, 4, 2, 1} {
		if K <= n*2048 {
			kept = n
		}
	}
	return Geometry{"fp8", fmt.Sprintf("fp8_rows_%d", kept), [3]int{M, 1, 1}, [3]int{256, 1, 1}, 0}
}

// FP8Weight returns the geometry of fp8_weight* over a weight [N,K], or of the kernel that writes it as [K,N].
func FP8Weight(entry string, transposed bool, N, K int) Geometry {
	if transposed {
		return Geometry{"fp8", entry + "_transposed", [3]int{K / 64, N / 128, 1}, [3]int{256, 1, 1}, 0}
	}
	return Geometry{"fp8", entry, [3]int{ceil(N*K, 8192), 1, 1}, [3]int{256, 1, 1}, 0}
}

// NF4Quantise returns the geometry of the nf4_quantise_* kernels over n values.
func NF4Quantise(entry string, n int64) Geometry {
	return Geometry{"nf4", entry, [3]int{int(max(1, (n+2047)/2048)), 1, 1}, [3]int{256, 1, 1}, 0}
}

// Int8Dequantise returns the geometry of int8_dequantise over a weight [rows,cols].
func Int8Dequantise(rows, cols int) Geometry {
	return Geometry{"int8", "int8_dequantise", [3]int{rows, ceil(cols, 2048), 1}, [3]int{256, 1, 1}, 0}
}

// NF4Nest returns the geometry of nf4_nest over that many blocks of 64 values.
func NF4Nest(blocks int) Geometry {
	return Geometry{"nf4", "nf4_nest", [3]int{ceil(blocks, 256), 1, 1}, [3]int{256, 1, 1}, 0}
}

// HeadGate returns the geometry of the head_gate_* kernels over that many heads of D values.
func HeadGate(entry string, heads int64, D int) Geometry {
	return Flat("head_gate", entry, heads*int64(D/HeadsUnit(D)))
}

// HeadColumns returns the geometry of the head_columns_* kernels over that many heads of D columns, of which W are
// taken from that one on, and how many of them a thread moves.
func HeadColumns(entry string, heads int64, D, from, W int) (g Geometry, unit int) {
	if unit = HeadsUnit(D); from%unit != 0 || W%unit != 0 {
		unit = 1
	}
	moved := W
	if entry == "head_columns_spread" {
		moved = D
	}
	return Flat("head_columns", entry, heads*int64(moved/unit)), unit
}

// LatentKeys returns the geometry of latent_keys_forward, over keys of own and shared columns, or of latent_keys_own,
// over of columns, of that many heads, and how many columns a thread moves.
func LatentKeys(entry string, heads int64, of, own, shared int) (g Geometry, unit int) {
	if unit = HeadsUnit(of); own%unit != 0 || shared%unit != 0 {
		unit = 1
	}
	moved := own + shared
	if entry == "latent_keys_own" {
		moved = of
	}
	return Flat("latent_keys", entry, heads*int64(moved/unit)), unit
}

// SigmoidGateGrad returns the geometry of sigmoid_gate_grad over M rows.
func SigmoidGateGrad(M int) Geometry { return warps("sigmoid_gate", "sigmoid_gate_grad", M, 8, 0) }

// PerMatrix returns the geometry of kernels that update one trained matrix in each block.
func PerMatrix(stem, entry string, matrices int) Geometry {
	return Geometry{stem, entry, [3]int{matrices, 1, 1}, [3]int{256, 1, 1}, 0}
}

// HeadParts returns the geometry of the head_parts_* kernels over M rows of that many heads with parts of these widths,
// and how many columns a thread moves.
func HeadParts(M, heads int, widths [4]int, back bool) (g Geometry, unit int) {
	entry, head := "head_parts_split", 0
	if back {
		entry = "head_parts_join"
	}
	unit = 8
	for _, w := range widths {
		if head += w; w%unit != 0 {
			unit = 1
		}
	}
	return Flat("head_parts", entry, int64(M)*int64(heads*head/unit)), unit
}
