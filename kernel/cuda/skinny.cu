// skinny.cu: D = alpha X W^T + beta D for few rows X, as in generation: W is read once, as it is stored, at the speed of memory.
// Layout: X [M,K] elem, M at most 8 NT; W [N,K] elem, or 4-bit codes of W as in nf4.cu; D [M,N] elem or fp32. K a multiple of 8, of 64
// for codes; rows of X and W at multiples of 16 bytes.
// A block makes 16 columns of D: W's rows are the 16 rows of mma.m16n8k16, X's the 8 columns, NT times. Eight warps share K in pieces of
// 128, each thread 16 bytes of a row of W at a time; inner indices are permuted alike in both operands, so that these 16 bytes are what
// its fragments hold. A warp adds its pieces in ascending order, the warps' sums are added in theirs. So a row of D has the same bits
// whatever the other rows are, and how many there are.
// A weight from codes is code[c] * absmax rounded to elem: the numbers of nf4_dequantise.
// Bytes: 2 N K, codes 0.52 N K (M up to 8). Goal: 85 % of copy.
// Elements: bf16, f16.
#include "common.cuh"

constexpr int WARPS = 8, PIECE = 128;

// The sums of a warp's fragments: acc[nt][0,1] are row g of the 16, columns 2t and 2t+1 of eight; [2,3] row g + 8.
template <int NT>
struct Sums {
    float acc[NT][4];
    __device__ __forceinline__ Sums() {
#pragma unroll
        for (int i = 0; i < NT; i++) acc[i][0] = acc[i][1] = acc[i][2] = acc[i][3] = 0.f;
    }
    // Adds eight inner values of both rows of W times those of X at x: a multiple of 8 elements.
    __device__ __forceinline__ void add(const uint4 &w0, const uint4 &w1, const elem *x, int K, int M, bool there) {
        int g = (threadIdx.x & 31) >> 2;
        uint32_t first[4] = {w0.x, w1.x, w0.y, w1.y}, second[4] = {w0.z, w1.z, w0.w, w1.w};
#pragma unroll
        for (int i = 0; i < NT; i++) {
            uint4 b = make_uint4(0, 0, 0, 0);
            if (there && i * 8 + g < M) b = *(const uint4 *)(x + (int64_t)(i * 8 + g) * K);
            mma(acc[i], first, b.x, b.y);
            mma(acc[i], second, b.z, b.w);
        }
    }
    __device__ __forceinline__ void write(void *d, int n0, int M, int N, float alpha, float beta, int f32) {
        __shared__ float part[WARPS][NT * 128];
        int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        float *own = part[threadIdx.x >> 5];
#pragma unroll
        for (int i = 0; i < NT; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) own[i * 128 + (2 * t + (e & 1)) * 16 + g + 8 * (e >> 1)] = acc[i][e];
        __syncthreads();
        for (int e = threadIdx.x; e < NT * 128; e += WARPS * 32) {
            int m = e >> 4, n = n0 + (e & 15);
            if (m >= M || n >= N) continue;
            float v = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) v += part[w][e];
            v *= alpha;
            int64_t at = (int64_t)m * N + n;
            if (f32) ((float *)d)[at] = beta == 0.f ? v : fmaf(beta, ((float *)d)[at], v);
            else ((elem *)d)[at] = narrow(beta == 0.f ? v : fmaf(beta, widen(((elem *)d)[at]), v));
        }
    }
};

template <int NT>
__device__ __forceinline__ void skinny(void *d, const elem *x, const elem *w, int M, int N, int K, float alpha, float beta, int f32) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, at = (lane & 3) * 8, n0 = blockIdx.x * 16;
    const elem *w0 = w + (int64_t)min(n0 + g, N - 1) * K + at, *w1 = w + (int64_t)min(n0 + g + 8, N - 1) * K + at;
    Sums<NT> sums;
    for (int k = warp * PIECE; k < K; k += WARPS * PIECE) {
        uint4 a[4], b[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            a[j] = b[j] = make_uint4(0, 0, 0, 0);
            if (k + j * 32 + at < K) a[j] = __ldcs((const uint4 *)(w0 + k + j * 32)), b[j] = __ldcs((const uint4 *)(w1 + k + j * 32));
        }
#pragma unroll
        for (int j = 0; j < 4; j++) sums.add(a[j], b[j], x + k + j * 32 + at, K, M, k + j * 32 + at < K);
    }
    sums.write(d, n0, M, N, alpha, beta, f32);
}

