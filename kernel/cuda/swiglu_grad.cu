// swiglu_grad.cu: the gradient of h = silu(e) g, e = gate, g = up, from dh.
// Layout: e, g, dh, de, dg [n] elem, flat; de may be e, dg may be g.
// A thread takes 8 neighbours (16 bytes), the rest one by one. Grid-stride.
// Accumulation fp32. Bytes: 10 a value. Goal: 85 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

__device__ __forceinline__ void gate(float &e, float &g, float dh) {
    float s = 1.f / (1.f + __expf(-e)), f = e * s, de = dh * g * s * (1.f + e * (1.f - s));
    g = dh * f;
    e = de;
}

// de <- dh g s(1 + e(1 - s)), dg <- dh silu(e), s = sigmoid(e).
extern "C" __global__ void __launch_bounds__(256) swiglu_grad(elem *de, elem *dg, const elem *e, const elem *g, const elem *dh, int64_t n) {
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first; i < n / 8; i += step) {
        float a[8], b[8], d[8];
        unpack(load8(e + 8 * i), a);
        unpack(load8(g + 8 * i), b);
        unpack(load8(dh + 8 * i), d);
#pragma unroll
        for (int k = 0; k < 8; k++) gate(a[k], b[k], d[k]);
        store8(de + 8 * i, pack(a));
        store8(dg + 8 * i, pack(b));
    }
    for (int64_t i = n / 8 * 8 + first; i < n; i += step) {
        float a = widen(e[i]), b = widen(g[i]);
        gate(a, b, widen(dh[i]));
        de[i] = narrow(a);
        dg[i] = narrow(b);
    }
}
