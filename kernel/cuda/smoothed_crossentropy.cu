// smoothed_crossentropy.cu: per row of logits the cross-entropy with smoothed labels and a z-loss, times the row's weight, and its gradient
// written over the logits. The capped forms take the logits as cap tanh(x / cap), of which the gradient has the factor 1 - tanh^2.
// Layout: logits [M,V] elem, rows ld elements apart; labels [M] int32, -100 = not trained: its row gets zeros; any other label outside
// 0 to V-1 gives NaN; weights [M] fp32, 0 = all are one; each, nll, squares [M] fp32; scale: one fp32 on the device (1 / the divisor of the
// whole accumulated batch); scaling: one fp32, the loss scale that the gradient is multiplied by too, or 0 (none).
// One block of at most 512 a row; the first pass keeps a running maximum and sums for each thread, the second finds the row in the
// second-level cache. Accumulation fp32, in an order that depends on V alone.
// Bytes: 4 a logit (2 read, 2 written), 2 without a gradient. Goal: 75 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

enum { UNTRAINED = -100, AHEAD = 4 };   // AHEAD: 16-byte loads in flight a thread

struct Sums {   // of exp(x - max), and of x
    float max, sum, all;
};
// Makes m, or what was largest before, the maximum.
__device__ __forceinline__ void raise(Sums &s, float m) {
    if (!(m > s.max)) return;
    s.sum *= s.sum > 0.f ? __expf(s.max - m) : 0.f;
    s.max = m;
}
__device__ __forceinline__ void add(Sums &s, float x) {   // x <= max
    s.sum += __expf(x - s.max);
    s.all += x;
}

// tanh(x / cap), f = 2 / cap; 1 - 2/(e^2x + 1) is within 1e-7, which is what fp32 logits of that size are rounded by.
__device__ __forceinline__ float tanh_of(float x, float f) { return 1.f - __fdividef(2.f, __expf(x * f) + 1.f); }

template <bool GRADIENT, bool CAP>
__device__ void rows(float *each, float *nll, float *squares, elem *x, const int *labels, const float *weights, const float *scale,
                     const float *scaling, float smoothing, float z_loss, int V, int ld, float cap) {
    int row = blockIdx.x, label = labels[row];
    x += (int64_t)row * ld;
    bool wide = ld % 8 == 0;
    int V8 = wide ? V / 8 * 8 : 0;
    if (label == UNTRAINED) {
        if (threadIdx.x == 0) each[row] = nll[row] = squares[row] = 0.f;
        if (!GRADIENT) return;
        for (int c = threadIdx.x * 8; c < V8; c += blockDim.x * 8) store8(x + c, fill8(0));
        for (int c = V8 + threadIdx.x; c < V; c += blockDim.x) x[c] = narrow(0.f);
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
    float m = block_max(s.max), total = block_sum(s.sum > 0.f ? s.sum * __expf(s.max - m) : 0.f), mean = block_sum(s.all) / V;
    bool known = (unsigned)label < (unsigned)V;
    float z = known ? m + logf(total) : NANF, weight = weights ? weights[row] : 1.f;
    if (threadIdx.x == 0) {
        float y = known ? widen(x[label]) : 0.f, own = z - (CAP ? cap * tanh_of(y, factor) : y);
        each[row] = weight * (fmaf(smoothing, (z - mean) - own, own) + z_loss * z * z);
        nll[row] = own;
        squares[row] = z * z;
    }
    if (!GRADIENT) return;
    __syncthreads();   // the label's logit is read before it is overwritten
    float k1 = weight * *scale * (scaling ? *scaling : 1.f), grow = fmaf(2.f * z_loss, z, 1.f), share = smoothing / V, mine = 1.f - smoothing;
    for (int c0 = threadIdx.x * 8; c0 < V8; c0 += step * AHEAD) {
        Eight<elem> v[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (c0 + j * step < V8) v[j] = load8(x + c0 + j * step);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            int c = c0 + j * step;
            if (c >= V8) break;
            float f[8];
            unpack(v[j], f);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                float t = CAP ? tanh_of(f[k], factor) : 0.f;
                f[k] = (__expf((CAP ? cap * t : f[k]) - z) * grow - share - (c + k == label ? mine : 0.f)) * k1;
                if (CAP) f[k] *= fmaf(-t, t, 1.f);
            }
            store8(x + c, pack(f));
        }
    }
    for (int c = V8 + threadIdx.x; c < V; c += blockDim.x) {
        float y = widen(x[c]), t = CAP ? tanh_of(y, factor) : 0.f;
        float d = (__expf((CAP ? cap * t : y) - z) * grow - share - (c == label ? mine : 0.f)) * k1;
        x[c] = narrow(CAP ? d * fmaf(-t, t, 1.f) : d);
    }
}

// each[M], nll[M], squares[M] and logits <- their gradient. Grid M.
extern "C" __global__ void __launch_bounds__(512) smoothed_crossentropy_gradient(float *each, float *nll, float *squares, elem *logits,
        const int *labels, const float *weights, const float *scale, const float *scaling, float smoothing, float z_loss, int V, int ld) {
    rows<true, false>(each, nll, squares, logits, labels, weights, scale, scaling, smoothing, z_loss, V, ld, 0.f);
}

// each[M], nll[M] and squares[M] only (evaluation); logits stay. Grid M.
extern "C" __global__ void __launch_bounds__(512) smoothed_crossentropy_loss(float *each, float *nll, float *squares, elem *logits,
        const int *labels, const float *weights, const float *scale, const float *scaling, float smoothing, float z_loss, int V, int ld) {
    rows<false, false>(each, nll, squares, logits, labels, weights, scale, scaling, smoothing, z_loss, V, ld, 0.f);
}

// The same of capped logits.
extern "C" __global__ void __launch_bounds__(512) smoothed_crossentropy_gradient_capped(float *each, float *nll, float *squares, elem *logits,
        const int *labels, const float *weights, const float *scale, const float *scaling, float smoothing, float z_loss, int V, int ld,
        float cap) {
    rows<true, true>(each, nll, squares, logits, labels, weights, scale, scaling, smoothing, z_loss, V, ld, cap);
}
extern "C" __global__ void __launch_bounds__(512) smoothed_crossentropy_loss_capped(float *each, float *nll, float *squares, elem *logits,
        const int *labels, const float *weights, const float *scale, const float *scaling, float smoothing, float z_loss, int V, int ld,
        float cap) {
    rows<false, true>(each, nll, squares, logits, labels, weights, scale, scaling, smoothing, z_loss, V, ld, cap);
}
