// causal_conv.cu: y = silu(s) of a short causal convolution along the rows of each sequence (causal_conv.cuh), and the same for the next
// rows of sequences whose last K-1 rows a slot holds.
// Layout: x, y [M,C] elem packed, w [C,K] elem, cu [S+1] int32 row numbers where sequences start, rising, entries may repeat. Rows in no
// sequence give zeros. state [slots,(K-1)*C] elem, a slot's rows oldest first; keys [S+1] int32: sequence s has keys[s+1]-keys[s] tokens
// in all and the slot keys[s]/tokens.
// causal_conv_K is for K of 2 to 4, causal_conv_any for any. Block: 32 to 128 threads, of 4 columns each where C is a multiple of 4 and K has
// a form, else of one: of 8 each, which keep 7 numbers a column, too few threads fit. blockIdx.y counts blocks of columns, blockIdx.x
// stretches of rows: of the matrix; cached, of each sequence.
// Accumulation fp32. Bytes: 4 a value and (K-1)/rows of 2 more, from the second-level cache. Goal: 75 % of copy.
// Elements: bf16, f16, f32.
#include "causal_conv.cuh"

// y of rows a..b, for which f has begun. y and x from the thread's column. AHEAD is a multiple of the K-1 rows that f keeps, so that none of
// them moves from register to register in the unrolled loop.
template <int K, int N>
__device__ __forceinline__ void walk(elem *__restrict__ y, const elem *__restrict__ x, filter<K, N> &f, int a, int b, int64_t C) {
    few<N> v[AHEAD];
#pragma unroll
    for (int g = 0; g < AHEAD; g++)
        if (a + g < b) v[g].load(x + (a + g) * C);
    for (int t = a; t < b; t += AHEAD)
#pragma unroll
        for (int g = 0; g < AHEAD; g++)
            if (t + g < b) {
                float s[N];
                f.next(v[g], s);
                if (t + g + AHEAD < b) v[g].load(x + (t + g + AHEAD) * C);
#pragma unroll
                for (int n = 0; n < N; n++) s[n] = silu(s[n]);
                few<N> out;
                out.narrowed(s);
                out.store(y + (t + g) * C);
            }
}

template <int K, int N>
__device__ __forceinline__ void conv(elem *y, const elem *x, const elem *w, const int *cu, int M, int C, int S, int rows) {
    int c = column(N), lo = blockIdx.x * rows, hi = min(lo + rows, M);
    if (c >= C) return;
    x += c, y += c;
    filter<K, N> f;
    f.load(w + (int64_t)c * K);
    clear_outside<N>(y, cu, S, lo, hi, C);
    each_sequence(cu, S, lo, hi, M, [&](int a, int b, int first, int) {
        f.begin(x, a, first, C);
        walk(y, x, f, a, b, C);
    });
}

// What a block does for a sequence with a slot.
struct piece {
    int a, b, first, end;   // the rows at hand, and the sequence's
    bool earlier;           // the slot holds rows of it
    elem *slot;             // 0 = there is no such slot
};

// Blocks are dealt so that a sequence's first row begins a stretch: the one stretch that reads a slot is then the one that writes it.
template <int N>
__device__ __forceinline__ bool take(piece &p, elem *y, const int *cu, const int *keys, elem *state, int M, int C, int S, int64_t slot_size, int slots, int tokens, int rows) {
    int block = blockIdx.x;
    clear_outside<N>(y, cu, S, block * rows, min((block + 1) * rows, M), C);
    int s = last_at_most(S, block, [&](int i) { return cu[i] / rows + i; });
    if (s < 0) return false;
    p.first = cu[s], p.end = min(cu[s + 1], M);
    p.a = p.first + (block - (cu[s] / rows + s)) * rows, p.b = min(p.a + rows, p.end);
    if (p.a >= p.end) return false;
    unsigned slot = (unsigned)keys[s] / (unsigned)tokens;
    p.slot = slot < (unsigned)slots ? state + slot * slot_size : 0;
    p.earlier = keys[s + 1] - keys[s] > p.end - p.first;
    if (!p.slot) clear<N>(y, p.a, p.b, C);
    return p.slot;
}

