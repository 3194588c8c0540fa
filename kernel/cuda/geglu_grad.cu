// geglu_grad.cu: the gradient of h = gelu(gate) up from dh, both forms of gelu as in geglu.cu.
// Layout: gate, up, dh, dgate, dup [n] elem, flat; dgate may be gate, dup may be up.
// A thread takes 8 neighbours (16 bytes), the rest one by one. Grid-stride.
// Accumulation fp32. Bytes: 10 a value. Goal: 85 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

__device__ __forceinline__ void differentiate(float &gate, float &up, float dh) {   // leaves the gradients in their place
    float q = 0.044715f * gate * gate, v = 1.5957691216057308f * gate, s = 1.f / (1.f + __expf(-v * (1.f + q)));
    float dgate = dh * up * s * (1.f + v * (1.f + 3.f * q) * (1.f - s));
    up = dh * gate * s;
    gate = dgate;
}

__device__ __forceinline__ void differentiate_erf(float &gate, float &up, float dh) {
    float share = 0.5f * erfcf(-0.70710678118654752f * gate), density = 0.39894228040143268f * __expf(-0.5f * gate * gate);
    float dgate = dh * up * fmaf(gate, density, share);
    up = dh * gate * share;
    gate = dgate;
}

template <bool ERF> __device__ __forceinline__ void backward(elem *dgate, elem *dup, const elem *gate, const elem *up, const elem *dh, int64_t n) {
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first; i < n / 8; i += step) {
        float a[8], b[8], d[8];
        unpack(load8(gate + 8 * i), a);
        unpack(load8(up + 8 * i), b);
        unpack(load8(dh + 8 * i), d);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            if (ERF) differentiate_erf(a[k], b[k], d[k]);
            else differentiate(a[k], b[k], d[k]);
        }
        store8(dgate + 8 * i, pack(a));
        store8(dup + 8 * i, pack(b));
    }
    for (int64_t i = n / 8 * 8 + first; i < n; i += step) {
        float a = widen(gate[i]), b = widen(up[i]);
        if (ERF) differentiate_erf(a, b, widen(dh[i]));
        else differentiate(a, b, widen(dh[i]));
        dgate[i] = narrow(a);
        dup[i] = narrow(b);
    }
}

// dgate <- dh up s(1 + 2 sqrt(2/pi) gate (1 + 3 0.044715 gate^2)(1 - s)), dup <- dh gelu(gate), s = sigmoid(2u).
extern "C" __global__ void __launch_bounds__(256) geglu_grad(elem *dgate, elem *dup, const elem *gate, const elem *up, const elem *dh, int64_t n) {
    backward<false>(dgate, dup, gate, up, dh, n);
}

// dgate <- dh up (Phi(gate) + gate phi(gate)), dup <- dh gate Phi(gate), phi the density of Phi.
extern "C" __global__ void __launch_bounds__(256) geglu_grad_erf(elem *dgate, elem *dup, const elem *gate, const elem *up, const elem *dh, int64_t n) {
    backward<true>(dgate, dup, gate, up, dh, n);
}
