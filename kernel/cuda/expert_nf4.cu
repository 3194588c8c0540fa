// expert_nf4.cu: the 4-bit weights of E experts to elem, each dequantised as nf4.cu does it.
// Layout: an expert's matrix of n values as nf4.cu has it; packed [E][(n+1)/2], absmax [E][blocks] fp32 with blocks = (n+63)/64, or nested:
// scale8 [E][blocks] u8, map [256] fp32, scale2 [E][(blocks+255)/256] and offset [E] fp32; w [E][n].
// A thread makes 8 values (4 bytes in, one 16-byte store) where n is a multiple of 8, else one after the other, four rounds in flight. Bytes: 2.52 a value nested
// (0.5 + 0.02 read, 2 written). Goal: 85 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

template <bool NESTED>
__device__ void dequantise(elem *w, const uint8_t *packed, const float *code, const float *absmax, const uint8_t *scale8, const float *map, const float *scale2,
                           const float *offset, int64_t n) {
    __shared__ float table[16], scales[256];
    constexpr int THREADS = 256, ROUNDS = 4;
    int64_t e = blockIdx.y, blocks = (n + 63) >> 6, at = ((int64_t)blockIdx.x * THREADS * ROUNDS + threadIdx.x) * 8;
    w += e * n, packed += e * ((n + 1) >> 1);
    if (NESTED) scale8 += e * blocks, scale2 += e * ((blocks + 255) >> 8);
    else absmax += e * blocks;
    bool whole = n % 8 == 0;
    uint32_t q[ROUNDS], s8[ROUNDS];
    float a[ROUNDS];
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {   // every load is under way before the tables are waited for
        int64_t i = at + r * THREADS * 8;
        if (i >= n) continue;
        if (whole) q[r] = __ldcs((const uint32_t *)(packed + (i >> 1)));
        a[r] = NESTED ? scale2[i >> 14] : absmax[i >> 6];
        if (NESTED) s8[r] = scale8[i >> 6];
    }
    if (threadIdx.x < 16) table[threadIdx.x] = code[threadIdx.x];
    if (NESTED) for (int i = threadIdx.x; i < 256; i += THREADS) scales[i] = map[i];
    float shift = NESTED ? offset[e] : 0.f;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        int64_t i = at + r * THREADS * 8;
        if (i >= n) continue;
        if (NESTED) a[r] = __fadd_rn(__fmul_rn(scales[s8[r]], a[r]), shift);
        if (whole) {
            float f[8];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                uint32_t b = q[r] >> (8 * k);
                f[2 * k] = table[b >> 4 & 15] * a[r];
                f[2 * k + 1] = table[b & 15] * a[r];
            }
            store8(w + i, pack<elem>(f));
        } else {
            for (int64_t k = i; k < min(i + 8, n); k++) {
                int b = packed[k >> 1];
                w[k] = narrow<elem>(table[k & 1 ? b & 15 : b >> 4] * a[r]);
            }
        }
    }
}

// Grid (n / 8192 rounded up, E), block 256.
extern "C" __global__ void __launch_bounds__(256, 4) expert_nf4_dequantise(elem *w, const uint8_t *packed, const float *code, const float *absmax, int64_t n) {
    dequantise<false>(w, packed, code, absmax, 0, 0, 0, 0, n);
}
extern "C" __global__ void __launch_bounds__(256, 4) expert_nf4_dequantise_nested(elem *w, const uint8_t *packed, const float *code, const uint8_t *scale8, const float *map,
                                                                              const float *scale2, const float *offset, int64_t n) {
    dequantise<true>(w, packed, code, 0, scale8, map, scale2, offset, n);
}
