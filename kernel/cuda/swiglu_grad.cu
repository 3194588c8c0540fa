// swiglu_grad.cu: the gradient of h = silu(gate) up from dh.
// Layout: gate, up, dh, dgate, dup [n] elem, flat; dgate may be gate, dup may be up. In swiglu_grad_rows dh is [M,F] packed, the
// others have rows ld elements apart (two halves of one matrix: ld = 2F).
// A thread takes 8 neighbours (16 bytes), the rest one by one. Grid-stride; swiglu_grad_rows has a block for a row, whose threads
// take 8 neighbours where F and ld are multiples of 8, else one.
// Accumulation fp32. Bytes: 10 a value. Goal: 85 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

__device__ __forceinline__ void differentiate(float &gate, float &up, float dh) {   // leaves the gradients in their place
    float s = 1.f / (1.f + __expf(-gate)), f = gate * s, dgate = dh * up * s * (1.f + gate * (1.f - s));
    up = dh * f;
    gate = dgate;
}

// dgate <- dh up s(1 + gate(1 - s)), dup <- dh silu(gate), s = sigmoid(gate).
extern "C" __global__ void __launch_bounds__(256) swiglu_grad(elem *dgate, elem *dup, const elem *gate, const elem *up, const elem *dh, int64_t n) {
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first; i < n / 8; i += step) {
        float a[8], b[8], d[8];
        unpack(load8(gate + 8 * i), a);
        unpack(load8(up + 8 * i), b);
        unpack(load8(dh + 8 * i), d);
#pragma unroll
        for (int k = 0; k < 8; k++) differentiate(a[k], b[k], d[k]);
        store8(dgate + 8 * i, pack(a));
        store8(dup + 8 * i, pack(b));
    }
    for (int64_t i = n / 8 * 8 + first; i < n; i += step) {
        float a = widen(gate[i]), b = widen(up[i]);
        differentiate(a, b, widen(dh[i]));
        dgate[i] = narrow(a);
        dup[i] = narrow(b);
    }
}

// The same by rows. Grid M.
extern "C" __global__ void __launch_bounds__(256) swiglu_grad_rows(elem *dgate, elem *dup, const elem *gate, const elem *up, const elem *dh, int F, int ld) {
    int64_t row = (int64_t)blockIdx.x * ld;
    dgate += row, dup += row, gate += row, up += row, dh += (int64_t)blockIdx.x * F;
    if (F % 8 == 0 && ld % 8 == 0) {
        for (int i = threadIdx.x * 8; i < F; i += blockDim.x * 8) {
            float a[8], b[8], d[8];
            unpack(load8(gate + i), a);
            unpack(load8(up + i), b);
            unpack(load8(dh + i), d);
#pragma unroll
            for (int k = 0; k < 8; k++) differentiate(a[k], b[k], d[k]);
            store8(dgate + i, pack(a));
            store8(dup + i, pack(b));
        }
    } else {
        for (int i = threadIdx.x; i < F; i += blockDim.x) {
            float a = widen(gate[i]), b = widen(up[i]);
            differentiate(a, b, widen(dh[i]));
            dgate[i] = narrow(a);
            dup[i] = narrow(b);
        }
    }
}
