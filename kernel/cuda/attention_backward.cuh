// attention_backward.cuh: what attention_backward.cu and attention_backward_wide.cu share.
#pragma once
#include "attention.cuh"

constexpr float LOG2E = 1.4426950408889634f;

template <int MT, int NT>
__device__ __forceinline__ void clear(float (&a)[MT][NT][4]) {
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++) a[i][j][0] = a[i][j][1] = a[i][j][2] = a[i][j][3] = 0.f;
}

// Ends a block of keys: dK times scale and dV, from row row0 and column col of key head kv on, W columns; with several splits to part.
template <int W, int MT>
__device__ __forceinline__ void store_keys(elem *dk, elem *dv, float *part, const float (&gk)[MT][W / 8][4], const float (&gv)[MT][W / 8][4],
                                           int row0, int kv, int col, int M, int K, int D, int ldk, float scale) {
    int lane = threadIdx.x & 31;
    if (gridDim.z == 1) {
        float one[MT][2], f[MT][2];
#pragma unroll
        for (int i = 0; i < MT; i++) one[i][0] = one[i][1] = 1.f, f[i][0] = f[i][1] = scale;
        store_rows<W, MT>(dk + kv * D, gk, f, row0, M, col, D, ldk);
        store_rows<W, MT>(dv + kv * D, gv, one, row0, M, col, D, ldk);
        return;
    }
    int64_t size = (int64_t)M * K * D;
    part += (int64_t)blockIdx.z * 2 * size;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = row0 + i * 16 + h * 8 + lane / 4;
            if (row >= M) continue;
#pragma unroll
            for (int d = 0; d < W / 8; d++) {
                int c = col + d * 8 + lane % 4 * 2;
                int64_t at = ((int64_t)row * K + kv) * D + c;
                if (c < D) {
                    *(float2 *)(part + at) = make_float2(gk[i][d][2 * h] * scale, gk[i][d][2 * h + 1] * scale);
                    *(float2 *)(part + size + at) = make_float2(gv[i][d][2 * h], gv[i][d][2 * h + 1]);
                }
            }
        }
}
