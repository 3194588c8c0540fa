package cuda

import "fmt"

// Geometry is how a kernel is launched: its entry, the stem of its source file, grid, block and dynamic shared memory.
type Geometry struct {
	Stem, Entry string
	Grid, Block [3]int
	Shared      int
}

func ceil(a, b int) int { return (a + b - 1) / b }

// Flat is the geometry of kernels that stride over n units of work with 256 threads a block: elementwise_*, swiglu_*,
// rope_apply, adamw_step, reduce_splits*, attention_combine. The grid depends on n alone, never on the device.
func Flat(stem, entry string, n int64) Geometry {
	blocks := max(1, min((n+255)/256, 132*16))
	return Geometry{stem, entry, [3]int{int(blocks), 1, 1}, [3]int{256, 1, 1}, 0}
}

// Elementwise is the geometry of the elementwise_* kernels over n values.
func Elementwise(entry string, n int64) Geometry { return Flat("elementwise", entry, (n+7)/8) }

// RMSNorm is the geometry of the rmsnorm_* kernels over M rows of C.
func RMSNorm(entry string, M, C int) Geometry {
	threads := min(512, max(32, ceil(ceil(C, 8), 32)*32))
	return Geometry{"rmsnorm", entry, [3]int{M, 1, 1}, [3]int{threads, 1, 1}, 0}
}

// Rope is the geometry of rope_apply over M rows of H query and K key heads of size D.
func Rope(M, H, K, D int) Geometry {
	per := D / 2
	if D%16 == 0 {
		per = D / 16
	}
	return Flat("rope", "rope_apply", int64(M)*int64((H+K)*per))
}

// Swiglu is the geometry of the swiglu_* kernels over M rows of F.
func Swiglu(entry string, M, F int) Geometry {
	return Flat("swiglu", entry, (int64(M)*int64(F)+7)/8)
}

// Embedding is the geometry of embedding_gather over M rows of C.
func Embedding(M, C int) Geometry {
	return Geometry{"embedding", "embedding_gather", [3]int{M, 1, 1}, [3]int{min(256, max(32, ceil(ceil(C, 8), 32)*32)), 1, 1}, 0}
}

// CrossEntropy is the geometry of the crossentropy_* kernels over M rows of V logits.
func CrossEntropy(entry string, M, V int) Geometry {
	return Geometry{"crossentropy", entry, [3]int{M, 1, 1}, [3]int{min(1024, max(32, ceil(ceil(V, 8), 32)*32)), 1, 1}, 0}
}

// AdamW is the geometry of adamw_step over n parameters.
func AdamW(n int64) Geometry { return Flat("adamw", "adamw_step", (n+3)/4) }

// NormBlocks is the number of partial sums that norm_partial writes: fixed, so that the sum's order is.
const NormBlocks = 512

// Norm is the geometry of norm_partial.
func Norm() Geometry {
	return Geometry{"norm", "norm_partial", [3]int{NormBlocks, 1, 1}, [3]int{512, 1, 1}, 0}
}

// NormFinish is the geometry of norm_finish.
func NormFinish() Geometry {
	return Geometry{"norm", "norm_finish", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 0}
}

// Sum is the geometry of reduce_sum and nf4_offset, which run in one block.
func Sum(stem, entry string) Geometry {
	return Geometry{stem, entry, [3]int{1, 1, 1}, [3]int{1024, 1, 1}, 0}
}

// NF4Dequantise is the geometry of the nf4_dequantise* kernels over n values.
func NF4Dequantise(entry string, n int64) Geometry {
	return Geometry{"nf4", entry, [3]int{int(max(1, (n+8191)/8192)), 1, 1}, [3]int{256, 1, 1}, 0}
}

// NF4Quantise is the geometry of the nf4_quantise_* kernels over n values.
func NF4Quantise(entry string, n int64) Geometry {
	return Geometry{"nf4", entry, [3]int{int(max(1, (n+2047)/2048)), 1, 1}, [3]int{256, 1, 1}, 0}
}

// NF4Nest is the geometry of nf4_nest over that many blocks of 64 values.
func NF4Nest(blocks int) Geometry {
	return Geometry{"nf4", "nf4_nest", [3]int{ceil(blocks, 256), 1, 1}, [3]int{256, 1, 1}, 0}
}

// GemmLayout says which operands a product reads transposed: nn X W, nt X W^T, tn X^T W.
type GemmLayout string

// The layouts gemm.cu has.
const (
	NN GemmLayout = "nn"
	NT GemmLayout = "nt"
	TN GemmLayout = "tn"
)

