// attention_single.cuh: what the attention kernels for fp32 share: tiles of fp32 in shared memory and sums of products by fused
// multiply-adds. Eight neighbouring threads own a row of a tile.
#pragma once
#include "attention.cuh"

// R rows of DP values, padded by 4: float4 reads of neighbouring rows lie in different banks.
template <int DP>
struct Rows {
    static constexpr int LD = DP + 4;
    __device__ static constexpr int floats(int rows) { return rows * LD; }
};

// Loads rows [row, row+R) of a [M, ...] matrix whose rows are ld values apart; rows beyond M and values beyond D become zero.
template <int DP, int R>
__device__ __forceinline__ void load_rows(float *dst, const float *src, int row, int M, int D, int64_t ld) {
    constexpr int UNITS = DP / 4;
    for (int i = threadIdx.x; i < R * UNITS; i += 8 * R) {
        int r = i / UNITS, c = i % UNITS * 4;
        float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
        if (row + r < M && c < D) v = *(const float4 *)(src + (int64_t)(row + r) * ld + c);
        *(float4 *)(dst + r * Rows<DP>::LD + c) = v;
    }
}

// s[j] = a . b[t + 8 j]: the dot products of a row with every eighth row of a tile.
template <int DP, int R>
__device__ __forceinline__ void dots(float (&s)[R / 8], const float *a, const float *b) {
    int t = threadIdx.x & 7;
#pragma unroll
    for (int j = 0; j < R / 8; j++) s[j] = 0.f;
#pragma unroll 4
    for (int c = 0; c < DP; c += 4) {
        float4 x = *(const float4 *)(a + c);
#pragma unroll
        for (int j = 0; j < R / 8; j++) {
            float4 y = *(const float4 *)(b + (t + 8 * j) * Rows<DP>::LD + c);
            s[j] = fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, fmaf(x.w, y.w, s[j]))));
        }
    }
}

// acc += sum over the R rows of b of p[r] b[r]; a thread holds the columns 4 t + 32 i .. + 3 of DP, which it keeps in acc[4 i ..].
template <int DP, int R>
__device__ __forceinline__ void weigh(float (&acc)[(DP + 31) / 32 * 4], const float *p, const float *b) {
    int t = threadIdx.x & 7;
#pragma unroll 2
    for (int r = 0; r < R; r++) {
        float w = p[r];
#pragma unroll
        for (int i = 0; i < (DP + 31) / 32; i++) {
            int c = 4 * t + 32 * i;
            if (DP % 32 && c >= DP) continue;
            float4 y = *(const float4 *)(b + r * Rows<DP>::LD + c);
            acc[4 * i] = fmaf(w, y.x, acc[4 * i]);
            acc[4 * i + 1] = fmaf(w, y.y, acc[4 * i + 1]);
            acc[4 * i + 2] = fmaf(w, y.z, acc[4 * i + 2]);
            acc[4 * i + 3] = fmaf(w, y.w, acc[4 * i + 3]);
        }
    }
}

// Writes a row of such an accumulator times f; columns beyond D are left out.
template <int DP>
__device__ __forceinline__ void store_row(float *dst, const float (&acc)[(DP + 31) / 32 * 4], float f, int D) {
    int t = threadIdx.x & 7;
#pragma unroll
    for (int i = 0; i < (DP + 31) / 32; i++) {
        int c = 4 * t + 32 * i;
        if (c < D) *(float4 *)(dst + c) = make_float4(acc[4 * i] * f, acc[4 * i + 1] * f, acc[4 * i + 2] * f, acc[4 * i + 3] * f);
    }
}

// Sums and maxima over the eight threads of a row, in all of them.
__device__ __forceinline__ float row_sum(float v) {
#pragma unroll
    for (int o = 4; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}
__device__ __forceinline__ float row_max(float v) {
#pragma unroll
    for (int o = 4; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
    return v;
}
