// columns.cu: y = W neighbouring columns of every row of x.
// Layout: x [M,C] elem, seen from the first column that is taken; y [M,W] elem. One block a row, 16 bytes a thread where C and W are
// multiples of 8 and x lies at a multiple of 16 bytes.
// Bytes: 4 a value. Goal: latency; a call moves a few rows.
// Elements: bf16, f16, f32.
#include "common.cuh"

// Grid M.
extern "C" __global__ void __launch_bounds__(256) columns_copy(elem *y, const elem *x, int C, int W) {
    x += (int64_t)blockIdx.x * C;
    y += (int64_t)blockIdx.x * W;
    if (W % 8 == 0 && C % 8 == 0 && (uint64_t)x % 16 == 0) {
        for (int w = threadIdx.x * 8; w < W; w += blockDim.x * 8) store8(y + w, load8(x + w));
    } else {
        for (int w = threadIdx.x; w < W; w += blockDim.x) y[w] = x[w];
    }
}
