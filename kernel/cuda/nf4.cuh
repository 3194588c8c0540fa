// nf4.cuh: 4-bit weights in the layout of nf4.cu to a type of elements.
#pragma once
#include "common.cuh"

// Blocks' scales, fp32, or nested where absmax is null.
struct Scale {
    const float *absmax;
    const uint8_t *scale8;
    const float *map, *scale2, *offset;
};

// A block of threads makes 8192 values of w [n], half of what a number of scale2 is for: 8 a thread (4 bytes in, one 16-byte store), four
// rounds in flight; the code table is in shared memory, where 16 words never conflict. aligned: w and packed are at multiples of 16 and 4
// bytes; else values come one by one.
template <typename T>
__device__ __forceinline__ void dequantise(T *w, const uint8_t *packed, const float *code, Scale s, int64_t n, bool aligned) {
    constexpr int THREADS = 256, ROUNDS = 4, PART = THREADS * ROUNDS * 8;
    __shared__ float table[16], map[256];
    int64_t first = (int64_t)blockIdx.x * PART;
    int count = min(n - first, (int64_t)PART), at = threadIdx.x * 8;
    w += first, packed += first >> 1;
    if (s.absmax) s.absmax += first >> 6;
    else s.scale8 += first >> 6;
    uint32_t q[ROUNDS], s8[ROUNDS];
    float a[ROUNDS], outer = s.absmax ? 0.f : s.scale2[blockIdx.x >> 1], offset = s.absmax ? 0.f : *s.offset;
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {   // every load is under way before the tables are waited for
        int i = at + r * THREADS * 8;
        if (aligned && i + 8 <= count) q[r] = __ldcs((const uint32_t *)(packed + (i >> 1)));
        if (i < count) {
            if (s.absmax) a[r] = s.absmax[i >> 6];
            else s8[r] = s.scale8[i >> 6];
        }
    }
    if (threadIdx.x < 16) table[threadIdx.x] = code[threadIdx.x];
    if (!s.absmax) map[threadIdx.x] = s.map[threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        int i = at + r * THREADS * 8;
        if (i >= count) break;
        if (!s.absmax) a[r] = __fadd_rn(__fmul_rn(map[s8[r]], outer), offset);
        if (aligned && i + 8 <= count) {
            float f[8];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                uint32_t b = q[r] >> (8 * k);
                f[2 * k] = table[b >> 4 & 15] * a[r];
                f[2 * k + 1] = table[b & 15] * a[r];
            }
            store8_whole(w + i, pack<T>(f));
        } else {
#pragma unroll 1
            for (int k = i; k < min(i + 8, count); k++) {
                int b = packed[k >> 1];
                w[k] = narrow<T>(table[k & 1 ? b & 15 : b >> 4] * a[r]);
            }
        }
    }
}
