// column_sums.cu: sums over the rows of a matrix, the gradients of biases and of the weights of norms.
// Layout: dy, x [M,C] elem; rstd [M] fp32; part [S,C] fp32, the sums of S parts of the rows, which reduce_splits adds in their order.
// A block takes 64 columns and a part of the rows: a warp takes every eighth row, a lane two columns; the eight warps' sums are added
// in their order. The order depends on M, C and S alone. Accumulation fp32.
// Bytes: 2 a value for a bias, 4 for a norm. Goal: 80 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

template <bool NORM>
__device__ void sums(float *part, const elem *dy, const elem *x, const float *rstd, int64_t M, int C, int S) {
    __shared__ float own[8][64];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, c = blockIdx.x * 64 + lane;
    int64_t rows = (M + S - 1) / S, first = blockIdx.y * rows, end = min(first + rows, M);
    float a = 0.f, b = 0.f;
    for (int64_t m = first + warp; m < end; m += 8) {
        float r = NORM ? rstd[m] : 1.f;
        if (c < C) a += NORM ? widen(dy[m * C + c]) * (widen(x[m * C + c]) * r) : widen(dy[m * C + c]);
        if (c + 32 < C) b += NORM ? widen(dy[m * C + c + 32]) * (widen(x[m * C + c + 32]) * r) : widen(dy[m * C + c + 32]);
    }
    own[warp][lane] = a;
    own[warp][lane + 32] = b;
    __syncthreads();
    c = blockIdx.x * 64 + threadIdx.x;
    if (threadIdx.x >= 64 || c >= C) return;
    float sum = 0.f;
#pragma unroll
    for (int w = 0; w < 8; w++) sum += own[w][threadIdx.x];
    part[(int64_t)blockIdx.y * C + c] = sum;
}

// Sums of dy. Grid ceil(C/64), S.
extern "C" __global__ void __launch_bounds__(256) column_sums_bias(float *part, const elem *dy, int64_t M, int C, int S) {
    sums<false>(part, dy, nullptr, nullptr, M, C, S);
}

// Sums of dy x rstd. Grid ceil(C/64), S.
extern "C" __global__ void __launch_bounds__(256) column_sums_norm(float *part, const elem *dy, const elem *x, const float *rstd, int64_t M,
                                                                    int C, int S) {
    sums<true>(part, dy, x, rstd, M, C, S);
}
