// expert_bias.cu: y = x + the bias of each row's expert, rows sorted by expert; rows from starts[E] on are with none and stay.
// Layout: x, y [S,N] elem, b [E,N] elem, starts [E+1] int32; y may be x. A block takes rows of one expert, its threads 8 neighbours each
// where N is a multiple of 8, else one. Arithmetic fp32. Bytes: 4 a value (b stays in cache). Goal: 80 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

// Grid (any, E + 1): the last row of blocks has the rows of no expert.
extern "C" __global__ void __launch_bounds__(256) expert_bias_add(elem *y, const elem *x, const elem *b, const int *starts, int S, int N) {
    int e = blockIdx.y;
    if (e == gridDim.y - 1) {
        if (y == x) return;
        for (int r = starts[e] + blockIdx.x; r < S; r += gridDim.x)
            for (int n = threadIdx.x; n < N; n += blockDim.x) y[(int64_t)r * N + n] = x[(int64_t)r * N + n];
        return;
    }
    int end = starts[e + 1];
    b += (int64_t)e * N;
    for (int r = starts[e] + blockIdx.x; r < end; r += gridDim.x) {
        const elem *from = x + (int64_t)r * N;
        elem *to = y + (int64_t)r * N;
        if (N % 8 == 0) {
            for (int n = threadIdx.x * 8; n < N; n += blockDim.x * 8) {
                float f[8], g[8];
                unpack(load8(from + n), f);
                unpack(load8(b + n), g);
#pragma unroll
                for (int k = 0; k < 8; k++) f[k] += g[k];
                store8(to + n, pack(f));
            }
        } else {
            for (int n = threadIdx.x; n < N; n += blockDim.x) to[n] = narrow(widen(from[n]) + widen(b[n]));
        }
    }
}
