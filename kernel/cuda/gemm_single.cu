// gemm_single.cu: D[M,N] = alpha op(A)[M,K] op(B)[K,N] + beta D in fp32 without tensor cores, for plans in fp32 and TF32 where
// cuBLASLt is absent.
// Layout: nn, nt, tn as gemm.cu; all matrices fp32, addresses and rows of any alignment.
// One block of 256 threads makes a tile of 64x64 in steps of 16: a thread 4x4 of it, read value by value, so a warp's reads are
// neighbours where the matrix's rows are. gridDim.z > 1 divides K as in gemm.cu. Accumulation fp32 by fused multiply-adds.
// FLOPs 2 M N K. Goal: none of speed; the result is cuBLASLt's in fp32 but for the order of sums.
#include "gemm.cuh"

template <bool TA, bool TB>
__device__ void gemm(float *out, const float *a, const float *b, int M, int N, int K, int64_t lda, int64_t ldb, int64_t ldd, float alpha, float beta) {
    constexpr int BM = 64, BN = 64, BK = 16;
    __shared__ float sa[BK][BM + 4], sb[BK][BN + 4];
    int row0, col0;
    tile_of<BM, BN>(blockIdx.x, M, N, row0, col0);
    int per = ((K + BK - 1) / BK + gridDim.z - 1) / gridDim.z * BK, k0 = blockIdx.z * per, k1 = min(K, k0 + per);
    int ty = threadIdx.x / 16 * 4, tx = threadIdx.x % 16 * 4;
    float acc[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) acc[i][j] = 0.f;
    for (int k = k0; k < k1; k += BK) {
        __syncthreads();
#pragma unroll
        for (int i = threadIdx.x; i < BM * BK; i += 256) {
            int r = TA ? i % BM : i / BK, c = TA ? i / BM : i % BK, m = row0 + r, l = k + c;
            sa[c][r] = m < M && l < k1 ? a[TA ? l * lda + m : m * lda + l] : 0.f;
        }
#pragma unroll
        for (int i = threadIdx.x; i < BN * BK; i += 256) {
            int c = TB ? i / BK : i % BN, r = TB ? i % BK : i / BN, n = col0 + c, l = k + r;
            sb[r][c] = n < N && l < k1 ? b[TB ? n * ldb + l : l * ldb + n] : 0.f;
        }
        __syncthreads();
#pragma unroll
        for (int l = 0; l < BK; l++) {
            float4 x = *(const float4 *)&sa[l][ty], y = *(const float4 *)&sb[l][tx];
            float u[4] = {x.x, x.y, x.z, x.w}, v[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) acc[i][j] = fmaf(u[i], v[j], acc[i][j]);
        }
    }
    if (gridDim.z > 1) out += (int64_t)blockIdx.z * M * N, ldd = N, beta = 0.f;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int m = row0 + ty + i, n = col0 + tx + j;
            if (m >= M || n >= N) continue;
            float *p = out + m * ldd + n, x = alpha * acc[i][j];
            *p = beta != 0.f ? fmaf(beta, *p, x) : x;
        }
}

// Grid (tiles of M times tiles of N, 1, parts of K), block 256.
#define GEMM(NAME, TA, TB) \
    extern "C" __global__ void __launch_bounds__(256, 1) gemm_single_##NAME(float *d, const float *a, const float *b, int M, int N, int K, int lda, int ldb, int ldd, float alpha, float beta) { \
        gemm<TA, TB>(d, a, b, M, N, K, lda, ldb, ldd, alpha, beta); \
    }
GEMM(nn, false, false)
GEMM(nt, false, true)
GEMM(tn, true, false)
