// fp8.cu: operands of GEMMs as 8-bit floats (e4m3, round to nearest even, at most 448): rows of activations, and 4-bit weights.
// Layout: x [M,K] row-major, codes [M,K], one scale a row = its largest magnitude / 448. A weight [N,K] in nf4.cu's layout becomes
// codes [N,K], or [K,N] for the product that contracts N, with one scale for all of it, written once for each column of a result.
// A number is multiplied by 1 / scale and rounded; where the largest is below 2^-100 codes and scale are 0.
// Rows: a block of 256 a row; rows of up to 2048 KEPT numbers are read once. Weight: a block of 256 makes 8192 codes, or a tile of 64 k by 128 n through shared memory.
// Bytes: rows 3 a number; a weight 1.52 (0.52 read, 1 written). Goal: 85 % of copy.
// Elements: bf16.
#include "nf4.cuh"

__device__ __forceinline__ uint32_t one_code(float x) {
    uint32_t b = __float_as_uint(x), m = b & 0x7fffffffu, c;
    if (m > 0x7f800000u) c = 0x7f;
    else if (m >= 0x43e00000u) c = 0x7e;   // 448
    else if (m < 0x3c800000u) c = (uint32_t)__float2int_rn(__uint_as_float(m) * 512.f);   // 1/64
    else c = min(((m + 0x7ffffu + (m >> 20 & 1)) >> 20) - (120u << 3), 0x7eu);
    return c | (b >> 24 & 0x80u);
}
// Two numbers to codes, the first in the low byte.
__device__ __forceinline__ uint32_t two_codes(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    uint16_t c;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(c) : "f"(high), "f"(low));
    return c;
#else
    return one_code(low) | one_code(high) << 8;
#endif
}

__device__ __forceinline__ float scale_of(float largest) { return largest < 0x1p-100f ? 0.f : __fmul_rn(largest, 1.f / 448.f); }   // NaN stays one
__device__ __forceinline__ float factor_of(float scale) { return scale == 0.f ? 0.f : __frcp_rn(scale); }

// codes[M,K] and scales[M] of x[M,K]. A thread keeps KEPT vectors of 8 numbers between the two passes; what a row has beyond them, and a
// row that is no multiple of 8 long, is read twice.
template <int KEPT>
__device__ __forceinline__ void rows(uint8_t *codes, float *scales, const elem *x, int K) {
    x += (int64_t)blockIdx.x * K, codes += (int64_t)blockIdx.x * K;
    int vectors = K % 8 == 0 ? K / 8 : 0, rest = min(vectors, KEPT * 256) * 8;
    Eight<elem> v[KEPT];
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int at = threadIdx.x + i * 256;
        if (at < vectors) v[i] = load8_stream(x + at * 8);
        else v[i] = fill8(0);
    }
    uint32_t largest = 0;   // magnitudes as bits, NaN above all
    float f[8];
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        unpack(v[i], f);
#pragma unroll
        for (int k = 0; k < 8; k++) largest = max(largest, __float_as_uint(f[k]) & 0x7fffffffu);
    }
    for (int k = rest + threadIdx.x; k < K; k += 256) largest = max(largest, __float_as_uint(widen(x[k])) & 0x7fffffffu);
    __shared__ uint32_t part[8];
    largest = __reduce_max_sync(~0u, largest);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = largest;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; i++) largest = max(largest, part[i]);
    float scale = scale_of(__uint_as_float(largest)), factor = factor_of(scale);
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int at = threadIdx.x + i * 256;
        if (at >= vectors) continue;
        unpack(v[i], f);
        uint2 out;
        out.x = two_codes(f[0] * factor, f[1] * factor) | two_codes(f[2] * factor, f[3] * factor) << 16;
        out.y = two_codes(f[4] * factor, f[5] * factor) | two_codes(f[6] * factor, f[7] * factor) << 16;
        *(uint2 *)(codes + at * 8) = out;
    }
    for (int k = rest + threadIdx.x; k < K; k += 256) codes[k] = two_codes(widen(x[k]) * factor, 0.f) & 255;
}
#define ROWS(KEPT, BLOCKS)                                                                                                             \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) fp8_rows_##KEPT(uint8_t *codes, float *scales, const elem *x, int K) { \
        rows<KEPT>(codes, scales, x, K);                                                                                              \
    }
ROWS(1, 8)
ROWS(2, 8)
ROWS(4, 5)
ROWS(6, 4)
ROWS(8, 3)

// scales[n] = (the largest of all[count], plus offset where there is one) / 448. Grid 1, block 1024.
extern "C" __global__ void __launch_bounds__(1024) fp8_scale(float *scales, const float *all, const float *offset, int count, int n) {
    float most = 0.f;
    for (int i = threadIdx.x; i < count; i += blockDim.x) most = fmaxf(most, all[i]);
    most = block_max(most);
    if (offset) most = __fadd_rn(most, *offset);
    most = scale_of(most);
    for (int i = threadIdx.x; i < n; i += blockDim.x) scales[i] = most;
}

