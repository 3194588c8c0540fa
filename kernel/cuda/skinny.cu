// skinny.cu: D = alpha X W^T + beta D for few rows X, as in generation: W is read once, as it is stored, at the speed of memory.
// Layout: X [M,K] elem; W [N,K] elem, or 4-bit codes of W as in nf4.cu; D [M,N] elem or fp32. K a multiple of 8, of 64
// for codes; rows of X and W at multiples of 16 bytes.
// A block makes 16 columns of D (skinny.cuh). A weight from codes is code[c] * absmax rounded to elem: the numbers of nf4_dequantise.
// Bytes: 2 N K, codes 0.52 N K (M up to 8). Goal: 85 % of copy.
// Elements: bf16, f16.
#include "skinny.cuh"

template <int NT>
__device__ __forceinline__ void skinny(void *d, const elem *x, const elem *w, int M, int N, int K, float alpha, float beta, int f32) {
    let_next_begin();
    int g = (threadIdx.x & 31) >> 2, n0 = blockIdx.x * 16;
    DenseRows rows({w}, min(n0 + g, N - 1), {w}, min(n0 + g + 8, N - 1), K);
    rows.times<NT>(x, M, K).write(d, n0, M, N, alpha, beta, f32);
}

template <int NT, bool NESTED>
__device__ __forceinline__ void skinny_codes(void *d, const elem *x, const Codes<NESTED> &w, const Tables &tables, int M, int N, int K, float alpha, float beta, int f32) {
    let_next_begin();
    int g = (threadIdx.x & 31) >> 2, n0 = blockIdx.x * 16;
    CodeRows<NESTED> rows(w, min(n0 + g, N - 1), w, min(n0 + g + 8, N - 1), K);
    rows.template times<NT>(x, tables, M, K).write(d, n0, M, N, alpha, beta, f32);
}

// Grid (N / 16, M / 8 NT), rounded up, block 512.
#define SKINNY(NT, BLOCKS) \
    extern "C" __global__ void __launch_bounds__(512, BLOCKS) skinny_##NT(void *d, const elem *x, const elem *w, int M, int N, int K, float alpha, float beta, int f32) { \
        skinny<NT>(d, x, w, M, N, K, alpha, beta, f32); \
    } \
    extern "C" __global__ void __launch_bounds__(512, BLOCKS) skinny_nf4_##NT(void *d, const elem *x, const uint8_t *codes, const float *code, const float *absmax, \
        int M, int N, int K, float alpha, float beta, int f32) { \
        skinny_codes<NT, false>(d, x, {codes, absmax, 0, 0, 0}, {code, 0}, M, N, K, alpha, beta, f32); \
    } \
    extern "C" __global__ void __launch_bounds__(512, BLOCKS) skinny_nf4_nested_##NT(void *d, const elem *x, const uint8_t *codes, const float *code, const uint8_t *scale8, \
        const float *map, const float *scale2, const float *offset, int M, int N, int K, float alpha, float beta, int f32) { \
        skinny_codes<NT, true>(d, x, {codes, 0, scale8, scale2, offset}, {code, map}, M, N, K, alpha, beta, f32); \
    }
SKINNY(1, TWO)
SKINNY(2, TWO)
SKINNY(4, 1)
