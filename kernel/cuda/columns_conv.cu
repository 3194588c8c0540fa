// columns_conv.cu: y = silu(b[c] + sum(w[c,j] x[t-K+1+j,from+c], j = 0..K-1)) in the columns from..from+C of a matrix, along the rows of each
// sequence, and y = x in the others; its gradient for x; and the same for the next rows of sequences whose last K-1 rows of these columns a
// slot holds.
// Layout: x, y, dx, dy [M,W] elem; w [C,K] elem; b [C] fp32; cu [S+1] int32 row numbers where sequences start, rising, entries may repeat.
// Rows in no sequence give zeros. state [slots,(K-1)*C] elem, a slot's rows oldest first; keys [S+1] int32: sequence s has keys[s+1]-keys[s]
// tokens in all and the slot keys[s]/tokens.
// A thread takes a value of y or dx; neighbours of a column are in the first-level cache. Cached, a thread walks down a column of a sequence.
// Accumulation fp32 in the order of j. Bytes: 4 a value of y, 6 backward. Goal: 50 % of copy.
// Elements: bf16, f16, f32.
#include "causal_conv.cuh"

// The bounds of the sequence of row t; none: first > t.
struct bounds {
    int first, end;
    __device__ __forceinline__ bounds(const int *cu, int S, int t, int M) : first(t + 1), end(t) {
        int s = last_at_most(S, t, [&](int i) { return cu[i]; });
        if (s >= 0 && t < cu[s + 1]) first = cu[s], end = min(cu[s + 1], M);
    }
};

// s of row t of a sequence that begins at first; x is seen from the column, w is its filter.
__device__ __forceinline__ float sum(const elem *x, const elem *w, float bias, int t, int first, int64_t W, int K) {
    float s = bias;
    for (int j = max(0, K - 1 - (t - first)); j < K; j++) s = fmaf(widen(w[j]), widen(x[(t - K + 1 + j) * W]), s);
    return s;
}

extern "C" __global__ void __launch_bounds__(256) columns_conv(elem *y, const elem *x, const elem *w, const float *b, const int *cu, int M, int W, int C, int from, int S, int K) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (int64_t)M * W; i += (int64_t)gridDim.x * blockDim.x) {
        int t = i / W, column = i % W, c = column - from;
        bounds in(cu, S, t, M);
        if (in.first > t)
            y[i] = narrow(0.f);
        else if (c < 0 || c >= C)
            y[i] = x[i];
        else
            y[i] = narrow(silu(sum(x + column, w + (int64_t)c * K, b[c], t, in.first, W, K)));
    }
}

extern "C" __global__ void __launch_bounds__(256) columns_conv_grad(elem *dx, const elem *x, const elem *w, const float *b, const int *cu, const elem *dy, int M, int W, int C, int from, int S,
                                                                   int K) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (int64_t)M * W; i += (int64_t)gridDim.x * blockDim.x) {
        int t = i / W, column = i % W, c = column - from;
        bounds in(cu, S, t, M);
        if (in.first > t) {
            dx[i] = narrow(0.f);
        } else if (c < 0 || c >= C) {
            dx[i] = dy[i];
        } else {
            const elem *filter = w + (int64_t)c * K;
            float d = 0.f;
            for (int j = max(0, K - in.end + t); j < K; j++) {
                int at = t + K - 1 - j;
                float s = sum(x + column, filter, b[c], at, in.first, W, K);
                d = fmaf(widen(filter[j]), widen(dy[(int64_t)at * W + column]) * silu_slope(s), d);
            }
            dx[i] = narrow(d);
        }
    }
}

// Block 128, grid: columns by sequences and one more, whose blocks clear the rows of no sequence.
extern "C" __global__ void __launch_bounds__(128, 8) columns_conv_cached(elem *y, elem *state, const elem *x, const elem *w, const float *b, const int *cu, const int *keys, int M, int W, int C,
                                                                      int from, int S, int slots, int tokens, int K) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, s = blockIdx.y, c = column - from;
    if (column >= W) return;
    if (s == S) {
        for (int t = 0; t < min(cu[0], M); t++) y[(int64_t)t * W + column] = narrow(0.f);
        for (int t = max(cu[S], 0); t < M; t++) y[(int64_t)t * W + column] = narrow(0.f);
        return;
    }
    int first = cu[s], end = min(cu[s + 1], M), kept = K - 1;
    unsigned slot = (unsigned)keys[s] / (unsigned)tokens;
    if (first >= end) return;
    bool filtered = c >= 0 && c < C;
    if (slot >= (unsigned)slots || !filtered) {
        for (int t = first; t < end; t++) y[(int64_t)t * W + column] = slot >= (unsigned)slots ? narrow(0.f) : x[(int64_t)t * W + column];
        return;
    }
    elem *mem = state + (int64_t)slot * kept * C + c;
    const elem *filter = w + (int64_t)c * K, *own = x + column;
    bool earlier = keys[s + 1] - keys[s] > end - first;
    for (int t = first; t < end; t++) {
        float sum = b[c];
        for (int j = 0; j < K; j++) {
            int at = t - K + 1 + j;
            if (at >= first)
                sum = fmaf(widen(filter[j]), widen(own[(int64_t)at * W]), sum);
            else if (earlier)
                sum = fmaf(widen(filter[j]), widen(mem[(int64_t)(kept - (first - at)) * C]), sum);
        }
        y[(int64_t)t * W + column] = narrow(silu(sum));
    }
    int n = min(end - first, kept);
    for (int i = 0; i < kept - n; i++) mem[(int64_t)i * C] = earlier ? mem[(int64_t)(i + n) * C] : narrow(0.f);
    for (int i = 0; i < n; i++) mem[(int64_t)(kept - n + i) * C] = own[(int64_t)(end - n + i) * W];
}
