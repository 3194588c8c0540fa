// sigmoid_gate.cu: y = x sigmoid(gate), a gate for each row, and its gradients.
// Layout: x, y, dy, dx [M,C] elem packed; gate, dgate [M] elem.
// Forward: a thread takes one value, grid-stride. Gradient: a warp takes a row, 8 rows a block, lanes in the order of the columns.
// Accumulation fp32. Bytes: 4 a value forward, 6 backward. Goal: 60 % of copy, as it is small beside the GEMMs that it stands between.
// Elements: bf16, f16, f32.
#include "moe.cuh"

enum { WARPS = 8 };

// y <- x sigmoid(gate). y may be x.
extern "C" __global__ void __launch_bounds__(256) sigmoid_gate_rows(elem *y, const elem *x, const elem *gate, int M, int C) {
    int64_t total = (int64_t)M * C;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x)
        y[i] = narrow(widen(x[i]) / (1.f + expf(-widen(gate[i / C]))));
}

// dx <- dy s, dgate <- s (1-s) sum(x dy), s = sigmoid(gate).
extern "C" __global__ void __launch_bounds__(256) sigmoid_gate_grad(elem *dx, elem *dgate, const elem *x, const elem *gate, const elem *dy, int M, int C) {
    int m = blockIdx.x * WARPS + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (m >= M) return;
    float z = widen(gate[m]), s = 1.f / (1.f + expf(-z)), rest = 1.f / (1.f + expf(z)), sum = 0.f;
    int64_t row = (int64_t)m * C;
    for (int i = lane; i < C; i += 32) {
        float d = widen(dy[row + i]);
        sum = fmaf(widen(x[row + i]), d, sum);
        dx[row + i] = narrow(d * s);
    }
    sum = warp_sum(sum);
    if (lane == 0) dgate[m] = narrow(s * rest * sum);
}
