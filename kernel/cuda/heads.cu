// heads.cu: attention's heads in the rows of a rank's tokens, and in blocks for each rank that shares them; one part of a row
// (queries, keys or values) at a time.
// Layout: apart [M,C] elem, seen from the part's first head; together [ranks*M,W] elem, seen from the part's place in a row. A
// part has heads of D values, of which each rank has own, from rank*heads/ranks on. Where there are fewer heads than ranks,
// ranks/heads neighbours have the same one: heads_join adds theirs in their order, in fp32, and rounds once.
// unit values a thread: 8 (16 bytes) where D is a multiple of 8, else 1. Grid-stride.
// Bytes: 4 a value. Goal: copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

// Grid: any.
extern "C" __global__ void __launch_bounds__(256) heads_split(elem *together, const elem *apart, int M, int ranks, int C, int W, int own, int heads,
                                                              int D, int unit) {
    int width = own * D / unit;
    int64_t n = (int64_t)ranks * M * width;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        int w = (int)(i % width) * unit;
        int64_t row = i / width;
        int rank = (int)(row / M), first = rank * heads / ranks;
        const elem *from = apart + (row - (int64_t)rank * M) * C + (int64_t)first * D + w;
        elem *to = together + row * W + w;
        if (unit == 8) store8(to, load8(from));
        else *to = *from;
    }
}

// Grid: any.
extern "C" __global__ void __launch_bounds__(256) heads_join(elem *apart, const elem *together, int M, int ranks, int C, int W, int own, int heads,
                                                             int D, int unit) {
    int width = heads * D / unit, same = heads < ranks ? ranks / heads : 1;
    int64_t n = (int64_t)M * width;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        int c = (int)(i % width) * unit;
        int64_t m = i / width;
        int rank = c / D / own * same;
        const elem *from = together + ((int64_t)rank * M + m) * W + c % (own * D);
        elem *to = apart + m * C + c;
        if (unit == 8) {
            if (same == 1) {
                store8(to, load8(from));
                continue;
            }
            float sum[8], x[8];
            unpack(load8(from), sum);
            for (int s = 1; s < same; s++) {
                unpack(load8(from + (int64_t)s * M * W), x);
#pragma unroll
                for (int k = 0; k < 8; k++) sum[k] += x[k];
            }
            store8(to, pack(sum));
        } else {
            float sum = widen(*from);
            for (int s = 1; s < same; s++) sum += widen(from[(int64_t)s * M * W]);
            *to = narrow(sum);
        }
    }
}
