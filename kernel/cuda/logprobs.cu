// logprobs.cu: per row of logits the log-probability of its label and the entropy, and the gradients of both for the logits; then the
// gradient for hidden states from weights of rows and their slopes. The capped forms take the logits as cap tanh(x / cap), whose
// gradient has the factor 1 - tanh^2.
// Layout: logits, dentropy [M,V] elem, rows ld elements apart; labels [M] int32, -100 = none: its row gets zeros; any other label outside
// 0 to V-1 gives NaN; logp, entropy [M] fp32, entropy 0 = not wanted; dx, slope, dslope [M,C] elem, dx may be slope; dy [M] or [2,M] fp32.
// One block of at most 512 a row; the first pass keeps a running maximum and sums for each thread, the second finds the row in the
// second-level cache. Accumulation fp32, in an order that depends on V alone.
// Bytes: 2 a logit for values, 4 for slopes (2 read, 2 written), 6 with those of entropies. Goal: 75 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

enum { UNLABELLED = -100, AHEAD = 4 };   // AHEAD: 16-byte loads in flight a thread
enum What { VALUES, SLOPES, BOTH };      // BOTH: slopes of log-probabilities and of entropies

struct Sums {   // of e = exp(x - max), and of (x - max) e
    float max, sum, dot;
};
// Makes m, or what was largest before, the maximum.
__device__ __forceinline__ void raise(Sums &s, float m) {
    if (!(m > s.max)) return;
    float d = s.sum > 0.f ? s.max - m : 0.f, c = __expf(d);
    s.dot = c * fmaf(d, s.sum, s.dot);
    s.sum *= c;
    s.max = m;
}
__device__ __forceinline__ void add(Sums &s, float x) {   // x <= max
    float t = x - s.max, e = __expf(t);
    s.sum += e;
    s.dot = fmaf(e, t, s.dot);
}

// tanh(x / cap), f = 2 / cap; 1 - 2/(e^2x + 1) is within 1e-7, which is what fp32 logits of that size are rounded by.
__device__ __forceinline__ float tanh_of(float x, float f) { return 1.f - __fdividef(2.f, __expf(x * f) + 1.f); }

template <What WHAT, bool CAP>
__device__ void rows(float *logp, float *entropy, elem *x, elem *dentropy, const int *labels, int V, int ld, float cap) {
    int row = blockIdx.x, label = labels[row];
    x += (int64_t)row * ld;
    if (WHAT == BOTH) dentropy += (int64_t)row * ld;
    bool wide = ld % 8 == 0;
    int V8 = wide ? V / 8 * 8 : 0;
    if (label == UNLABELLED) {
        if (threadIdx.x == 0) {
            logp[row] = 0.f;
            if (entropy) entropy[row] = 0.f;
        }
        if (WHAT == VALUES) return;
        for (int c = threadIdx.x * 8; c < V8; c += blockDim.x * 8) {
            store8(x + c, fill8(0));
            if (WHAT == BOTH) store8(dentropy + c, fill8(0));
        }
        for (int c = V8 + threadIdx.x; c < V; c += blockDim.x) {
            x[c] = narrow(0.f);
            if (WHAT == BOTH) dentropy[c] = narrow(0.f);
        }
        return;
    }
    Sums s = {-INF, 0.f, 0.f};
    float factor = CAP ? 2.f / cap : 0.f;
    int step = blockDim.x * 8;
    for (int c = threadIdx.x * 8; c < V8; c += step * AHEAD) {
        Eight<elem> v[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (c + j * step < V8) v[j] = load8(x + c + j * step);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            if (c + j * step >= V8) break;
            float f[8];
            unpack(v[j], f);
            if (CAP)
#pragma unroll
                for (int k = 0; k < 8; k++) f[k] = cap * tanh_of(f[k], factor);
            raise(s, fmaxf(fmaxf(fmaxf(f[0], f[1]), fmaxf(f[2], f[3])), fmaxf(fmaxf(f[4], f[5]), fmaxf(f[6], f[7]))));
#pragma unroll
            for (int k = 0; k < 8; k++) add(s, f[k]);
        }
    }
    for (int c = V8 + threadIdx.x; c < V; c += blockDim.x) {
        float y = CAP ? cap * tanh_of(widen(x[c]), factor) : widen(x[c]);
        raise(s, y);
        add(s, y);
    }
    float m = block_max(s.max), d = s.sum > 0.f ? s.max - m : 0.f, scale = __expf(d);
    float sum = block_sum(scale * s.sum), dot = block_sum(scale * fmaf(d, s.sum, s.dot));
    bool known = (unsigned)label < (unsigned)V;
    float log_sum = known ? logf(sum) : NANF, h = log_sum - dot / sum;
    if (threadIdx.x == 0) {
        float y = known ? widen(x[label]) : 0.f;
        logp[row] = (CAP ? cap * tanh_of(y, factor) : y) - m - log_sum;
        if (entropy) entropy[row] = h;
    }
    if (WHAT == VALUES) return;
    __syncthreads();   // the label's logit is read before it is overwritten
    enum { LOADS = WHAT == BOTH ? AHEAD / 2 : AHEAD };   // two results take the registers
    for (int c0 = threadIdx.x * 8; c0 < V8; c0 += step * LOADS) {
        Eight<elem> v[LOADS];
#pragma unroll
        for (int j = 0; j < LOADS; j++)
            if (c0 + j * step < V8) v[j] = load8(x + c0 + j * step);
#pragma unroll
        for (int j = 0; j < LOADS; j++) {
            int c = c0 + j * step;
            if (c >= V8) break;
            float f[8], e[8];
            unpack(v[j], f);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                float t = CAP ? tanh_of(f[k], factor) : 0.f, l = (CAP ? cap * t : f[k]) - m - log_sum, p = __expf(l);
                f[k] = (c + k == label ? 1.f : 0.f) - p;
                e[k] = -p * (l + h);
                if (CAP) {
                    float through = fmaf(-t, t, 1.f);
                    f[k] *= through, e[k] *= through;
                }
            }
            store8(x + c, pack(f));
            if (WHAT == BOTH) store8(dentropy + c, pack(e));
        }
    }
    for (int c = V8 + threadIdx.x; c < V; c += blockDim.x) {
        float y = widen(x[c]), t = CAP ? tanh_of(y, factor) : 0.f, l = (CAP ? cap * t : y) - m - log_sum, p = __expf(l);
        float through = CAP ? fmaf(-t, t, 1.f) : 1.f;
        x[c] = narrow(((c == label ? 1.f : 0.f) - p) * through);
        if (WHAT == BOTH) dentropy[c] = narrow(-p * (l + h) * through);
    }
}

