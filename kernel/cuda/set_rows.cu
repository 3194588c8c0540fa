// set_rows.cu: y[m] = table[from[m]], x[m] + table[from[m]] or 0 where from[m] is not negative, and x[m] elsewhere.
// Layout: x, y [M,C] elem, y may be x; table [R,C] elem; from [M] int32. One block a row, 16 bytes a thread where C is a multiple of 8.
// A number beyond the table makes its row NaN, as embedding.cu does. Arithmetic fp32, rounded once.
// Bytes: 4 a value. Goal: 80 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

enum Mode { PUT, ADD, CLEAR };

template <int MODE>
__device__ void set_rows(elem *y, const elem *x, const elem *table, const int *from, int R, int C) {
    int r = from[blockIdx.x];
    bool stays = r < 0, there = r < R;
    y += (int64_t)blockIdx.x * C;
    x += (int64_t)blockIdx.x * C;
    if (MODE != CLEAR && !stays && there) table += (int64_t)r * C;
    if (C % 8 == 0) {
        for (int c = threadIdx.x * 8; c < C; c += blockDim.x * 8) {
            Eight<elem> v;
            if (stays)
                v = load8(x + c);
            else if (MODE == CLEAR)
                v = fill8(0);
            else if (!there)
                v = fill8(~0u);   // eight NaN
            else {
                v = load8(table + c);
                if (MODE == ADD) {
                    float a[8], b[8];
                    unpack(load8(x + c), a);
                    unpack(v, b);
#pragma unroll
                    for (int k = 0; k < 8; k++) a[k] += b[k];
                    v = pack(a);
                }
            }
            store8(y + c, v);
        }
    } else {
        for (int c = threadIdx.x; c < C; c += blockDim.x) {
            if (stays)
                y[c] = x[c];
            else if (MODE == CLEAR)
                y[c] = narrow(0.f);
            else if (!there)
                y[c] = narrow(NANF);
            else
                y[c] = MODE == ADD ? narrow(widen(x[c]) + widen(table[c])) : table[c];
        }
    }
}

// Grid M.
extern "C" __global__ void __launch_bounds__(256) set_rows_put(elem *y, const elem *x, const elem *table, const int *from, int R, int C) {
    set_rows<PUT>(y, x, table, from, R, C);
}

// Grid M.
extern "C" __global__ void __launch_bounds__(256) set_rows_add(elem *y, const elem *x, const elem *table, const int *from, int R, int C) {
    set_rows<ADD>(y, x, table, from, R, C);
}

// Grid M.
extern "C" __global__ void __launch_bounds__(256) set_rows_clear(elem *y, const elem *x, const elem *table, const int *from, int R, int C) {
    set_rows<CLEAR>(y, x, table, from, R, C);
}
