// heads.cu: attention's heads in the rows of a rank's tokens, and in blocks for each rank that shares them; one part of a row
// (queries, keys or values) at a time.
// Layout: apart [M,C] elem, seen from the part's first head; together [ranks*M,W] elem, seen from the part's place in a row. A
// part has heads of D values, of which each rank has own, from rank*heads/ranks on. Where there are fewer heads than ranks,
// ranks/heads neighbours have the same one: heads_join adds theirs in their order, in fp32, and rounds once.
// unit values a thread: 8 (16 bytes) where D is a multiple of 8, else 1. Grid-stride, by steps of rows and units, so that a
// value's place takes no division of 64 bits.
// Bytes: 4 a value. Goal: copy.
// Elements: bf16, f16, f32.
#include "walk.cuh"

// Grid: any.
extern "C" __global__ void __launch_bounds__(256) heads_split(elem *together, const elem *apart, int M, int ranks, int C, int W, int own, int heads,
                                                              int D, int unit) {
    for (walk i(own * D / unit); i.row < (unsigned)ranks * M; i.next()) {
        int w = i.at * unit, rank = i.row / M, first = rank * heads / ranks;
        const elem *from = apart + (int64_t)(i.row - rank * M) * C + (int64_t)first * D + w;
        elem *to = together + (int64_t)i.row * W + w;
        if (unit == 8) store8(to, load8(from));
        else *to = *from;
    }
}

// Grid: any.
extern "C" __global__ void __launch_bounds__(256) heads_join(elem *apart, const elem *together, int M, int ranks, int C, int W, int own, int heads,
                                                             int D, int unit) {
    int same = heads < ranks ? ranks / heads : 1;
    for (walk i(heads * D / unit); i.row < (unsigned)M; i.next()) {
        int c = i.at * unit, rank = c / D / own * same;
        int64_t m = i.row;
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
