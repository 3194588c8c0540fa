// replace_rows.cu: rows of a matrix that are replaced by those of a small one, the gradient of these, and their numbers.
// Layout: x, y [M,C] elem; rows [K,C] elem; at [M] int32, the row of rows that stands in place of row m, none outside 0..K-1; drows [K,C]
// fp32; dy [M,C] elem, or fp32 for the gradient of a weight.
// Forward: a block a row, 16 bytes a thread where C is a multiple of 8. Gradient: a block is a row of rows and 1024 columns, a thread four
// of them; it adds the row's places in their order, and every product and sum is rounded, so that the bits are those of the CPU's order.
// Bytes: 4 a value forward; for the gradient 4 M a block from the caches. Goal: 80 % of copy forward.
// Elements: bf16, f16, f32.
#include "common.cuh"

// Grid M.
extern "C" __global__ void __launch_bounds__(256) replace_rows_copy(elem *y, const elem *x, const elem *rows, const int *at, int K, int C,
                                                                     float scale) {
    int k = at[blockIdx.x];
    bool put = k >= 0 && k < K;
    y += (int64_t)blockIdx.x * C;
    const elem *from = put ? rows + (int64_t)k * C : x + (int64_t)blockIdx.x * C;
    if (!put) scale = 1.f;
    if (C % 8 == 0) {
        for (int c = threadIdx.x * 8; c < C; c += blockDim.x * 8) {
            Eight<elem> v = load8(from + c);
            if (scale != 1.f) {
                float f[8];
                unpack(v, f);
#pragma unroll
                for (int i = 0; i < 8; i++) f[i] *= scale;
                v = pack(f);
            }
            store8(y + c, v);
        }
    } else {
        for (int c = threadIdx.x; c < C; c += blockDim.x) y[c] = scale != 1.f ? narrow(widen(from[c]) * scale) : from[c];
    }
}

template <typename T>
__device__ void sums(float *drows, const T *dy, const int *at, int M, int C, float scale) {
    __shared__ unsigned same[8];
    int k = blockIdx.x, first = blockIdx.y * 1024 + threadIdx.x;
    float sum[4] = {};
    for (int from = 0; from < M; from += 256) {
        int j = from + threadIdx.x;
        unsigned found = __ballot_sync(~0u, j < M && at[j] == k);
        if ((threadIdx.x & 31) == 0) same[threadIdx.x >> 5] = found;
        if (!__syncthreads_or(found)) continue;
        for (int w = 0; w < 8; w++)
            for (unsigned left = same[w]; left; left &= left - 1) {
                const T *row = dy + (int64_t)(from + w * 32 + __ffs(left) - 1) * C;
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (first + 256 * i < C) sum[i] = __fadd_rn(sum[i], __fmul_rn(scale, widen(row[first + 256 * i])));
            }
        __syncthreads();
    }
    drows += (int64_t)k * C;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (first + 256 * i < C) drows[first + 256 * i] = sum[i];
}

// Grid K, ceil(C/1024).
extern "C" __global__ void __launch_bounds__(256) replace_rows_grad(float *drows, const elem *dy, const int *at, int M, int C, float scale) {
    sums(drows, dy, at, M, C, scale);
}

// The same of a gradient in fp32. Grid K, ceil(C/1024).
extern "C" __global__ void __launch_bounds__(256) replace_rows_grad_wide(float *drows, const float *dy, const int *at, int M, int C,
                                                                          float scale) {
    sums(drows, dy, at, M, C, scale);
}

// y[m] = table[ids[m]], -1 where an id is outside 0..V-1. Flat over M.
extern "C" __global__ void __launch_bounds__(256) replace_rows_lookup(int *y, const int *ids, const int *table, int M, int V) {
    for (int64_t m = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; m < M; m += (int64_t)gridDim.x * blockDim.x)
        y[m] = ids[m] >= 0 && ids[m] < V ? table[ids[m]] : -1;
}
