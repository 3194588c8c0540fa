// row_factors.cu: y[m,c] = x[m,c] table[which[m],c], and 0 where that factor is 0 or which[m] is no row of the table.
// Layout: x, y [M,C] elem, which [M] int32, table [A,C] fp32. One block a row. y may be x.
// Bytes: 4 a value. Goal: latency; a call moves a few rows.
// Elements: bf16, f16, f32.
#include "common.cuh"

// Grid M.
extern "C" __global__ void __launch_bounds__(256) row_factors(elem *y, const elem *x, const int *which, const float *table, int A, int C) {
    int a = which[blockIdx.x];
    x += (int64_t)blockIdx.x * C;
    y += (int64_t)blockIdx.x * C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        float by = a >= 0 && a < A ? table[(int64_t)a * C + c] : 0.f;
        y[c] = narrow(by == 0.f ? 0.f : widen(x[c]) * by);
    }
}
