// adamw.cu: one AdamW step over one flat buffer that holds every trained tensor.
// p <- p (1 - lr wd); m <- b1 m + (1-b1) g; v <- b2 v + (1-b2) g^2; p <- p - lr/(1-b1^t) m / (sqrt(v)/sqrt(1-b2^t) + eps),
// g first multiplied by the clip factor (decoupled decay, as torch.optim.AdamW).
// Layout: p, m, v, g [n] fp32, copy [n] elem (the operand of the next step's GEMMs) or 0. lr, clip: one fp32 on the device each;
// step: one int32 on the device, t of the first step is 1. So a captured graph replays with new values.
// scaling: 0, or [3] fp32 whose last is the number of steps skipped, which t does not count.
// A clip factor that is not a number changes nothing: the host may learn of a loss gone bad after the step was queued.
// Blocks of 256 threads stride over the buffer, four neighbours a thread where n allows. Arithmetic fp32, bias corrections fp64 once a block.
// Bytes: 30 a parameter (16 read, 14 written). Goal: 80 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

__device__ double power(double b, int t) {   // b^t by squaring: the same on every chip
    double r = 1;
    for (; t; t >>= 1, b *= b)
        if (t & 1) r *= b;
    return r;
}

struct Step {
    float decay, rate, root;   // 1 - lr wd, lr / (1 - b1^t), 1 / sqrt(1 - b2^t)
};

__device__ __forceinline__ float update(float &p, float &m, float &v, float g, const Step &s, float b1, float b2, float eps) {
    m = b1 * m + (1.f - b1) * g;
    v = b2 * v + (1.f - b2) * g * g;
    p = p * s.decay - s.rate * m / (sqrtf(v) * s.root + eps);
    return p;
}

extern "C" __global__ void __launch_bounds__(256) adamw_step(float *p, float *m, float *v, elem *copy, const float *g, const float *lr, const int *step,
                                                            const float *clip, const float *scaling, int64_t n, float b1, float b2, float eps, float decay) {
    __shared__ Step s;
    if (threadIdx.x == 0) {
        int t = *step - (scaling ? (int)scaling[2] : 0);
        s.decay = 1.f - *lr * decay;
        s.rate = (float)(*lr / (1. - power(b1, t)));
        s.root = (float)(1. / sqrt(1. - power(b2, t)));
    }
    __syncthreads();
    Step k = s;
    float c = *clip;
    if (c != c) return;
    int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 4, stride = (int64_t)gridDim.x * blockDim.x * 4;
    for (; at < n; at += stride) {
        if (at + 4 <= n) {
            float4 P = *(float4 *)(p + at), M = *(float4 *)(m + at), V = *(float4 *)(v + at), G = *(const float4 *)(g + at);
            update(P.x, M.x, V.x, G.x * c, k, b1, b2, eps);
            update(P.y, M.y, V.y, G.y * c, k, b1, b2, eps);
            update(P.z, M.z, V.z, G.z * c, k, b1, b2, eps);
            update(P.w, M.w, V.w, G.w * c, k, b1, b2, eps);
            *(float4 *)(p + at) = P, *(float4 *)(m + at) = M, *(float4 *)(v + at) = V;
            if (copy) store4(copy + at, P.x, P.y, P.z, P.w);
        } else {
            for (int64_t i = at; i < n; i++) {
                float P = p[i], M = m[i], V = v[i];
                update(P, M, V, g[i] * c, k, b1, b2, eps);
                p[i] = P, m[i] = M, v[i] = V;
                if (copy) copy[i] = narrow(P);
            }
        }
    }
}
