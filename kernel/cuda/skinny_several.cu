// skinny_several.cu: several weights times the same few rows X in one launch (skinny.cu, skinny.cuh), to the bits of one launch each.
// skinny_each_*: D_i = X W_i^T, i < 3, as queries, keys and values are; N_i = 0 where there are fewer. skinny_gated_*: H = silu(X G^T)
// (X U^T), both products rounded to elem first, as swiglu.cu takes them.
// Layout: X [M,K] elem; W_i [N_i,K], G and U [N,K] elem or 4-bit codes as in nf4.cu, all stored alike; D_i [M,N_i], H [M,N] elem. K as in skinny.cu.
// A block makes 16 columns of one D_i; of H it makes 8, from 8 rows of G and 8 of U.
// Bytes: 2 N K a weight, codes 0.52 N K (M up to 8). Goal: 85 % of copy.
// Elements: bf16, f16.
#include "skinny.cuh"

// The matrix that this block makes columns n0 to n0 + 15 of.
template <typename W>
struct Part {
    elem *d;
    W w;
    int N, n0;
    __device__ __forceinline__ Part(elem *d0, elem *d1, elem *d2, const W &w0, const W &w1, const W &w2, int N0, int N1, int N2) : d(d0), w(w0), N(N0), n0(blockIdx.x * 16) {
        int first = (N0 + 15) / 16 * 16, second = first + (N1 + 15) / 16 * 16;
        if (n0 >= second) d = d2, w = w2, N = N2, n0 -= second;
        else if (n0 >= first) d = d1, w = w1, N = N1, n0 -= first;
    }
};

template <int NT>
__device__ __forceinline__ void each_of(const Part<Dense> &p, const elem *x, int M, int K) {
    let_next_begin();
    int g = (threadIdx.x & 31) >> 2;
    DenseRows rows(p.w, min(p.n0 + g, p.N - 1), p.w, min(p.n0 + g + 8, p.N - 1), K);
    rows.times<NT>(x, M, K).write(p.d, p.n0, M, p.N, 1.f, 0.f, 0);
}
template <int NT, bool NESTED>
__device__ __forceinline__ void each_of(const Part<Codes<NESTED>> &p, const elem *x, const Tables &tables, int M, int K) {
    let_next_begin();
    int g = (threadIdx.x & 31) >> 2;
    CodeRows<NESTED> rows(p.w, min(p.n0 + g, p.N - 1), p.w, min(p.n0 + g + 8, p.N - 1), K);
    rows.template times<NT>(x, tables, M, K).write(p.d, p.n0, M, p.N, 1.f, 0.f, 0);
}

template <int NT>
__device__ __forceinline__ void gated(elem *h, const elem *x, const Dense &gate, const Dense &up, int M, int N, int K) {
    let_next_begin();
    int n0 = blockIdx.x * 8, n = min(n0 + (int)((threadIdx.x & 31) >> 2), N - 1);
    DenseRows rows(gate, n, up, n, K);
    rows.times<NT>(x, M, K).write_gated(h, n0, M, N);
}
template <int NT, bool NESTED>
__device__ __forceinline__ void gated(elem *h, const elem *x, const Codes<NESTED> &gate, const Codes<NESTED> &up, const Tables &tables, int M, int N, int K) {
    let_next_begin();
    int n0 = blockIdx.x * 8, n = min(n0 + (int)((threadIdx.x & 31) >> 2), N - 1);
    CodeRows<NESTED> rows(gate, n, up, n, K);
    rows.template times<NT>(x, tables, M, K).write_gated(h, n0, M, N);
}

// Grid of skinny_each_* (sum of N_i / 16, each rounded up, M / 8 NT), of skinny_gated_* (N / 8, M / 8 NT), rounded up, block 512.
#define SEVERAL(NT, BLOCKS) \
    extern "C" __global__ void __launch_bounds__(512, BLOCKS) skinny_each_##NT(elem *d0, elem *d1, elem *d2, const elem *x, const elem *w0, const elem *w1, const elem *w2, \
        int M, int N0, int N1, int N2, int K) { \
        each_of<NT>(Part<Dense>(d0, d1, d2, {w0}, {w1}, {w2}, N0, N1, N2), x, M, K); \
    } \
    extern "C" __global__ void __launch_bounds__(512, BLOCKS) skinny_each_nf4_##NT(elem *d0, elem *d1, elem *d2, const elem *x, const float *code, \
        const uint8_t *c0, const float *a0, const uint8_t *c1, const float *a1, const uint8_t *c2, const float *a2, int M, int N0, int N1, int N2, int K) { \
        each_of<NT, false>(Part<Codes<false>>(d0, d1, d2, {c0, a0, 0, 0, 0}, {c1, a1, 0, 0, 0}, {c2, a2, 0, 0, 0}, N0, N1, N2), x, {code, 0}, M, K); \
    } \
    extern "C" __global__ void __launch_bounds__(512, BLOCKS) skinny_each_nf4_nested_##NT(elem *d0, elem *d1, elem *d2, const elem *x, const float *code, const float *map, \
        const uint8_t *c0, const uint8_t *e0, const float *s0, const float *o0, const uint8_t *c1, const uint8_t *e1, const float *s1, const float *o1, \
        const uint8_t *c2, const uint8_t *e2, const float *s2, const float *o2, int M, int N0, int N1, int N2, int K) { \
        each_of<NT, true>(Part<Codes<true>>(d0, d1, d2, {c0, 0, e0, s0, o0}, {c1, 0, e1, s1, o1}, {c2, 0, e2, s2, o2}, N0, N1, N2), x, {code, map}, M, K); \
    } \
    extern "C" __global__ void __launch_bounds__(512, BLOCKS) skinny_gated_##NT(elem *h, const elem *x, const elem *gate, const elem *up, int M, int N, int K) { \
        gated<NT>(h, x, {gate}, {up}, M, N, K); \
    } \
    extern "C" __global__ void __launch_bounds__(512, BLOCKS) skinny_gated_nf4_##NT(elem *h, const elem *x, const float *code, const uint8_t *c0, const float *a0, \
        const uint8_t *c1, const float *a1, int M, int N, int K) { \
        gated<NT, false>(h, x, {c0, a0, 0, 0, 0}, {c1, a1, 0, 0, 0}, {code, 0}, M, N, K); \
    } \
    extern "C" __global__ void __launch_bounds__(512, BLOCKS) skinny_gated_nf4_nested_##NT(elem *h, const elem *x, const float *code, const float *map, \
        const uint8_t *c0, const uint8_t *e0, const float *s0, const float *o0, const uint8_t *c1, const uint8_t *e1, const float *s1, const float *o1, int M, int N, int K) { \
        gated<NT, true>(h, x, {c0, 0, e0, s0, o0}, {c1, 0, e1, s1, o1}, {code, map}, M, N, K); \
    }
SEVERAL(1, TWO)
SEVERAL(2, TWO)
SEVERAL(4, 1)
