// schedule_free.cu: schedule-free AdamW over one flat buffer that holds every trained tensor (kernel/schedule_free.go has the formulas):
// a step, the share of a step's z in the average, and which weights the parameters hold.
// Layout: p, x, z, v, g [n] fp32, copy [n] elem (the operand of the next step's GEMMs) or 0. weight: [4] fp32 (largest rate, sum of squares,
// share, number of steps). lr, clip: one fp32 on the device each; step: one int32. scaling: 0, or [3] fp32 whose last is the number of
// skipped steps, which t does not count.
// A clip factor that is not a number changes nothing: the host may learn of a loss gone bad after the step was queued.
// Blocks of 256 threads stride over the buffer, a number a thread. Arithmetic fp32, each operation rounded by itself (no fused
// multiply-add), so that the bits are the CPU's; with loss scaling the bias correction is fp64, rounded once.
// wide2: b2 as the bits of an fp64.
// Bytes: 38 a parameter (20 read, 18 written). Goal: 70 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

__device__ double power(double b, int t) {   // b^t by squaring: the same on every chip
    double r = 1;
    for (; t; t >>= 1, b = __dmul_rn(b, b))
        if (t & 1) r = __dmul_rn(r, b);
    return r;
}

// Grid and block: any.
extern "C" __global__ void __launch_bounds__(256) schedule_free_step(float *p, float *x, float *z, float *v, elem *copy, const float *g,
        const float *weight, const float *hyper, const int *step, const float *clip, const float *scaling, int64_t n, float b1, float to1,
        float b2, float to2, int64_t wide2, float eps, float decay) {
    const float c = *clip;
    if (c != c) return;
    const float lr = hyper[0], share = weight[2], rest = __fsub_rn(1.f, share);
    const bool first = weight[3] == 1.f;
    float correct = hyper[2];
    if (scaling) correct = (float)__dadd_rn(1., -power(__longlong_as_double(wide2), *step - (int)scaling[2]));
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        const float y = p[i], d = __fmul_rn(g[i], c);
        float X = first ? y : x[i], Z = first ? y : z[i];
        const float V = __fadd_rn(__fmul_rn(b2, v[i]), __fmul_rn(to2, __fmul_rn(d, d)));
        const float u = __fadd_rn(__fdiv_rn(d, __fadd_rn(__fsqrt_rn(__fdiv_rn(V, correct)), eps)), __fmul_rn(decay, y));
        Z = __fsub_rn(Z, __fmul_rn(lr, u));
        X = __fadd_rn(__fmul_rn(rest, X), __fmul_rn(share, Z));
        const float P = __fadd_rn(__fmul_rn(b1, X), __fmul_rn(to1, Z));
        p[i] = P, x[i] = X, z[i] = Z, v[i] = V;
        if (copy) copy[i] = narrow(P);
    }
}

// Grid: 1; block: any. One thread works.
extern "C" __global__ void __launch_bounds__(32) schedule_free_weight(float *weight, const float *lr, const float *clip) {
    if (threadIdx.x || *clip != *clip) return;
    const float most = fmaxf(weight[0], *lr), square = __fmul_rn(most, most), sum = __fadd_rn(weight[1], square);
    weight[0] = most, weight[1] = sum;
    if (sum > 0.f) weight[2] = __fdiv_rn(square, sum);
    weight[3] = __fadd_rn(weight[3], 1.f);
}

// Grid and block: any.
extern "C" __global__ void __launch_bounds__(256) schedule_free_show(float *p, elem *copy, const float *x, const float *z, const float *weight,
                                                                    int64_t n, float b1, float to1, int average) {
    if (weight[3] == 0.f) return;
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        const float P = average ? x[i] : __fadd_rn(__fmul_rn(b1, x[i]), __fmul_rn(to1, z[i]));
        p[i] = P;
        if (copy) copy[i] = narrow(P);
    }
}
