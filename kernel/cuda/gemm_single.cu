// gemm_single.cu: D[M,N] = alpha op(A)[M,K] op(B)[K,N] + beta D in fp32 without tensor cores, for plans in fp32 and TF32 where
// cuBLASLt is absent.
// Layout: nn, nt, tn as gemm.cu; all matrices fp32, addresses and rows of any alignment.
// One block of 256 threads makes a tile of 64x64 in steps of 16: a thread 4x4 of it, read value by value, so a warp's reads are
// neighbours where the matrix's rows are. gridDim.z > 1 divides K as in gemm.cu. Accumulation fp32 by fused multiply-adds.
// FLOPs 2 M N K. Goal: none of speed; the result is cuBLASLt's in fp32 but for the order of sums.
#include "gemm_single.cuh"

template <bool TA, bool TB>
__device__ void gemm(float *out, const float *a, const float *b, int M, int N, int K, int64_t lda, int64_t ldb, int64_t ldd, float alpha, float beta) {
    int row0, col0, per = ((K + 15) / 16 + gridDim.z - 1) / gridDim.z * 16, k0 = blockIdx.z * per;
    tile_of<64, 64>(blockIdx.x, M, N, row0, col0);
    if (gridDim.z > 1) out += (int64_t)blockIdx.z * M * N, ldd = N, beta = 0.f;
    gemm_tile<TA, TB>(out, a, b, M, N, row0, col0, k0, min(K, k0 + per), lda, ldb, ldd, alpha, beta);
}

// Grid (tiles of M times tiles of N, 1, parts of K), block 256.
#define GEMM(NAME, TA, TB) \
    extern "C" __global__ void __launch_bounds__(256, 1) gemm_single_##NAME(float *d, const float *a, const float *b, int M, int N, int K, int lda, int ldb, int ldd, float alpha, float beta) { \
        gemm<TA, TB>(d, a, b, M, N, K, lda, ldb, ldd, alpha, beta); \
    }
GEMM(nn, false, false)
GEMM(nt, false, true)
GEMM(tn, true, false)
