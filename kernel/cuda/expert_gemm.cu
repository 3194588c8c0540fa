// expert_gemm.cu: a GEMM for each of E experts over rows sorted by expert, on tensor cores: y_e = alpha x_e op(w_e) + beta y_e, and
// the gradient dw_e = alpha a_e^T b_e + beta dw_e, of which b's row r may be the row source[r] / per of x.
// Layout, row-major: x [S,K], y [S,N] elem; w [E][N,K] (nt) or [E][K,N] (nn) elem; a [S,N], b [S,K], x [tokens,K] elem, dw [E][N,K] fp32;
// starts [E+1]: expert e has the rows starts[e] to starts[e+1], which may be none; y is zero, or stays, in rows from starts[E] on.
// Rows: a block takes the tile gridDim.x has for its columns of the blockIdx.y-th tile of rows; the grid has more than any routing can
// need, and the blocks left over make the rows of no expert. Gradient: a block takes a tile of dw_e, e = blockIdx.z, over all of the
// expert's rows.
// Tiles by gemm_tile.cuh; those of few columns or rows are bound by the bytes of x and b, of which a stage reads 256 of a row, or more.
// No order of sums depends on how many rows the other experts have. Accumulation fp32. FLOPs 2 S N K. Goals: 60 % of cuBLASLt over equal
// experts; of thin and wide ones cuBLASLt's time for a dense GEMM of as many bytes.
// Elements: bf16, f16.
#include "experts.cuh"
#include "gemm_tile.cuh"

template <bool TB, int BM, int BN, int WARPS_M, int WARPS_N, int BK, int STAGES>
__device__ void rows(elem *y, const elem *x, const elem *w, const int *starts, int S, int E, int N, int K, float alpha, float beta) {
    int e, row0;
    if (!block_tile<BM>(y, starts, S, E, N, beta, e, row0)) return;
    int64_t first = starts[e];
    gemm_tile<false, TB, BM, BN, WARPS_M, WARPS_N, BK, STAGES>(y, first * N, x + first * K, w + (int64_t)e * N * K, starts[e + 1] - (int)first, N, row0,
                                                               blockIdx.x * BN, 0, K, K, TB ? K : N, N, alpha, beta, false);
}

template <int BM, int BN, int WARPS_M, int WARPS_N>
__device__ void weights(float *dw, const elem *a, const elem *b, const int *starts, int N, int K, float alpha, float beta) {
    int e = blockIdx.z;
    int64_t first = starts[e];
    gemm_tile<true, false, BM, BN, WARPS_M, WARPS_N>(dw, (int64_t)e * N * K, a + first * N, b + first * K, N, K, blockIdx.y * BM, blockIdx.x * BN,
                                                     0, starts[e + 1] - (int)first, N, K, K, alpha, beta, true);
}

template <int BM, int BN, int WARPS_M, int WARPS_N>
__device__ void gathered(float *dw, const elem *a, const elem *x, const int *source, const int *starts, int N, int K, int per, int tokens, float alpha, float beta) {
    int e = blockIdx.z, col0 = blockIdx.x * BN, rows = starts[e + 1] - starts[e];
    int64_t first = starts[e];
    GatheredOperand<32, BN, 32 * WARPS_M * WARPS_N> ob(x, K, source + first, per, tokens, rows, col0);
    gemm_tile_of<true, false, BM, BN, WARPS_M, WARPS_N>(dw, (int64_t)e * N * K, a + first * N, ob, (((uint64_t)x & 15) | (K & 7)) == 0, N, K, blockIdx.y * BM, col0,
                                                        0, rows, N, 1, K, alpha, beta, true);
}

// Grid (tiles of N, tiles of rows, 1), block 32 WM WN, dynamic shared memory STAGES stages of 2 BK (BM + BN) bytes; BLOCKS of a multiprocessor.
#define EXPERT(NAME, TB, BM, BN, WM, WN, BK, STAGES, BLOCKS) \
    extern "C" __global__ void __launch_bounds__(32 * WM * WN, BLOCKS) expert_gemm_##NAME(elem *y, const elem *x, const elem *w, const int *starts, int S, int E, int N, int K, float alpha, float beta) { \
        rows<TB, BM, BN, WM, WN, BK, STAGES>(y, x, w, starts, S, E, N, K, alpha, beta); \
    }
EXPERT(nn_large, false, 128, 128, 2, 2, 32, 4, 1)
EXPERT(nt_large, true, 128, 128, 2, 2, 32, 4, 1)
EXPERT(nn_small, false, 64, 64, 2, 2, 32, 4, 4)
EXPERT(nt_small, true, 64, 64, 2, 2, 32, 4, 4)
EXPERT(nn_narrow, false, 64, 64, 2, 2, 128, 2, 3)
EXPERT(nt_narrow, true, 64, 64, 2, 2, 128, 2, 3)
EXPERT(nn_thin, false, 64, 32, 4, 2, 128, 3, 3)
EXPERT(nt_thin, true, 64, 32, 4, 2, 128, 3, 3)

// Grid (tiles of K, tiles of N, E), block and shared memory as above, with BK 32 and 4 stages.
#define WEIGHT(NAME, BM, BN, WM, WN, BLOCKS) \
    extern "C" __global__ void __launch_bounds__(32 * WM * WN, BLOCKS) expert_gemm_##NAME(float *dw, const elem *a, const elem *b, const int *starts, int N, int K, float alpha, float beta) { \
        weights<BM, BN, WM, WN>(dw, a, b, starts, N, K, alpha, beta); \
    }
WEIGHT(weight_small, 64, 64, 2, 2, 4)
WEIGHT(weight_thin, 128, 32, 4, 1, 4)
WEIGHT(weight_wide, 32, 256, 1, 4, 3)
#define GATHERED(NAME, BM, BN, WM, WN, BLOCKS) \
    extern "C" __global__ void __launch_bounds__(32 * WM * WN, BLOCKS) expert_gemm_##NAME(float *dw, const elem *a, const elem *x, const int *source, const int *starts, int N, int K, int per, int tokens, float alpha, float beta) { \
        gathered<BM, BN, WM, WN>(dw, a, x, source, starts, N, K, per, tokens, alpha, beta); \
    }
GATHERED(weight_gathered_small, 64, 64, 2, 2, 4)
GATHERED(weight_gathered_thin, 128, 32, 4, 1, 4)
GATHERED(weight_gathered_wide, 32, 256, 1, 4, 3)
