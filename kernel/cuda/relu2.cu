// relu2.cu: y = max(x, 0)^2 and its gradient.
// Layout: x, y, dy, dx [n] elem, flat; y may be x, dx may be x or dy.
// A thread takes 8 neighbours (16 bytes), the rest one by one. Grid-stride.
// Accumulation fp32. Bytes: 4 a value, backward 6. Goal: 85 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

// Zero below zero; what is no number stays none.
__device__ __forceinline__ float rectified(float x) { return x < 0.f ? 0.f : x; }

// y <- max(x, 0)^2.
extern "C" __global__ void __launch_bounds__(256) relu2_forward(elem *y, const elem *x, int64_t n) {
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first; i < n / 8; i += step) {
        float a[8];
        unpack(load8(x + 8 * i), a);
#pragma unroll
        for (int k = 0; k < 8; k++) a[k] = rectified(a[k]) * rectified(a[k]);
        store8(y + 8 * i, pack(a));
    }
    for (int64_t i = n / 8 * 8 + first; i < n; i += step) {
        float a = rectified(widen(x[i]));
        y[i] = narrow(a * a);
    }
}

// dx <- 2 max(x, 0) dy.
extern "C" __global__ void __launch_bounds__(256) relu2_grad(elem *dx, const elem *x, const elem *dy, int64_t n) {
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first; i < n / 8; i += step) {
        float a[8], d[8];
        unpack(load8(x + 8 * i), a);
        unpack(load8(dy + 8 * i), d);
#pragma unroll
        for (int k = 0; k < 8; k++) a[k] = 2.f * rectified(a[k]) * d[k];
        store8(dx + 8 * i, pack(a));
    }
    for (int64_t i = n / 8 * 8 + first; i < n; i += step) dx[i] = narrow(2.f * rectified(widen(x[i])) * widen(dy[i]));
}
