// experts.cuh: which expert's rows a block works on, where rows are sorted by expert.
#pragma once
#include "gemm.cuh"

// The sum of a lane's number and those of the lanes below it.
__device__ __forceinline__ int sum_so_far(int own) {
    int lane = threadIdx.x & 31, sum = own;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        int below = __shfl_up_sync(~0u, sum, o);
        if (lane >= o) sum += below;
    }
    return sum;
}

// Finds the t-th tile of BM rows, counted over the experts one after the other: its expert and its first row among the expert's; false
// where there are no so many tiles. starts [E+1]: the experts' first rows. All lanes of a warp call it, and each looks at EACH experts at a
// time. The search begins at expert `first`, with `before` tiles before it, and leaves in both where the one for a later tile may begin.
template <int BM, int EACH = 1>
__device__ __forceinline__ bool expert_tile(const int *starts, int E, int t, int &expert, int &row, int &first, int &before) {
    int lane = threadIdx.x & 31;
    for (; first < E; first += 32 * EACH) {
        int tiles[EACH], own = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int e = first + EACH * lane + i;
            tiles[i] = e < E ? (starts[e + 1] - starts[e] + BM - 1) / BM : 0;
            own += tiles[i];
        }
        int sum = sum_so_far(own), all = __shfl_sync(~0u, sum, 31);
        if (t < before + all) {
            int l = __ffs(__ballot_sync(~0u, before + sum > t)) - 1, left = t - before - __shfl_sync(~0u, sum - own, l), i = 0;
#pragma unroll
            for (int k = 0; k + 1 < EACH; k++)
                if (i == k && left >= tiles[k]) left -= tiles[k], i++;
            if (EACH > 1) i = __shfl_sync(~0u, i, l), left = __shfl_sync(~0u, left, l);
            expert = first + EACH * l + i;
            row = left * BM;
            return true;
        }
        before += all;
    }
    return false;
}

// The products of rows that are with no expert are zero: those of y [S,N] from `end` on. This is thread i of n that share them.
template <typename T>
__device__ __forceinline__ void no_expert(T *y, int end, int S, int N, int i, int n) {
    y += (int64_t)end * N;
    int64_t count = (int64_t)(S - end) * N;
    if (N % 8 == 0 && !((uint64_t)y & 15)) {
#pragma unroll 1
        for (int64_t k = (int64_t)i * 8; k < count; k += (int64_t)n * 8) store8(y + k, fill8<T>(0));
    } else {
#pragma unroll 1
        for (int64_t k = i; k < count; k += n) y[k] = narrow<T>(0.f);
    }
}

// What the blocks do that are behind the last tile of rows: the rows of no expert, unless the product is added to y. `tiles` are all before
// them; the grid has more rows of blocks than there can be tiles.
template <typename T>
__device__ __forceinline__ void behind_tiles(T *y, const int *starts, int S, int E, int N, float beta, int tiles) {
    if (beta == 0.f)
        no_expert(y, starts[E], S, N, ((blockIdx.y - tiles) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x, (gridDim.y - tiles) * gridDim.x * blockDim.x);
}

// The tile of rows of y [S,N] that a block has by blockIdx.y, found by each of its warps. Where there is none, it does what blocks behind the
// tiles do, and the answer is false.
template <int BM, typename T>
__device__ __forceinline__ bool block_tile(T *y, const int *starts, int S, int E, int N, float beta, int &expert, int &row) {
    int first = 0, before = 0;
    if (expert_tile<BM>(starts, E, blockIdx.y, expert, row, first, before)) return true;
    behind_tiles(y, starts, S, E, N, beta, before);
    return false;
}