// The slot <- the last rows of what it holds and the sequence's.
template <int N>
__device__ __forceinline__ void keep(const piece &p, const elem *x, int kept, int64_t C) {
    int n = p.end - p.first;
    for (int i = 0; i < kept; i++) {
        few<N> v;
        if (n + i >= kept) v.load(x + (p.end - kept + i) * C);
        else if (p.earlier) v.load(p.slot + (n + i) * C);
        else v.zero();
        v.store(p.slot + i * C);
    }
}

template <int K, int N>
__device__ __forceinline__ void cached(elem *y, elem *state, const elem *x, const elem *w, const int *cu, const int *keys, int M, int C, int S, int slots, int tokens, int rows) {
    int c = column(N);
    if (c >= C) return;
    x += c, y += c, state += c;
    piece p;
    if (!take<N>(p, y, cu, keys, state, M, C, S, (int64_t)(K - 1) * C, slots, tokens, rows)) return;
    filter<K, N> f;
    f.load(w + (int64_t)c * K);
    bool begins = p.a == p.first;
    if (begins && p.earlier) f.begin(p.slot, K - 1, 0, C);
    else f.begin(x, p.a, p.first, C);
    walk(y, x, f, p.a, p.b, C);
    if (begins) keep<N>(p, x, K - 1, C);
}

// Grid: (M / rows rounded up, C / columns a block rounded up). K is the filter's taps.
#define FILTERS(K) \
    extern "C" __global__ void __launch_bounds__(128) causal_conv_##K(elem *y, const elem *x, const elem *w, const int *cu, int M, int C, int S, int rows, int) { \
        if (C % 4 == 0) conv<K, 4>(y, x, w, cu, M, C, S, rows); \
        else conv<K, 1>(y, x, w, cu, M, C, S, rows); \
    } \
    extern "C" __global__ void __launch_bounds__(128) causal_conv_cached_##K(elem *y, elem *state, const elem *x, const elem *w, const int *cu, const int *keys, \
                                                                             int M, int C, int S, int slots, int tokens, int rows, int) { \
        if (C % 4 == 0) cached<K, 4>(y, state, x, w, cu, keys, M, C, S, slots, tokens, rows); \
        else cached<K, 1>(y, state, x, w, cu, keys, M, C, S, slots, tokens, rows); \
    }
FILTERS(2)
FILTERS(3)
FILTERS(4)

// The same grid, a thread a column.
extern "C" __global__ void __launch_bounds__(128) causal_conv_any(elem *y, const elem *x, const elem *w, const int *cu, int M, int C, int S, int rows, int K) {
    int c = column(1), lo = blockIdx.x * rows, hi = min(lo + rows, M);
    if (c >= C) return;
    x += c, y += c, w += (int64_t)c * K;
    clear_outside<1>(y, cu, S, lo, hi, C);
    each_sequence(cu, S, lo, hi, M, [&](int a, int b, int first, int) {
        for (int t = a; t < b; t++) y[(int64_t)t * C] = narrow(silu(sum_any(x, w, 0, K, t, first, C)));
    });
}

// Grid: (M / rows rounded down + S + 1, C / columns a block rounded up). rows is at least K-1.
extern "C" __global__ void __launch_bounds__(128) causal_conv_cached_any(elem *y, elem *state, const elem *x, const elem *w, const int *cu, const int *keys, int M, int C, int S,
                                                                         int slots, int tokens, int rows, int K) {
    int c = column(1);
    if (c >= C) return;
    x += c, y += c, w += (int64_t)c * K, state += c;
    piece p;
    if (!take<1>(p, y, cu, keys, state, M, C, S, (int64_t)(K - 1) * C, slots, tokens, rows)) return;
    bool begins = p.a == p.first;
    const elem *before = begins && p.earlier ? p.slot : 0;
    for (int t = p.a; t < p.b; t++) y[(int64_t)t * C] = narrow(silu(sum_any(x, w, before, K, t, p.first, C)));
    if (begins) keep<1>(p, x, K - 1, C);
}
