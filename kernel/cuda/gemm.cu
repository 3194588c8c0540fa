// gemm.cu: D[M,N] = alpha op(A)[M,K] op(B)[K,N] + beta D on tensor cores, for where cuBLASLt is absent.
// Layout, all row-major with leading dimensions in values: nn: A [M,K], B [K,N] (dX = dY W); nt: A [M,K], B [N,K] (Y = X W^T);
// tn: A [K,M], B [K,N] (dA = dT^T X). D elem, or fp32 with f32 != 0.
// Tiles: wide 128x256 (8 warps of 64x64), large 128x128 (4 warps of 64x64), small 64x64 (4 warps of 32x32), thin 128x32 (4 warps
// of 32x32); inner step 32, four stages of cp.async, mma.sync (compute capability 8.0 and later). While one step of 16 is
// multiplied the next one's values come from shared memory. Blocks walk the tiles in columns of 8 for the cache.
//       N ->               one block, large:             one warp's 16 x 8 piece of mma.sync, fp32:
//   M  +----+----+         a stage is A 128 x 32         lane l holds rows l/4 and l/4 + 8,
//   |  | w0 | w2 |         and B 32 x 128, 16 KB;        columns 2 (l%4) and the next
//   v  +----+----+         a warp makes 64 x 64 of D
//      | w1 | w3 |         from 4 x 8 such pieces
//      +----+----+
// gridDim.z > 1 divides K: D is then fp32 [z][M,N] packed, each part alpha A B; reduce_splits adds them in order.
// Rows or addresses that are no multiple of 16 bytes are read value by value: right, and slow.
// Accumulation fp32. FLOPs 2 M N K. Goal: 60 % of cuBLASLt at M >= 2048.
// Elements: bf16, f16.
#include "gemm_tile.cuh"

template <bool TA, bool TB, int BM, int BN, int WARPS_M, int WARPS_N>
__device__ void gemm(void *out, const elem *a, const elem *b, int M, int N, int K, int64_t lda, int64_t ldb, int64_t ldd, float alpha, float beta, int f32) {
    int row0, col0, per = ((K + 31) / 32 + gridDim.z - 1) / gridDim.z * 32, k0 = blockIdx.z * per;
    tile_of<BM, BN>(blockIdx.x, M, N, row0, col0);
    bool parts = gridDim.z > 1;
    if (parts) out = (float *)out + (int64_t)blockIdx.z * M * N, ldd = N, beta = 0.f;
    gemm_tile<TA, TB, BM, BN, WARPS_M, WARPS_N>(out, 0, a, b, M, N, row0, col0, k0, min(K, k0 + per), lda, ldb, ldd, alpha, beta, parts || f32);
}

// Grid (tiles of M times tiles of N, 1, parts of K), block 32 WM WN, dynamic shared memory 4 stages of (BM + BN) 64 bytes.
#define GEMM(NAME, TA, TB, BM, BN, WM, WN) \
    extern "C" __global__ void __launch_bounds__(32 * WM * WN, BM * BN < 16384 ? 4 : 1) gemm_##NAME(void *d, const elem *a, const elem *b, int M, int N, int K, int lda, int ldb, int ldd, float alpha, float beta, int f32) { \
        gemm<TA, TB, BM, BN, WM, WN>(d, a, b, M, N, K, lda, ldb, ldd, alpha, beta, f32); \
    }
GEMM(nn_wide, false, false, 128, 256, 2, 4)
GEMM(nt_wide, false, true, 128, 256, 2, 4)
GEMM(tn_wide, true, false, 128, 256, 2, 4)
GEMM(nn_large, false, false, 128, 128, 2, 2)
GEMM(nt_large, false, true, 128, 128, 2, 2)
GEMM(tn_large, true, false, 128, 128, 2, 2)
GEMM(nn_small, false, false, 64, 64, 2, 2)
GEMM(nt_small, false, true, 64, 64, 2, 2)
GEMM(tn_small, true, false, 64, 64, 2, 2)
GEMM(nn_thin, false, false, 128, 32, 4, 1)
GEMM(nt_thin, false, true, 128, 32, 4, 1)
GEMM(tn_thin, true, false, 128, 32, 4, 1)
