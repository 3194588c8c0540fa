// nf4_gemm.cu: Y[M,N] = X[M,K] W^T + beta Y for few rows, W [N,K] decoded from 4 bits inside the product.
// Layout: X, Y elem, rows ldx, ldy values apart (ldx a multiple of 8); W packed as nf4.cu, K a multiple of 64, so that a block of 64
// belongs to one row; scales plain or nested as there. The weights' numbers are those of nf4_dequantise, bit for bit.
// One block of 8 warps makes 16 columns of Y: warp w takes the blocks w, w+8, ... of K, a lane 16 neighbouring values of two rows
// (8 bytes each), and the warps' sums are added in order in shared memory. W is the left operand of mma.sync, X the right one; the
// inner index is permuted the same way on both sides, so that nothing is shuffled.
// Accumulation fp32. Bytes 0.52 a weight. Goal: 70 % of copy for M <= 8; beyond M = 32 dequantising first is faster.
// Elements: bf16, f16.
#include "common.cuh"

struct Weights {
    const uint8_t *packed;
    const float *code, *absmax;              // plain
    const uint8_t *scale8;                   // nested
    const float *map, *scale2, *offset;
};

template <int TILES>   // of 8 rows of X
__device__ void product(elem *y, const elem *x, const Weights &w, int M, int N, int K, int ldx, int ldy, float beta) {
    __shared__ float table[16], map[256];
    __shared__ float sums[8][16][8 * TILES + 1];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane / 4, t = lane % 4, n0 = blockIdx.x * 16, blocks = K / 64;
    if (threadIdx.x < 16) table[threadIdx.x] = w.code[threadIdx.x];
    if (!w.absmax) map[threadIdx.x] = w.map[threadIdx.x];
    float offset = w.absmax ? 0.f : *w.offset;
    __syncthreads();
    float acc[TILES][4];
#pragma unroll
    for (int i = 0; i < TILES; i++) acc[i][0] = acc[i][1] = acc[i][2] = acc[i][3] = 0.f;
    int row[2] = {min(n0 + g, N - 1), min(n0 + g + 8, N - 1)};
    uint2 q[2];   // the next block's bytes and scales are on their way while this one is decoded
    float m[2];
    uint32_t s8[2];
    auto fetch = [&](int b) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int64_t block = (int64_t)row[r] * blocks + b;
            q[r] = __ldcs((const uint2 *)(w.packed + block * 32 + t * 8));
            if (w.absmax) m[r] = w.absmax[block];
            else s8[r] = w.scale8[block], m[r] = w.scale2[block >> 8];
        }
    };
    if (warp < blocks) fetch(warp);
    for (int b = warp; b < blocks; b += 8) {
        uint32_t a[2][8];   // 16 values of two rows as elem pairs
        uint2 q0[2] = {q[0], q[1]};
        float m0[2];
#pragma unroll
        for (int r = 0; r < 2; r++) m0[r] = w.absmax ? m[r] : __fadd_rn(__fmul_rn(map[s8[r]], m[r]), offset);
        if (b + 8 < blocks) fetch(b + 8);
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int k = 0; k < 8; k++) {
                uint32_t v = (k < 4 ? q0[r].x : q0[r].y) >> (k % 4 * 8);
                a[r][k] = pack2(table[v >> 4 & 15] * m0[r], table[v & 15] * m0[r]);
            }
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            int m = i * 8 + g;
            uint4 u = make_uint4(0, 0, 0, 0), v = u;
            if (m < M) {
                const uint4 *p = (const uint4 *)(x + (int64_t)m * ldx + b * 64 + t * 16);
                u = p[0], v = p[1];
            }
            uint32_t f[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
#pragma unroll
            for (int s = 0; s < 4; s++) {
                uint32_t l[4] = {a[0][2 * s], a[1][2 * s], a[0][2 * s + 1], a[1][2 * s + 1]};
                mma(acc[i], l, f[2 * s], f[2 * s + 1]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) sums[warp][g + (c >> 1) * 8][i * 8 + t * 2 + (c & 1)] = acc[i][c];
    __syncthreads();
    for (int i = threadIdx.x; i < 16 * 8 * TILES; i += 256) {
        int n = i % 16, m = i / 16;
        float s = 0;
#pragma unroll
        for (int k = 0; k < 8; k++) s += sums[k][n][m];
        if (m < M && n0 + n < N) {
            elem *p = y + (int64_t)m * ldy + n0 + n;
            *p = narrow(beta != 0.f ? fmaf(beta, widen(*p), s) : s);
        }
    }
}

// Grid N / 16 rounded up, block 256; M at most 8, 32.
#define PRODUCT(ROWS) \
    extern "C" __global__ void __launch_bounds__(256) nf4_gemm_##ROWS(elem *y, const elem *x, const uint8_t *packed, const float *code, const float *absmax, \
        int M, int N, int K, int ldx, int ldy, float beta) { \
        product<ROWS / 8>(y, x, Weights{packed, code, absmax, 0, 0, 0, 0}, M, N, K, ldx, ldy, beta); \
    } \
    extern "C" __global__ void __launch_bounds__(256) nf4_gemm_nested_##ROWS(elem *y, const elem *x, const uint8_t *packed, const float *code, const uint8_t *scale8, \
        const float *map, const float *scale2, const float *offset, int M, int N, int K, int ldx, int ldy, float beta) { \
        product<ROWS / 8>(y, x, Weights{packed, code, 0, scale8, map, scale2, offset}, M, N, K, ldx, ldy, beta); \
    }
PRODUCT(8)
PRODUCT(32)
