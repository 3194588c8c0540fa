// xielu.cu: Apertus' activation xIELU and its gradient.
// Layout: x, y, dy, dx [n] elem, flat; p, n, beta, eps [1] float; y may be x, dx may be x or dy.
// A thread takes 8 neighbours (16 bytes), the rest one by one. Grid-stride.
// Accumulation fp32. Bytes: 4 a value, backward 6. Goal: 80 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

struct Sides {
    float above, below, beta, eps;
};

__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.f) + log1pf(expf(-fabsf(x))); }

__device__ __forceinline__ Sides sides(const float *p, const float *n, const float *beta, const float *eps) {
    return {softplus(p[0]), beta[0] + softplus(n[0]), beta[0], eps[0]};
}

__device__ __forceinline__ float value(float x, const Sides &s) {
    if (x > 0.f) return s.above * x * x + s.beta * x;
    return (expm1f(fminf(x, s.eps)) - x) * s.below + s.beta * x;
}

__device__ __forceinline__ float slope(float x, const Sides &s) {
    if (x > 0.f) return 2.f * s.above * x + s.beta;
    return (x < s.eps ? expm1f(x) : -1.f) * s.below + s.beta;
}

// y <- xIELU(x).
extern "C" __global__ void __launch_bounds__(256) xielu_forward(elem *y, const elem *x, const float *p, const float *q, const float *beta, const float *eps,
                                                                int64_t n) {
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    Sides s = sides(p, q, beta, eps);
    for (int64_t i = first; i < n / 8; i += step) {
        float a[8];
        unpack(load8(x + 8 * i), a);
#pragma unroll
        for (int k = 0; k < 8; k++) a[k] = value(a[k], s);
        store8(y + 8 * i, pack(a));
    }
    for (int64_t i = n / 8 * 8 + first; i < n; i += step) y[i] = narrow(value(widen(x[i]), s));
}

// dx <- xIELU'(x) dy.
extern "C" __global__ void __launch_bounds__(256) xielu_grad(elem *dx, const elem *x, const float *p, const float *q, const float *beta, const float *eps,
                                                             const elem *dy, int64_t n) {
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    Sides s = sides(p, q, beta, eps);
    for (int64_t i = first; i < n / 8; i += step) {
        float a[8], d[8];
        unpack(load8(x + 8 * i), a);
        unpack(load8(dy + 8 * i), d);
#pragma unroll
        for (int k = 0; k < 8; k++) a[k] = slope(a[k], s) * d[k];
        store8(dx + 8 * i, pack(a));
    }
    for (int64_t i = n / 8 * 8 + first; i < n; i += step) dx[i] = narrow(slope(widen(x[i]), s) * widen(dy[i]));
}
