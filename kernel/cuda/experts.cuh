// experts.cuh: which expert's rows a block works on, where rows are sorted by expert.
#pragma once
#include "gemm.cuh"

// Finds the t-th tile of BM rows, counted over the experts one after the other: its expert and its first row among the expert's; false
// where there are no so many tiles. starts [E+1]: the experts' first rows. All lanes of a warp call it. The search begins at expert
// `first`, with `before` tiles before it, and leaves in both where the one for a later tile may begin.
template <int BM>
__device__ __forceinline__ bool expert_tile(const int *starts, int E, int t, int &expert, int &row, int &first, int &before) {
    int lane = threadIdx.x & 31;
    for (; first < E; first += 32) {
        int e = first + lane, tiles = e < E ? (starts[e + 1] - starts[e] + BM - 1) / BM : 0, sum = tiles;
#pragma unroll
        for (int o = 1; o < 32; o <<= 1) {
            int below = __shfl_up_sync(~0u, sum, o);
            if (lane >= o) sum += below;
        }
        int all = __shfl_sync(~0u, sum, 31);
        if (t < before + all) {
            int l = __ffs(__ballot_sync(~0u, before + sum > t)) - 1;
            expert = first + l;
            row = (t - before - __shfl_sync(~0u, sum - tiles, l)) * BM;
            return true;
        }
        before += all;
    }
    return false;
}
template <int BM>
__device__ __forceinline__ bool expert_tile(const int *starts, int E, int t, int &expert, int &row) {
    int first = 0, before = 0;
    return expert_tile<BM>(starts, E, t, expert, row, first, before);
}
