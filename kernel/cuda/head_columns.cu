// head_columns.cu: the same columns of every head, and their gradient's place among zeros.
// Layout: whole [R,D] elem packed, part [R,W] elem packed: columns from..from+W of whole. R counts the heads of all rows.
// A thread takes unit neighbours: 8 (16 bytes) where D, W and from are multiples of 8, else 1. Grid-stride.
// Bytes: 4 a value forward; backward 2 a value of part and 2 of whole. Goal: 80 % of copy.
// Elements: bf16, f16, f32.
#include "few.cuh"
#include "walk.cuh"

template <int N>
__device__ __forceinline__ void forward(elem *part, const elem *whole, unsigned R, int D, int from, int W) {
    for (walk i(W / N); i.row < R; i.next()) {
        few<N> v;
        v.load(whole + (int64_t)i.row * D + from + i.at * N);
        v.store(part + (int64_t)i.row * W + i.at * N);
    }
}

template <int N>
__device__ __forceinline__ void backward(elem *whole, const elem *part, unsigned R, int D, int from, int W) {
    for (walk i(D / N); i.row < R; i.next()) {
        int w = (int)i.at * N - from;
        few<N> v;
        if (w >= 0 && w < W) v.load(part + (int64_t)i.row * W + w);
        else v.zero();
        v.store(whole + (int64_t)i.row * D + i.at * N);
    }
}

// part <- columns of whole. Grid: any.
extern "C" __global__ void __launch_bounds__(256) head_columns_take(elem *part, const elem *whole, unsigned R, int D, int from, int W, int unit) {
    if (unit == 8) forward<8>(part, whole, R, D, from, W);
    else forward<1>(part, whole, R, D, from, W);
}

// whole <- part in its columns, 0 in the others. Grid: any.
extern "C" __global__ void __launch_bounds__(256) head_columns_spread(elem *whole, const elem *part, unsigned R, int D, int from, int W, int unit) {
    if (unit == 8) backward<8>(whole, part, R, D, from, W);
    else backward<1>(whole, part, R, D, from, W);
}
