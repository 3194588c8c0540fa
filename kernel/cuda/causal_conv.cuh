// causal_conv.cuh: what the forms of the short causal convolution share: s[t,c] = sum(w[c,j] x[t-K+1+j,c], j = 0..K-1) in a sequence.
// A thread takes N neighbouring columns, 4 or 1, and walks down a stretch of rows of one sequence at a time. Filters of 2 to 4 taps keep
// the last K-1 rows in registers (filter); others read them again, a column a thread (sum_any). Both add in the order of j, in fp32.
#pragma once
#include "few.cuh"
#include "sigmoid.cuh"

enum { AHEAD = 6 };   // rows on their way to a thread

__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }
__device__ __forceinline__ float silu_slope(float x) {
    float s = sigmoid(x);
    return s * (1.f + x * (1.f - s));
}

// The thread's first column.
__device__ __forceinline__ int column(int wide) { return (blockIdx.y * blockDim.x + threadIdx.x) * wide; }

// y's rows of [lo,hi) that are in no sequence <- 0. y is seen from the thread's column.
template <int N>
__device__ __forceinline__ void clear(elem *y, int lo, int hi, int64_t C) {
    few<N> zero;
    zero.zero();
    for (int t = lo; t < hi; t++) zero.store(y + t * C);
}
template <int N>
__device__ __forceinline__ void clear_outside(elem *y, const int *cu, int S, int lo, int hi, int64_t C) {
    clear<N>(y, lo, min(hi, cu[0]), C);
    clear<N>(y, max(lo, cu[S]), hi, C);
}

// The last sequence s of S for which at(s) is at most x; -1 = none is. at rises.
template <class F>
__device__ __forceinline__ int last_at_most(int S, int x, F at) {
    int lo = 0, hi = S;   // the first above x is in [lo, hi]
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (at(mid) <= x) lo = mid + 1;
        else hi = mid;
    }
    return lo - 1;
}

// Calls part(a, b, first, end) for the rows a..b of [lo,hi) that a sequence has, which has the rows first..end.
template <class F>
__device__ __forceinline__ void each_sequence(const int *cu, int S, int lo, int hi, int M, F part) {
    int t = max(lo, cu[0]), stop = min(hi, cu[S]);
    if (t >= stop) return;
    int s = last_at_most(S, t, [&](int i) { return cu[i]; });
    while (t < stop) {
        while (cu[s + 1] <= t) s++;
        int end = min(cu[s + 1], M), b = min(end, stop);
        part(t, b, cu[s], end);
        t = b;
    }
}

template <int K, int N>
struct filter {
    float w[K][N], past[K - 1][N];   // past: the last K-1 rows, the oldest first

    // from: w from the thread's column.
    __device__ __forceinline__ void load(const elem *from) {
        float f[K * N];   // [N,K]
        few<N> v;
#pragma unroll
        for (int i = 0; i < K; i++) {
            v.load(from + i * N);
            v.widened(f + i * N);
        }
#pragma unroll
        for (int j = 0; j < K; j++)
#pragma unroll
            for (int n = 0; n < N; n++) w[j][n] = f[n * K + j];
    }
    // The rows before row t are those of x, with zeros before row first.
    __device__ __forceinline__ void begin(const elem *x, int t, int first, int64_t C) {
#pragma unroll
        for (int i = 0; i < K - 1; i++) {
            int at = t - (K - 1) + i;
            few<N> v;
            if (at >= first) v.load(x + at * C);
            else v.zero();
            v.widened(past[i]);
        }
    }
    // s of the next row, x.
    __device__ __forceinline__ void next(const few<N> &x, float *s) {
        float now[N];
        x.widened(now);
#pragma unroll
        for (int n = 0; n < N; n++) {
            s[n] = w[0][n] * past[0][n];
#pragma unroll
            for (int j = 1; j < K - 1; j++) s[n] = fmaf(w[j][n], past[j][n], s[n]);
            s[n] = fmaf(w[K - 1][n], now[n], s[n]);
#pragma unroll
            for (int j = 1; j < K - 1; j++) past[j - 1][n] = past[j][n];
            past[K - 2][n] = now[n];
        }
    }
};

// s of row t of a sequence that begins at row first, behind the K-1 rows of state; state 0 = behind zeros. All from the thread's column.
__device__ __forceinline__ float sum_any(const elem *x, const elem *w, const elem *state, int K, int t, int first, int64_t C) {
    float s = 0.f;
    int before = max(0, K - 1 - (t - first));   // taps on rows before the first
    if (state)
        for (int j = 0; j < before; j++) s = fmaf(widen(w[j]), widen(state[(t - first + j) * C]), s);
    for (int j = before; j < K; j++) s = fmaf(widen(w[j]), widen(x[(t - K + 1 + j) * C]), s);
    return s;
}
