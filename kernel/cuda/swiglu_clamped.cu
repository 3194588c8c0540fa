// swiglu_clamped.cu: gpt-oss's gate: h = (u + 1) g sigmoid(1.702 g) of limited g and u, and its gradient.
// Layout: x, dx [S,2F] elem, even columns g, odd ones u, flat; h, dh [S,F] elem, flat; dx may be x. n = S F.
// A thread takes 8 neighbours of x, which are 4 of h, the rest of h one by one. Grid-stride.
// Accumulation fp32. Bytes: forward 6 a value of h, gradient 10. Goal: 80 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

#define ALPHA 1.702f
#define LIMIT 7.f

__device__ __forceinline__ float gated(float gate, float up) {
    float g = fminf(gate, LIMIT), u = fminf(fmaxf(up, -LIMIT), LIMIT);
    return (u + 1.f) * g / (1.f + expf(-ALPHA * g));
}

__device__ __forceinline__ void differentiate(float &gate, float &up, float dh) {   // leaves the gradients in their place
    float g = fminf(gate, LIMIT), u = fminf(fmaxf(up, -LIMIT), LIMIT), s = 1.f / (1.f + expf(-ALPHA * g));
    gate = gate > LIMIT ? 0.f : dh * (u + 1.f) * s * (1.f + ALPHA * g * (1.f - s));
    up = fabsf(up) > LIMIT ? 0.f : dh * g * s;
}

extern "C" __global__ void __launch_bounds__(256) swiglu_clamped_forward(elem *h, const elem *x, int64_t n) {
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first; i < n / 4; i += step) {
        float f[8];
        unpack(load8(x + 8 * i), f);
        store4(h + 4 * i, gated(f[0], f[1]), gated(f[2], f[3]), gated(f[4], f[5]), gated(f[6], f[7]));
    }
    for (int64_t i = n / 4 * 4 + first; i < n; i += step) h[i] = narrow(gated(widen(x[2 * i]), widen(x[2 * i + 1])));
}

extern "C" __global__ void __launch_bounds__(256) swiglu_clamped_grad(elem *dx, const elem *x, const elem *dh, int64_t n) {
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first; i < n / 4; i += step) {
        float f[8];
        unpack(load8(x + 8 * i), f);
#pragma unroll
        for (int k = 0; k < 4; k++) differentiate(f[2 * k], f[2 * k + 1], widen(dh[4 * i + k]));
        store8(dx + 8 * i, pack(f));
    }
    for (int64_t i = n / 4 * 4 + first; i < n; i += step) {
        float g = widen(x[2 * i]), u = widen(x[2 * i + 1]);
        differentiate(g, u, widen(dh[i]));
        dx[2 * i] = narrow(g);
        dx[2 * i + 1] = narrow(u);
    }
}
