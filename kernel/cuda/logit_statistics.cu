// logit_statistics.cu: per row of logits what training reports of it: the entropy of the distribution, the mean of the logits, and whether
// the row's label is the likeliest one, the first of equals. cap > 0 takes the logits as cap tanh(x / cap).
// Layout: logits [M,V] elem, rows ld elements apart; labels [M] int32, -100 = none: zeros; any other label outside 0 to V-1 gives NaN;
// statistics [3,stride] fp32, of which row m of the logits is column m: entropies, means, 1 or 0.
// One block of at most 512 a row, which is read once; each thread keeps a running maximum with its first place, and sums of exponentials,
// of exponentials times logits and of logits. Accumulation fp32, in an order that depends on V alone.
// Bytes: 2 a logit. Goal: 75 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

enum { UNLABELLED = -100, AHEAD = 4 };   // AHEAD: 16-byte loads in flight a thread

struct Row {   // sums of e = exp(x - max), of (x - max) e and of x; at: the first place of max
    float max, sum, dot, total;
    int at;
};
__device__ __forceinline__ void take(Row &s, float x, int at) {
    if (x > s.max) {
        float d = s.sum > 0.f ? s.max - x : 0.f, c = __expf(d);
        s.dot = c * fmaf(d, s.sum, s.dot);
        s.sum *= c;
        s.max = x;
        s.at = at;
    }
    float t = x - s.max, e = __expf(t);
    s.sum += e;
    s.dot = fmaf(e, t, s.dot);
    s.total += x;
}
// 1 - 2/(e^2x + 1) is within 1e-7 of tanh.
__device__ __forceinline__ float capped(float x, float cap) {
    return cap > 0.f ? cap * (1.f - __fdividef(2.f, __expf(x * (2.f / cap)) + 1.f)) : x;
}

// statistics[3,M] of M rows; logits stay. Grid M.
extern "C" __global__ void __launch_bounds__(512) logit_statistics_rows(float *statistics, const elem *logits, const int *labels, int V, int ld,
                                                                         int stride, float cap) {
    int row = blockIdx.x, label = labels[row];
    float *entropy = statistics + row, *mean = entropy + stride, *top = mean + stride;
    if (label == UNLABELLED || (unsigned)label >= (unsigned)V) {
        if (threadIdx.x == 0) *entropy = *mean = *top = label == UNLABELLED ? 0.f : NANF;
        return;
    }
    logits += (int64_t)row * ld;
    Row s = {-INF, 0.f, 0.f, 0.f, V};
    int V8 = ld % 8 == 0 ? V / 8 * 8 : 0, step = blockDim.x * 8;
    for (int c = threadIdx.x * 8; c < V8; c += step * AHEAD) {
        Eight<elem> v[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (c + j * step < V8) v[j] = load8(logits + c + j * step);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            if (c + j * step >= V8) break;
            float f[8];
            unpack(v[j], f);
#pragma unroll
            for (int k = 0; k < 8; k++) take(s, capped(f[k], cap), c + j * step + k);
        }
    }
    for (int c = V8 + threadIdx.x; c < V; c += blockDim.x) take(s, capped(widen(logits[c]), cap), c);
    float m = block_max(s.max), d = s.sum > 0.f ? s.max - m : 0.f, scale = __expf(d);
    float sum = block_sum(scale * s.sum), dot = block_sum(scale * fmaf(d, s.sum, s.dot)), total = block_sum(s.total);
    float first = -block_max(s.max == m ? -(float)s.at : -INF);   // a vocabulary is below 2^24, so that places are exact
    if (threadIdx.x) return;
    *entropy = logf(sum) - dot / sum;
    *mean = total / V;
    *top = first == (float)label ? 1.f : 0.f;
}
