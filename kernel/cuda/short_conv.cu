// short_conv.cu: y = x1 s of a short causal convolution s[t,c] = sum(w[c,j] u[t-K+1+j,c], j = 0..K-1) of u = x0 x2 along the rows of each
// sequence, its gradient for x, and the same for the next rows of sequences whose last K-1 rows of u a slot holds.
// Layout: x, dx [M,3C] elem, the thirds x0, x1, x2 of C columns each; y, dy [M,C] elem packed; w [C,K] elem; cu [S+1] int32 row numbers where
// sequences start, rising, entries may repeat. Rows in no sequence give zeros. state [slots,(K-1)*C] elem, a slot's rows oldest first; keys
// [S+1] int32: sequence s has keys[s+1]-keys[s] tokens in all and the slot keys[s]/tokens.
// A thread takes a value of y, or the three of dx; neighbours of a column are in the second-level cache. Cached, a thread walks down a
// column of a sequence. u is rounded as a slot holds it; accumulation fp32 in the order of j. Bytes: 8 a value of y, 14 backward. Goal: 50 %
// of copy.
// Elements: bf16, f16, f32.
#include "causal_conv.cuh"

// u of a row from the thread's column.
__device__ __forceinline__ float gated(const elem *x, int64_t t, int C) { return widen(narrow(widen(x[t * 3 * C]) * widen(x[t * 3 * C + 2 * C]))); }

// The bounds of the sequence of row t; none: first > t.
struct bounds {
    int first, end;
    __device__ __forceinline__ bounds(const int *cu, int S, int t, int M) : first(t + 1), end(t) {
        int s = last_at_most(S, t, [&](int i) { return cu[i]; });
        if (s >= 0 && t < cu[s + 1]) first = cu[s], end = min(cu[s + 1], M);
    }
};

extern "C" __global__ void __launch_bounds__(256) short_conv(elem *y, const elem *x, const elem *w, const int *cu, int M, int C, int S, int K) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (int64_t)M * C; i += (int64_t)gridDim.x * blockDim.x) {
        int t = i / C, c = i % C;
        bounds in(cu, S, t, M);
        float s = 0.f;
        if (in.first <= t) {
            for (int j = max(0, K - 1 - (t - in.first)); j < K; j++) s = fmaf(widen(w[(int64_t)c * K + j]), gated(x + c, t - K + 1 + j, C), s);
            s *= widen(x[(int64_t)t * 3 * C + C + c]);
        }
        y[i] = narrow(s);
    }
}

extern "C" __global__ void __launch_bounds__(256) short_conv_grad(elem *dx, const elem *x, const elem *w, const int *cu, const elem *dy, int M, int C, int S, int K) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (int64_t)M * C; i += (int64_t)gridDim.x * blockDim.x) {
        int t = i / C, c = i % C;
        bounds in(cu, S, t, M);
        elem *to = dx + (int64_t)t * 3 * C + c;
        const elem *own = x + (int64_t)t * 3 * C + c;
        float s = 0.f, du = 0.f, up = 0.f;
        if (in.first <= t) {
            up = widen(dy[i]);
            for (int j = max(0, K - 1 - (t - in.first)); j < K; j++) s = fmaf(widen(w[(int64_t)c * K + j]), gated(x + c, t - K + 1 + j, C), s);
            for (int j = max(0, K - in.end + t); j < K; j++) {
                int64_t from = t + K - 1 - j;
                du = fmaf(widen(w[(int64_t)c * K + j]), widen(dy[from * C + c]) * widen(x[from * 3 * C + C + c]), du);
            }
        }
        bool none = in.first > t;
        to[0] = narrow(none ? 0.f : du * widen(own[2 * C]));
        to[C] = narrow(none ? 0.f : up * s);
        to[2 * C] = narrow(none ? 0.f : du * widen(own[0]));
    }
}

// Block 128, grid: columns by sequences and one more, whose blocks clear the rows of no sequence.
extern "C" __global__ void __launch_bounds__(128, 8) short_conv_cached(elem *y, elem *state, const elem *x, const elem *w, const int *cu, const int *keys, int M, int C, int S, int slots,
                                                                    int tokens, int K) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, s = blockIdx.y;
    if (c >= C) return;
    if (s == S) {
        for (int t = 0; t < min(cu[0], M); t++) y[(int64_t)t * C + c] = narrow(0.f);
        for (int t = max(cu[S], 0); t < M; t++) y[(int64_t)t * C + c] = narrow(0.f);
        return;
    }
    int first = cu[s], end = min(cu[s + 1], M), kept = K - 1;
    unsigned slot = (unsigned)keys[s] / (unsigned)tokens;
    if (first >= end) return;
    if (slot >= (unsigned)slots) {
        for (int t = first; t < end; t++) y[(int64_t)t * C + c] = narrow(0.f);
        return;
    }
    elem *mem = state + (int64_t)slot * kept * C + c;
    bool earlier = keys[s + 1] - keys[s] > end - first;
    for (int t = first; t < end; t++) {
        float sum = 0.f;
        for (int j = 0; j < K; j++) {
            int from = t - K + 1 + j;
            if (from >= first) sum = fmaf(widen(w[(int64_t)c * K + j]), gated(x + c, from, C), sum);
            else if (earlier) sum = fmaf(widen(w[(int64_t)c * K + j]), widen(mem[(int64_t)(kept - (first - from)) * C]), sum);
        }
        y[(int64_t)t * C + c] = narrow(sum * widen(x[(int64_t)t * 3 * C + C + c]));
    }
    int n = min(end - first, kept);
    for (int i = 0; i < kept - n; i++) mem[(int64_t)i * C] = earlier ? mem[(int64_t)(i + n) * C] : narrow(0.f);
    for (int i = 0; i < n; i++) mem[(int64_t)(kept - n + i) * C] = narrow(gated(x + c, end - n + i, C));
}