// Eight weights of a row from four bytes of codes, as elem.
__device__ __forceinline__ uint4 weights(uint32_t q, const float *table, float absmax) {
    float f[8];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t b = q >> (8 * i);
        f[2 * i] = table[b >> 4 & 15] * absmax;
        f[2 * i + 1] = table[b & 15] * absmax;
    }
    return make_uint4(pack2(f[0], f[1]), pack2(f[2], f[3]), pack2(f[4], f[5]), pack2(f[6], f[7]));
}

// Each thread takes 32 neighbours of a row, which have one absmax: 16 bytes of codes.
template <int NT, bool NESTED>
__device__ __forceinline__ void skinny_codes(void *d, const elem *x, const uint8_t *codes, const float *code, const float *absmax, const uint8_t *scale8, const float *map,
                                             const float *scale2, const float *offset, int M, int N, int K, float alpha, float beta, int f32) {
    __shared__ float table[16], nested[256];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, at = (lane & 3) * 32, n0 = blockIdx.x * 16;
    if (threadIdx.x < 16) table[threadIdx.x] = code[threadIdx.x];
    if (NESTED) nested[threadIdx.x] = map[threadIdx.x];
    float shift = NESTED ? *offset : 0.f;
    __syncthreads();
    int64_t row[2] = {(int64_t)min(n0 + g, N - 1) * K + at, (int64_t)min(n0 + g + 8, N - 1) * K + at};
    Sums<NT> sums;
    for (int k = warp * PIECE; k < K; k += WARPS * PIECE) {
        bool there = k + at < K;
        uint4 q[2];
        float a[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            q[r] = make_uint4(0, 0, 0, 0), a[r] = 0.f;
            if (there) {
                int64_t i = row[r] + k;
                q[r] = __ldcs((const uint4 *)(codes + (i >> 1)));
                a[r] = NESTED ? __fadd_rn(__fmul_rn(nested[scale8[i >> 6]], scale2[i >> 14]), shift) : absmax[i >> 6];
            }
        }
        const uint32_t *q0 = (const uint32_t *)&q[0], *q1 = (const uint32_t *)&q[1];
#pragma unroll
        for (int j = 0; j < 4; j++) sums.add(weights(q0[j], table, a[0]), weights(q1[j], table, a[1]), x + k + at + j * 8, K, M, there);
    }
    sums.write(d, n0, M, N, alpha, beta, f32);
}

// Grid N / 16 rounded up, block 256.
#define SKINNY(NT) \
    extern "C" __global__ void __launch_bounds__(256) skinny_##NT(void *d, const elem *x, const elem *w, int M, int N, int K, float alpha, float beta, int f32) { \
        skinny<NT>(d, x, w, M, N, K, alpha, beta, f32); \
    } \
    extern "C" __global__ void __launch_bounds__(256) skinny_nf4_##NT(void *d, const elem *x, const uint8_t *codes, const float *code, const float *absmax, \
        int M, int N, int K, float alpha, float beta, int f32) { \
        skinny_codes<NT, false>(d, x, codes, code, absmax, 0, 0, 0, 0, M, N, K, alpha, beta, f32); \
    } \
    extern "C" __global__ void __launch_bounds__(256) skinny_nf4_nested_##NT(void *d, const elem *x, const uint8_t *codes, const float *code, const uint8_t *scale8, \
        const float *map, const float *scale2, const float *offset, int M, int N, int K, float alpha, float beta, int f32) { \
        skinny_codes<NT, true>(d, x, codes, code, 0, scale8, map, scale2, offset, M, N, K, alpha, beta, f32); \
    }
SKINNY(1)
SKINNY(2)
SKINNY(4)
SKINNY(8)
