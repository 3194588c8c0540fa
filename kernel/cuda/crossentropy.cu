// crossentropy.cu: per row of logits the loss lse - x[label], and (softmax - onehot) scale written over the logits.
// The capped forms take the logits as cap tanh(x / cap), of which the gradient has the factor 1 - tanh^2.
// Layout: logits [M,V] elem, rows ld elements apart; labels [M] int32, -100 = not trained, any other outside 0 to V-1 gives NaN; loss [M] fp32;
// scale: one fp32 on the device (1 / trained tokens of the whole accumulated batch); scaling: one
// fp32, the loss scale that the gradient is multiplied by too, or 0 (none).
// One block of 512 a row; the first pass keeps a running maximum and sum for each thread, the second finds the row in the
// second-level cache. Accumulation fp32.
// Bytes: 4 a logit (2 read, 2 written). Goal: 75 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

enum { UNTRAINED = -100, HELD = 4 };   // HELD: 16-byte loads in flight a thread

struct Sum {   // sum of exp(x - max)
    float max, sum;
};
__device__ __forceinline__ void add(Sum &s, float x) {
    if (x > s.max) {
        s.sum = s.sum * __expf(s.max - x) + 1.f;
        s.max = x;
    } else {
        s.sum += __expf(x - s.max);
    }
}

// tanh(x / cap), f = 2 / cap; 1 - 2/(e^2x + 1) is within 1e-7, which is what fp32 logits of that size are rounded by.
__device__ __forceinline__ float tanh_of(float x, float f) { return 1.f - __fdividef(2.f, __expf(x * f) + 1.f); }

template <bool GRADIENT, bool CAP>
__device__ void rows(float *loss, elem *x, const int *labels, const float *scale, const float *scaling, int V, int ld, float cap) {
    int row = blockIdx.x, label = labels[row];
    x += (int64_t)row * ld;
    bool wide = ld % 8 == 0;
    int V8 = wide ? V / 8 * 8 : 0;
    if (label == UNTRAINED) {
        if (threadIdx.x == 0) loss[row] = 0;
        if (GRADIENT) {
            for (int c = threadIdx.x * 8; c < V8; c += blockDim.x * 8) store8(x + c, fill8(0));
            for (int c = V8 + threadIdx.x; c < V; c += blockDim.x) x[c] = narrow(0.f);
        }
        return;
    }
    Sum s = {-INF, 0.f};
    float factor = CAP ? 2.f / cap : 0.f;
    int step = blockDim.x * 8;
    for (int c = threadIdx.x * 8; c < V8; c += step * HELD) {
        Eight<elem> v[HELD];
#pragma unroll
        for (int j = 0; j < HELD; j++)
            if (c + j * step < V8) v[j] = load8(x + c + j * step);
#pragma unroll
        for (int j = 0; j < HELD; j++) {
            if (c + j * step >= V8) break;
            float f[8], m;
            unpack(v[j], f);
            if (CAP)
#pragma unroll
                for (int k = 0; k < 8; k++) f[k] = cap * tanh_of(f[k], factor);
            m = fmaxf(fmaxf(fmaxf(f[0], f[1]), fmaxf(f[2], f[3])), fmaxf(fmaxf(f[4], f[5]), fmaxf(f[6], f[7])));
            if (m > s.max) {
                s.sum *= __expf(s.max - m);
                s.max = m;
            }
#pragma unroll
            for (int k = 0; k < 8; k++) s.sum += __expf(f[k] - s.max);
        }
    }
    for (int c = V8 + threadIdx.x; c < V; c += blockDim.x) add(s, CAP ? cap * tanh_of(widen(x[c]), factor) : widen(x[c]));
    float m = block_max(s.max);
    float t = block_sum(s.max == -INF ? 0.f : s.sum * __expf(s.max - m));
    bool known = (unsigned)label < (unsigned)V;
    float lse = known ? m + logf(t) : NANF;
    if (threadIdx.x == 0) loss[row] = known ? lse - (CAP ? cap * tanh_of(widen(x[label]), factor) : widen(x[label])) : NANF;
    if (!GRADIENT) return;
    __syncthreads();   // the label's logit is read before it is overwritten
    float k1 = scaling ? *scale * *scaling : *scale;
    for (int c0 = threadIdx.x * 8; c0 < V8; c0 += step * HELD) {
        Eight<elem> v[HELD];
#pragma unroll
        for (int j = 0; j < HELD; j++)
            if (c0 + j * step < V8) v[j] = load8(x + c0 + j * step);
#pragma unroll
        for (int j = 0; j < HELD; j++) {
            int c = c0 + j * step;
            if (c >= V8) break;
            float f[8];
            unpack(v[j], f);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                float t = CAP ? tanh_of(f[k], factor) : 0.f;
                f[k] = (__expf((CAP ? cap * t : f[k]) - lse) - (c + k == label ? 1.f : 0.f)) * k1;
                if (CAP) f[k] *= fmaf(-t, t, 1.f);
            }
            store8(x + c, pack(f));
        }
    }
    for (int c = V8 + threadIdx.x; c < V; c += blockDim.x) {
        float y = widen(x[c]), t = CAP ? tanh_of(y, factor) : 0.f, d = (__expf((CAP ? cap * t : y) - lse) - (c == label ? 1.f : 0.f)) * k1;
        x[c] = narrow(CAP ? d * fmaf(-t, t, 1.f) : d);
    }
}

// loss[M] and logits <- dlogits. Grid M. An untrained row gets loss 0 and a zero gradient; a label outside the vocabulary gives NaN.
extern "C" __global__ void __launch_bounds__(512) crossentropy_gradient(float *loss, elem *logits, const int *labels, const float *scale,
                                                                         const float *scaling, int V, int ld) {
    rows<true, false>(loss, logits, labels, scale, scaling, V, ld, 0.f);
}

// loss[M] only (evaluation); logits stay. Grid M.
extern "C" __global__ void __launch_bounds__(512) crossentropy_loss(float *loss, elem *logits, const int *labels, int V, int ld) {
    rows<false, false>(loss, logits, labels, 0, 0, V, ld, 0.f);
}

// The same of capped logits.
extern "C" __global__ void __launch_bounds__(512) crossentropy_gradient_capped(float *loss, elem *logits, const int *labels, const float *scale,
                                                                                const float *scaling, int V, int ld, float cap) {
    rows<true, true>(loss, logits, labels, scale, scaling, V, ld, cap);
}
extern "C" __global__ void __launch_bounds__(512) crossentropy_loss_capped(float *loss, elem *logits, const int *labels, int V, int ld, float cap) {
    rows<false, true>(loss, logits, labels, 0, 0, V, ld, cap);
}
