// causal_conv_grad.cu: the gradient of y = silu(s) of a short causal convolution (causal_conv.cuh) for x: ds = dy silu'(s),
// dx[t,c] = sum(w[c,j] ds[t+K-1-j,c], j = 0..K-1).
// Layout: x, dy, dx [M,C] elem packed, w [C,K] elem, cu [S+1] int32 row numbers where sequences start, rising, entries may repeat. Rows in
// no sequence give zeros.
// causal_conv_grad_K is for K of 2 to 4, causal_conv_grad_any for any. Blocks and threads as causal_conv.cu. A stretch of rows works s out again
// for its rows and the K-1 behind them, and keeps sums of dx that lack terms in registers; causal_conv_grad_any keeps the last K of ds in
// shared memory, a column of floats a thread. dx adds in the order of ds.
// Accumulation fp32. Bytes: 6 a value and 3 (K-1)/rows of 2 more, from the second-level cache. Goal: 75 % of copy.
// Elements: bf16, f16, f32.
#include "causal_conv.cuh"

template <int K, int N>
__device__ __forceinline__ void grad(elem *__restrict__ dx, const elem *__restrict__ x, const elem *w, const int *cu, const elem *__restrict__ dy, int M, int C, int S, int rows) {
    int c = column(N), lo = blockIdx.x * rows, hi = min(lo + rows, M);
    if (c >= C) return;
    x += c, dx += c, dy += c;
    filter<K, N> f;
    f.load(w + (int64_t)c * K);
    clear_outside<N>(dx, cu, S, lo, hi, C);
    int64_t ld = C;
    each_sequence(cu, S, lo, hi, M, [&](int a, int b, int first, int end) {
        int last = min(b + K - 1, end);
        float open[K - 1][N];   // sums of rows u-K+1..u-1
#pragma unroll
        for (int i = 0; i < K - 1; i++)
#pragma unroll
            for (int n = 0; n < N; n++) open[i][n] = 0.f;
        f.begin(x, a, first, ld);
        few<N> v[AHEAD], d[AHEAD];
#pragma unroll
        for (int g = 0; g < AHEAD; g++)
            if (a + g < last) {
                v[g].load(x + (a + g) * ld);
                d[g].load(dy + (a + g) * ld);
            }
        for (int t = a; t < last; t += AHEAD)
#pragma unroll
            for (int g = 0; g < AHEAD; g++)
                if (t + g < last) {
                    int done = t + g - (K - 1), next = t + g + AHEAD;
                    float s[N], ds[N];
                    f.next(v[g], s);
                    d[g].widened(ds);
                    if (next < last) {
                        v[g].load(x + next * ld);
                        d[g].load(dy + next * ld);
                    }
#pragma unroll
                    for (int n = 0; n < N; n++) {
                        ds[n] *= silu_slope(s[n]);
                        s[n] = fmaf(f.w[0][n], ds[n], open[0][n]);
#pragma unroll
                        for (int i = 1; i < K - 1; i++) open[i - 1][n] = fmaf(f.w[i][n], ds[n], open[i][n]);
                        open[K - 2][n] = f.w[K - 1][n] * ds[n];
                    }
                    if (done >= a) {
                        few<N> out;
                        out.narrowed(s);
                        out.store(dx + done * ld);
                    }
                }
#pragma unroll
        for (int i = 0; i < K - 1; i++) {   // at a sequence's end
            int t = last - (K - 1) + i;
            if (t >= a && t < b) {
                few<N> v;
                v.narrowed(open[i]);
                v.store(dx + t * ld);
            }
        }
    });
}

// Grid: (M / rows rounded up, C / columns a block rounded up). K is the filter's taps.
#define FILTERS(K) \
    extern "C" __global__ void __launch_bounds__(128, 3) causal_conv_grad_##K(elem *dx, const elem *x, const elem *w, const int *cu, const elem *dy, int M, int C, int S, int rows, int) { \
        if (C % 4 == 0) grad<K, 4>(dx, x, w, cu, dy, M, C, S, rows); \
        else grad<K, 1>(dx, x, w, cu, dy, M, C, S, rows); \
    }
FILTERS(2)
FILTERS(3)
FILTERS(4)

// The same grid, a thread a column; K floats a thread of dynamic shared memory.
extern "C" __global__ void __launch_bounds__(128) causal_conv_grad_any(elem *dx, const elem *x, const elem *w, const int *cu, const elem *dy, int M, int C, int S, int rows, int K) {
    extern __shared__ float kept[];
    int c = column(1), lo = blockIdx.x * rows, hi = min(lo + rows, M);
    if (c >= C) return;
    x += c, dx += c, dy += c, w += (int64_t)c * K;
    clear_outside<1>(dx, cu, S, lo, hi, C);
    float *ds = kept + threadIdx.x;
    int64_t ld = C;
    each_sequence(cu, S, lo, hi, M, [&](int a, int b, int first, int end) {
        for (int u = a; u < b + K - 1; u++) {
            int done = u - (K - 1);
            ds[u % K * blockDim.x] = u < end ? widen(dy[u * ld]) * silu_slope(sum_any(x, w, 0, K, u, first, ld)) : 0.f;
            if (done < a) continue;
            float sum = 0.f;
            for (int i = 0; i < K; i++) sum = fmaf(widen(w[K - 1 - i]), ds[(done + i) % K * blockDim.x], sum);
            dx[done * ld] = narrow(sum);
        }
    });
}