__device__ __forceinline__ float block_scale(Scale s, const float *map, int64_t block) {
    if (s.absmax) return s.absmax[block];
    return __fadd_rn(__fmul_rn(map[s.scale8[block]], s.scale2[block >> 8]), *s.offset);
}
// Eight values of 4 bytes of codes, the first in the low byte's high nibble.
__device__ __forceinline__ uint2 eight_codes(uint32_t q, const float *table, float absmax, float factor) {
    float f[8];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t b = q >> (8 * k);
        f[2 * k] = __fmul_rn(__fmul_rn(table[b >> 4 & 15], absmax), factor);
        f[2 * k + 1] = __fmul_rn(__fmul_rn(table[b & 15], absmax), factor);
    }
    uint2 out;
    out.x = two_codes(f[0], f[1]) | two_codes(f[2], f[3]) << 16;
    out.y = two_codes(f[4], f[5]) | two_codes(f[6], f[7]) << 16;
    return out;
}

// w[N,K]: a block makes 8192 codes, a thread 16 of each of two parts; K is a multiple of 64.
__device__ __forceinline__ void weight_rows(uint8_t *w, const float *scales, const uint8_t *packed, const float *code, Scale s, int N, int K) {
    __shared__ float table[16], map[256];
    if (threadIdx.x < 16) table[threadIdx.x] = code[threadIdx.x];
    if (!s.absmax) map[threadIdx.x] = s.map[threadIdx.x];
    float factor = factor_of(scales[0]);
    __syncthreads();
    int64_t n = (int64_t)N * K;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int64_t at = (int64_t)blockIdx.x * 8192 + r * 4096 + threadIdx.x * 16;
        if (at >= n) return;
        uint2 q = *(const uint2 *)(packed + (at >> 1));
        float absmax = block_scale(s, map, at >> 6);
        uint2 a = eight_codes(q.x, table, absmax, factor), b = eight_codes(q.y, table, absmax, factor);
        *(uint4 *)(w + at) = make_uint4(a.x, a.y, b.x, b.y);
    }
}
// wt[K,N]: a tile of 64 k by 128 n; a thread reads half a block of 64 of one n. N is a multiple of 128, K of 64.
__device__ __forceinline__ void weight_columns(uint8_t *wt, const float *scales, const uint8_t *packed, const float *code, Scale s, int N, int K) {
    enum { PITCH = 144 };
    __shared__ float table[16], map[256];
    __shared__ __align__(16) uint8_t tile[64 * PITCH];
    if (threadIdx.x < 16) table[threadIdx.x] = code[threadIdx.x];
    if (!s.absmax) map[threadIdx.x] = s.map[threadIdx.x];
    float factor = factor_of(scales[0]);
    int k0 = blockIdx.x * 64, n0 = blockIdx.y * 128, n = threadIdx.x >> 1, half = threadIdx.x & 1;
    int64_t at = (int64_t)(n0 + n) * K + k0 + half * 32;
    uint4 q = *(const uint4 *)(packed + (at >> 1));
    __syncthreads();
    float absmax = block_scale(s, map, at >> 6);
    uint32_t words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint2 c = eight_codes(words[i], table, absmax, factor);
        uint8_t *to = tile + (half * 32 + i * 8) * PITCH + n;
#pragma unroll
        for (int k = 0; k < 4; k++) to[k * PITCH] = c.x >> (8 * k), to[(k + 4) * PITCH] = c.y >> (8 * k);
    }
    __syncthreads();
    int k = threadIdx.x >> 2, part = (threadIdx.x & 3) * 32;
    uint8_t *to = wt + (int64_t)(k0 + k) * N + n0 + part;
    const uint8_t *from = tile + k * PITCH + part;
    *(uint4 *)to = *(const uint4 *)from;
    *(uint4 *)(to + 16) = *(const uint4 *)(from + 16);
}

// Grid: N K / 8192 rounded up.
extern "C" __global__ void __launch_bounds__(256) fp8_weight(uint8_t *w, const float *scales, const uint8_t *packed, const float *code, const float *absmax, int N, int K) {
    weight_rows(w, scales, packed, code, Scale{absmax, 0, 0, 0, 0}, N, K);
}
extern "C" __global__ void __launch_bounds__(256) fp8_weight_nested(uint8_t *w, const float *scales, const uint8_t *packed, const float *code, const uint8_t *scale8,
                                                                   const float *map, const float *scale2, const float *offset, int N, int K) {
    weight_rows(w, scales, packed, code, Scale{0, scale8, map, scale2, offset}, N, K);
}
// Grid: K / 64, N / 128.
extern "C" __global__ void __launch_bounds__(256) fp8_weight_transposed(uint8_t *wt, const float *scales, const uint8_t *packed, const float *code, const float *absmax,
                                                                       int N, int K) {
    weight_columns(wt, scales, packed, code, Scale{absmax, 0, 0, 0, 0}, N, K);
}
extern "C" __global__ void __launch_bounds__(256) fp8_weight_nested_transposed(uint8_t *wt, const float *scales, const uint8_t *packed, const float *code,
                                                                              const uint8_t *scale8, const float *map, const float *scale2, const float *offset,
                                                                              int N, int K) {
    weight_columns(wt, scales, packed, code, Scale{0, scale8, map, scale2, offset}, N, K);
}
