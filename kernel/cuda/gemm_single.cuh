// gemm_single.cuh: one block's tile of a GEMM in fp32, as gemm_single.cu's header has it.
#pragma once
#include "gemm.cuh"

// D's tile of 64 x 64 at row0, col0 over the inner values k0 to k1. Block 256. row(l) is the row of b that stands for its l-th, where
// b is not transposed; negative = zeros.
template <bool TA, bool TB, class Row>
__device__ void gemm_tile_of(Row row, float *out, const float *a, const float *b, int M, int N, int row0, int col0, int k0, int k1, int64_t lda, int64_t ldb, int64_t ldd,
                             float alpha, float beta) {
    constexpr int BM = 64, BN = 64, BK = 16;
    __shared__ float sa[BK][BM + 4], sb[BK][BN + 4];
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
            int64_t own = TB || l >= k1 ? l : row(l);
            sb[r][c] = n < N && l < k1 && own >= 0 ? b[TB ? n * ldb + l : own * ldb + n] : 0.f;
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

template <bool TA, bool TB>
__device__ void gemm_tile(float *out, const float *a, const float *b, int M, int N, int row0, int col0, int k0, int k1, int64_t lda, int64_t ldb, int64_t ldd,
                          float alpha, float beta) {
    gemm_tile_of<TA, TB>([](int l) -> int64_t { return l; }, out, a, b, M, N, row0, col0, k0, k1, lda, ldb, ldd, alpha, beta);
}
