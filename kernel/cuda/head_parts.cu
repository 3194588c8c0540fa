// head_parts.cu: the columns of heads, head by head or part by part.
// Layout: heads [M,H,w0+w1+w2+w3] elem packed; parts [M, H w0 | H w1 | H w2 | H w3] elem packed, heads in order within a part.
// A thread takes unit neighbours of a row: 8 (16 bytes) where all widths are multiples of 8, else 1. Grid-stride.
// Bytes: 4 a value. Goal: 80 % of copy.
// Elements: bf16, f16, f32.
#include "few.cuh"
#include "walk.cuh"

// The place in a row, part by part, of column at, counted head by head.
__device__ __forceinline__ int part_column(int at, int H, int w0, int w1, int w2, int w3) {
    int head = w0 + w1 + w2 + w3, h = at / head, from = at - h * head, before = 0, width = w0;
    if (from >= w0) before = w0, width = w1;
    if (from >= w0 + w1) before = w0 + w1, width = w2;
    if (from >= w0 + w1 + w2) before = w0 + w1 + w2, width = w3;
    return H * before + h * width + from - before;
}

template <int U, bool BACK>
__device__ __forceinline__ void reorder(elem *y, const elem *x, unsigned M, int H, int w0, int w1, int w2, int w3) {
    int C = H * (w0 + w1 + w2 + w3);
    for (walk i(C / U); i.row < M; i.next()) {
        int by_head = (int)i.at * U, by_part = part_column(by_head, H, w0, w1, w2, w3);
        int64_t row = (int64_t)i.row * C;
        few<U> v;
        v.load(x + row + (BACK ? by_part : by_head));
        v.store(y + row + (BACK ? by_head : by_part));
    }
}

// y, part by part <- x, head by head. Grid: any.
extern "C" __global__ void __launch_bounds__(256) head_parts_split(elem *y, const elem *x, unsigned M, int H, int w0, int w1, int w2, int w3, int unit) {
    if (unit == 8) reorder<8, false>(y, x, M, H, w0, w1, w2, w3);
    else reorder<1, false>(y, x, M, H, w0, w1, w2, w3);
}

// y, head by head <- x, part by part. Grid: any.
extern "C" __global__ void __launch_bounds__(256) head_parts_join(elem *y, const elem *x, unsigned M, int H, int w0, int w1, int w2, int w3, int unit) {
    if (unit == 8) reorder<8, true>(y, x, M, H, w0, w1, w2, w3);
    else reorder<1, true>(y, x, M, H, w0, w1, w2, w3);
}
