// bias.cu: y[m] = x[m] + b.
// Layout: x, y [M,N] elem, b [N] elem; y may be x. Eight values a thread and round where N is a multiple of 8, else one.
// Grid-stride. Arithmetic fp32. Bytes: 4 a value (b stays in cache). Goal: 80 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

// Grid: any.
extern "C" __global__ void __launch_bounds__(256) bias_add(elem *y, const elem *x, const elem *b, int M, int N) {
    int wide = N % 8 == 0 ? 8 : 1, units = N / wide;
    int64_t total = (int64_t)M * units;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        int n = (int)(i % units) * wide;
        if (wide == 8) {
            float f[8], g[8];
            unpack(load8(x + i * 8), f);
            unpack(load8(b + n), g);
#pragma unroll
            for (int k = 0; k < 8; k++) f[k] += g[k];
            store8(y + i * 8, pack(f));
        } else {
            y[i] = narrow(widen(x[i]) + widen(b[n]));
        }
    }
}
