// sequence_sums.cu: sums of a number of every token over each sequence, how many tokens have a label, and the gradient for the tokens.
// Layout: x, dx [R,M] fp32; labels [M] int32, -100 = left out; starts [S+1] int32, never falling: sequence s is tokens starts[s] to
// starts[s+1]-1, and what lies outside of [0,M) is no token; sums, dsums [R,S], counts [S] fp32.
// Sums: one block of 256 a sequence and row of x, tokens dealt out by turns, so that the order depends on the sequence's length and
// place alone. Gradient: one token a thread, its sequence found by halving. Accumulation fp32.
// Bytes: 8 a token. Goal: latency; a call moves a few thousand numbers.
#include "common.cuh"

enum { UNLABELLED = -100 };

// sums[R,S] and counts[S]. Grid S, R.
extern "C" __global__ void __launch_bounds__(256) sequence_sums_forward(float *sums, float *counts, const float *x, const int *labels,
                                                                         const int *starts, int M, int S) {
    int s = blockIdx.x, row = blockIdx.y;
    int first = min(max(starts[s], 0), M), end = min(max(starts[s + 1], 0), M);
    x += (int64_t)row * M;
    float sum = 0.f, count = 0.f;
    for (int m = first + threadIdx.x; m < end; m += blockDim.x)
        if (labels[m] != UNLABELLED) sum += x[m], count += 1.f;
    sum = block_sum(sum);
    count = block_sum(count);
    if (threadIdx.x) return;
    sums[(int64_t)row * S + s] = sum;
    if (row == 0) counts[s] = count;
}

// dx[R,M]. Flat over M.
extern "C" __global__ void __launch_bounds__(256) sequence_sums_gradient(float *dx, const int *labels, const int *starts, const float *dsums,
                                                                          int M, int S, int R) {
    for (int m = blockIdx.x * blockDim.x + threadIdx.x; m < M; m += gridDim.x * blockDim.x) {
        int low = -1, high = S + 1;   // starts[low] <= m < starts[high]
        while (high - low > 1) {
            int middle = (low + high) / 2;
            if (starts[middle] <= m) low = middle;
            else high = middle;
        }
        bool inside = low >= 0 && low < S && labels[m] != UNLABELLED;
        for (int row = 0; row < R; row++) dx[(int64_t)row * M + m] = inside ? dsums[(int64_t)row * S + low] : 0.f;
    }
}
