// embedding_grad.cu: the gradient of a table of embeddings, added to its rows without atomics.
// Layout: table [V,C] fp32; dy [M,C] elem; ids [M] int32. Row id of the table gets scale dy of every place of id, in the order of the
// places; an id outside 0..V-1 adds nothing, and rows of other ids stay as they are.
// A block is a place and 1024 columns. The block of an id's first place adds for all its places; the others stop once they have found
// an earlier one. A thread holds four columns. Every product and sum is rounded, so that the bits are those of the CPU's order.
// Bytes: 2 a value of dy, 8 a value of a row that occurs, and M/2 ids a block from the caches. Goal: 50 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

// Grid M, ceil(C/1024).
extern "C" __global__ void __launch_bounds__(256) embedding_grad_rows(float *table, const elem *dy, const int *ids, int M, int V, int C,
                                                                       float scale) {
    __shared__ unsigned same[8];
    int i = blockIdx.x, id = ids[i];
    if (id < 0 || id >= V) return;
    int earlier = 0;
    for (int j = threadIdx.x; j < i && !earlier; j += 256) earlier = ids[j] == id;
    if (__syncthreads_or(earlier)) return;
    int first = blockIdx.y * 1024 + threadIdx.x;
    table += (int64_t)id * C;
    float sum[4];
#pragma unroll
    for (int k = 0; k < 4; k++) sum[k] = first + 256 * k < C ? table[first + 256 * k] : 0.f;
    for (int from = i; from < M; from += 256) {
        int j = from + threadIdx.x;
        unsigned found = __ballot_sync(~0u, j < M && ids[j] == id);
        if ((threadIdx.x & 31) == 0) same[threadIdx.x >> 5] = found;
        __syncthreads();
        for (int w = 0; w < 8; w++)
            for (unsigned left = same[w]; left; left &= left - 1) {
                const elem *row = dy + (int64_t)(from + w * 32 + __ffs(left) - 1) * C;
#pragma unroll
                for (int k = 0; k < 4; k++)
                    if (first + 256 * k < C) sum[k] = __fadd_rn(sum[k], __fmul_rn(scale, widen(row[first + 256 * k])));
            }
        __syncthreads();
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (first + 256 * k < C) table[first + 256 * k] = sum[k];
}
