// swiglu.cu: h = silu(gate) up.
// Layout: h [M,F] elem packed; gate and up [M,F] elem, rows ld elements apart (two halves of one matrix: ld = 2F).
// A thread takes 8 neighbours (16 bytes) where F and ld are multiples of 8, else one. Grid-stride.
// Accumulation fp32. Bytes: 6 a value. Goal: 85 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"
#include "early.cuh"

__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + __expf(-x)); }

// h <- silu(gate) up. h may be gate when ld = F.
extern "C" __global__ void __launch_bounds__(256) swiglu_forward(elem *h, const elem *gate, const elem *up, int M, int F, int ld) {
    let_next_begin();
    wait_for_earlier();
    int wide = F % 8 == 0 && ld % 8 == 0 ? 8 : 1, per = F / wide;
    int64_t total = (int64_t)M * per;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        int64_t to = i * wide, from = ld == F ? to : i / per * ld + i % per * wide;
        if (wide == 8) {
            float a[8], b[8];
            unpack(load8_stream(gate + from), a);
            unpack(load8_stream(up + from), b);
#pragma unroll
            for (int k = 0; k < 8; k++) b[k] *= a[k] * sigmoid(a[k]);
            store8(h + to, pack(b));
        } else {
            float a = widen(gate[from]);
            h[to] = narrow(a * sigmoid(a) * widen(up[from]));
        }
    }
}