// logp[M] and entropy[M]; logits stay. Grid M.
extern "C" __global__ void __launch_bounds__(512) logprobs_values(float *logp, float *entropy, elem *logits, const int *labels, int V, int ld) {
    rows<VALUES, false>(logp, entropy, logits, 0, labels, V, ld, 0.f);
}
extern "C" __global__ void __launch_bounds__(512) logprobs_values_capped(float *logp, float *entropy, elem *logits, const int *labels, int V,
                                                                          int ld, float cap) {
    rows<VALUES, true>(logp, entropy, logits, 0, labels, V, ld, cap);
}

// The same, and logits <- the gradient of logp for them. Grid M.
extern "C" __global__ void __launch_bounds__(512) logprobs_slopes(float *logp, float *entropy, elem *logits, const int *labels, int V, int ld) {
    rows<SLOPES, false>(logp, entropy, logits, 0, labels, V, ld, 0.f);
}
extern "C" __global__ void __launch_bounds__(512) logprobs_slopes_capped(float *logp, float *entropy, elem *logits, const int *labels, int V,
                                                                          int ld, float cap) {
    rows<SLOPES, true>(logp, entropy, logits, 0, labels, V, ld, cap);
}

// The same, and dentropy <- the gradient of entropy for the logits. Grid M.
extern "C" __global__ void __launch_bounds__(512) logprobs_both(float *logp, float *entropy, elem *logits, elem *dentropy, const int *labels,
                                                                 int V, int ld) {
    rows<BOTH, false>(logp, entropy, logits, dentropy, labels, V, ld, 0.f);
}
extern "C" __global__ void __launch_bounds__(512) logprobs_both_capped(float *logp, float *entropy, elem *logits, elem *dentropy,
                                                                        const int *labels, int V, int ld, float cap) {
    rows<BOTH, true>(logp, entropy, logits, dentropy, labels, V, ld, cap);
}

// dx[m,c] = dy[m] slope[m,c], plus dy[M+m] dslope[m,c] unless dslope is 0; zeros in rows without a label. Grid M.
extern "C" __global__ void __launch_bounds__(256) logprobs_gradient(elem *dx, const int *labels, const float *dy, const elem *slope,
                                                                     const elem *dslope, int M, int C) {
    int m = blockIdx.x;
    bool labelled = labels[m] != UNLABELLED;
    float g = labelled ? dy[m] : 0.f, e = labelled && dslope ? dy[M + m] : 0.f;
    int64_t row = (int64_t)m * C;
    int C8 = C % 8 == 0 ? C : 0;
    for (int c = threadIdx.x * 8; c < C8; c += blockDim.x * 8) {
        float f[8], d[8];
        unpack(load8(slope + row + c), f);
#pragma unroll
        for (int k = 0; k < 8; k++) f[k] *= g;
        if (dslope) {
            unpack(load8(dslope + row + c), d);
#pragma unroll
            for (int k = 0; k < 8; k++) f[k] = fmaf(e, d[k], f[k]);
        }
        store8(dx + row + c, labelled ? pack(f) : fill8(0));
    }
    for (int c = C8 + threadIdx.x; c < C; c += blockDim.x) {
        float f = g * widen(slope[row + c]);
        if (dslope) f = fmaf(e, widen(dslope[row + c]), f);
        dx[row + c] = narrow(labelled ? f : 0.f);
    }
}
