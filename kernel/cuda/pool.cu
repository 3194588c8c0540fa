// pool.cu: one vector of every sequence, the mean of its tokens' vectors, and the gradient for the tokens.
// Layout: x, dx [M,C] elem, y, dy [S,C] elem; spans [S,2] int32: sequence s is tokens spans[2s] to spans[2s+1]-1, an empty span gives
// zeros. Neither starts nor ends ever fall and spans do not overlap; what lies outside of [0,M) is no token.
// Forward: a block of 256 takes 256 columns of a sequence, a thread adds up its column in the order of the tokens. Gradient: a block
// takes a token and finds its span by halving. Accumulation fp32.
// Bytes: 2 a number of the spans forward, 2 M C backward. Goal: latency; a call moves a few rows, or writes M of them once.
// Elements: bf16, f16, f32.
#include "common.cuh"

__device__ __forceinline__ int2 span_of(const int *spans, int s, int M) {
    int from = min(max(spans[2 * s], 0), M);
    return make_int2(from, min(max(spans[2 * s + 1], from), M));
}

// y[S,C]. Grid S, ceil(C / 256).
extern "C" __global__ void __launch_bounds__(256) pool_forward(elem *y, const elem *x, const int *spans, int M, int C) {
    int s = blockIdx.x, c = blockIdx.y * blockDim.x + threadIdx.x;
    if (c >= C) return;
    int2 span = span_of(spans, s, M);
    float sum = 0.f;
    for (int m = span.x; m < span.y; m++) sum += widen(x[(int64_t)m * C + c]);
    if (span.y > span.x + 1) sum /= (float)(span.y - span.x);
    y[(int64_t)s * C + c] = narrow(sum);
}

// dx[M,C]. Grid M.
extern "C" __global__ void __launch_bounds__(256) pool_gradient(elem *dx, const int *spans, const elem *dy, int M, int C, int S) {
    int m = blockIdx.x, low = -1, high = S;   // the end of span low is at or before m, that of span high is behind it
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (span_of(spans, middle, M).y > m) high = middle;
        else low = middle;
    }
    int2 span = high < S ? span_of(spans, high, M) : make_int2(M, M);
    float by = span.x <= m && m < span.y ? 1.f / (float)(span.y - span.x) : 0.f;
    for (int c = threadIdx.x; c < C; c += blockDim.x)
        dx[(int64_t)m * C + c] = by > 0.f ? narrow(widen(dy[(int64_t)high * C + c]) * by) : narrow(0.f);
}
