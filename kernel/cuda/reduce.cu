// reduce.cu: fixed-order sums.
// reduce_sum adds n fp32 values (the rows' losses) into one; reduce_splits adds S partial matrices (a GEMM whose inner
// dimension was divided) element by element in the order 0..S-1.
// Layout: flat buffers.
// Accumulation fp32, reduce_sum fp64 across the block. Bytes: reduce_splits 4 S + 4 a value. Goal: 85 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

// out = (accumulate ? out : 0) + scale sum(x); scale may be 0 (none). Grid 1, block 1024.
extern "C" __global__ void __launch_bounds__(1024) reduce_sum(float *out, const float *x, int n, const float *scale, int accumulate) {
    __shared__ double part[32];
    double s = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += x[i];
#pragma unroll
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = s;
    __syncthreads();
    if (threadIdx.x < 32) {
        s = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
#pragma unroll
        for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
        if (threadIdx.x == 0) *out = (accumulate ? *out : 0.f) + (float)(scale ? s * *scale : s);
    }
}

// out[n] fp32 = beta out + alpha (part[0][n] + part[1][n] + ...). Grid-stride.
extern "C" __global__ void __launch_bounds__(256) reduce_splits(float *out, const float *part, int S, int64_t n, float alpha, float beta) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        float v = 0;
        for (int s = 0; s < S; s++) v += part[s * n + i];
        v *= alpha;
        out[i] = beta == 0 ? v : fmaf(beta, out[i], v);
    }
}

// The same with a narrow result.
extern "C" __global__ void __launch_bounds__(256) reduce_splits_narrow(elem *out, const float *part, int S, int64_t n, float alpha, float beta) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        float v = 0;
        for (int s = 0; s < S; s++) v += part[s * n + i];
        v *= alpha;
        out[i] = narrow(beta == 0 ? v : fmaf(beta, widen(out[i]), v));
    }
}
