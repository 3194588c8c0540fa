// geglu.cu: h = gelu(gate) up. gelu(x) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3), is torch's tanh form, gelu(x) = x Phi(x)
// with the normal distribution Phi(x) = erfc(-x/sqrt(2))/2 the exact one.
// Layout: h [M,F] elem packed; gate and up [M,F] elem, rows ld elements apart (two halves of one matrix: ld = 2F).
// A thread takes 8 neighbours (16 bytes) where F and ld are multiples of 8, else one. Grid-stride.
// Accumulation fp32. Bytes: 6 a value. Goal: 85 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

__device__ __forceinline__ float gelu(float x) { return x / (1.f + __expf(-1.5957691216057308f * x * fmaf(0.044715f * x, x, 1.f))); }

__device__ __forceinline__ float gelu_erf(float x) { return 0.5f * x * erfcf(-0.70710678118654752f * x); }

template <bool ERF> __device__ __forceinline__ void forward(elem *h, const elem *gate, const elem *up, int M, int F, int ld) {
    int wide = F % 8 == 0 && ld % 8 == 0 ? 8 : 1, per = F / wide;
    int64_t total = (int64_t)M * per;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        int64_t to = i * wide, from = ld == F ? to : i / per * ld + i % per * wide;
        if (wide == 8) {
            float a[8], b[8];
            unpack(load8_stream(gate + from), a);
            unpack(load8_stream(up + from), b);
#pragma unroll
            for (int k = 0; k < 8; k++) b[k] *= ERF ? gelu_erf(a[k]) : gelu(a[k]);
            store8(h + to, pack(b));
        } else {
            float x = widen(gate[from]);
            h[to] = narrow((ERF ? gelu_erf(x) : gelu(x)) * widen(up[from]));
        }
    }
}

// h <- gelu(gate) up. h may be gate when ld = F.
extern "C" __global__ void __launch_bounds__(256) geglu_forward(elem *h, const elem *gate, const elem *up, int M, int F, int ld) {
    forward<false>(h, gate, up, M, F, ld);
}

// geglu_forward with the exact gelu.
extern "C" __global__ void __launch_bounds__(256) geglu_forward_erf(elem *h, const elem *gate, const elem *up, int M, int F, int ld) {
    forward<true>(h, gate, up, M, F, ld);
}