// Gemm picks the tile for D[M,N] = op(A)[M,K] op(B)[K,N] and the geometry. With parts > 1, K is divided and the output is
// [parts][M,N] fp32, to be added by reduce_splits.
func Gemm(layout GemmLayout, M, N, K, parts int) Geometry {
	size, bm, bn := "large", 128, 128
	switch {
	case N <= 32:
		size, bn = "thin", 32
	case ceil(M, 128)*ceil(N, 128)*parts < 100 || M <= 64 || N <= 64:
		size, bm, bn = "small", 64, 64
	}
	a, b := bm*40, bn*40 // values of one stage: rows of 32 padded by 8
	if layout == TN {
		a = 32 * (bm + 8)
	}
	if layout != NT {
		b = 32 * (bn + 8)
	}
	return Geometry{"gemm", "gemm_" + string(layout) + "_" + size, [3]int{ceil(M, bm) * ceil(N, bn), 1, max(1, parts)}, [3]int{128, 1, 1}, 4 * 2 * (a + b)}
}

// GemmParts says into how many parts K is worth dividing so that a product with few tiles still fills the device. It
// depends on the shape alone, so results do too.
func GemmParts(layout GemmLayout, M, N, K int) int {
	g := Gemm(layout, M, N, K, 1)
	parts := 1
	for g.Grid[0]*parts < 128 && K/(parts*2) >= 256 {
		parts *= 2
	}
	return parts
}

// headTile is one instance of the attention kernels (the macros at the end of attention_*.cu).
type headTile struct {
	forwardRows, forwardKeys       int
	kvKeys, kvQueries, kvStages    int
	queryRows, queryKeys, queryStg int
}

var headTiles = map[int]headTile{
	32:  {128, 64, 128, 32, 2, 128, 64, 2},
	64:  {128, 64, 128, 32, 2, 128, 32, 2},
	80:  {128, 64, 64, 64, 2, 128, 32, 2},
	96:  {128, 64, 64, 64, 2, 128, 32, 1},
	128: {128, 64, 64, 32, 2, 128, 32, 1},
	256: {64, 32, 32, 32, 1, 64, 16, 1},
}

// HeadSize is the instance of the attention kernels that serves heads of size D, or an error naming what is supported.
func HeadSize(D int) (int, error) {
	if D >= 8 && D%8 == 0 {
		for _, d := range []int{32, 64, 80, 96, 128, 256} {
			if D <= d {
				return d, nil
			}
		}
	}
	return 0, fmt.Errorf("attention: head size %d is not supported on the GPU; multiples of 8 up to 256 are", D)
}

func tileBytes(dp, rows int) int { return rows * (dp + 8) * 2 }

// Attention holds the geometries of one attention: forward, and the three launches of backward (four with Splits > 1).
type Attention struct {
	Forward, Delta, KV, Query, Combine Geometry
	Splits                             int   // parts into which a group's query heads are divided
	Part                               int64 // bytes of the fp32 parts; 0 when Splits is 1
}

// NewAttention plans attention over M packed rows, H query heads, K key heads of size D.
func NewAttention(M, H, K, D int) (Attention, error) {
	dp, err := HeadSize(D)
	if err != nil {
		return Attention{}, err
	}
	if M < 1 || K < 1 || H < K || H%K != 0 {
		return Attention{}, fmt.Errorf("attention: %d rows, %d query heads, %d key heads: the query heads must be a multiple of the key heads", M, H, K)
	}
	t := headTiles[dp]
	name := func(s string) string { return fmt.Sprintf("%s%d", s, dp) }
	block := [3]int{128, 1, 1}
	a := Attention{Splits: 1}
	for a.Splits*2 <= H/K && H/K%(a.Splits*2) == 0 && ceil(M, t.kvKeys)*K*a.Splits < 264 {
		a.Splits *= 2
	}
	if a.Splits > 1 {
		a.Part = int64(a.Splits) * 2 * int64(M) * int64(K) * int64(D) * 4
	}
	a.Forward = Geometry{"attention_forward", name("attention_forward_"), [3]int{ceil(M, t.forwardRows), H, 1}, block,
		tileBytes(dp, t.forwardRows+2*t.forwardKeys)}
	a.Delta = Geometry{"attention_backward", "attention_delta", [3]int{ceil(M*H, 8), 1, 1}, [3]int{256, 1, 1}, 0}
	a.KV = Geometry{"attention_backward", name("attention_backward_kv_"), [3]int{ceil(M, t.kvKeys), K, a.Splits}, block,
		tileBytes(dp, 2*t.kvKeys) + t.kvStages*(tileBytes(dp, 2*t.kvQueries)+8*t.kvQueries)}
	a.Query = Geometry{"attention_backward", name("attention_backward_q_"), [3]int{ceil(M, t.queryRows), H, 1}, block,
		tileBytes(dp, 2*t.queryRows) + t.queryStg*tileBytes(dp, 2*t.queryKeys)}
	a.Combine = Flat("attention_backward", "attention_combine", int64(M)*int64(K)*int64(D)/2)
	return a, nil
}
