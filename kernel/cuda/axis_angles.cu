// axis_angles.cu: rotary angles of tokens whose position has three coordinates: frequency i of token m is that of row positions[3 m + a]
// of a table, a = 1 if i%3 is 1 and i < 3 rows, 2 if i%3 is 2 and i < 3 columns, else 0.
// Layout: table [P,R] fp32, R/2 cosines, then R/2 sines; positions [M,3] int32; y [M,R] fp32. A frequency a thread and round. Grid-stride.
// A coordinate outside the table makes its angles NaN.
// Bytes: 8 a value. Goal: latency; a call a step.
#include "common.cuh"

// Grid: any.
extern "C" __global__ void __launch_bounds__(256) axis_angles_take(float *y, const float *table, const int *positions, int P, int M, int R, int rows,
                                                                   int columns) {
    int half = R / 2;
    int64_t total = (int64_t)M * half;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        int m = (int)(i / half), f = (int)(i % half);
        int axis = f % 3 == 1 && f < 3 * rows ? 1 : f % 3 == 2 && f < 3 * columns ? 2 : 0;
        int p = positions[3 * (int64_t)m + axis];
        bool there = p >= 0 && p < P;
        const float *from = table + (int64_t)(there ? p : 0) * R + f;
        float *to = y + (int64_t)m * R + f;
        to[0] = there ? from[0] : NANF;
        to[half] = there ? from[half] : NANF;
    }
}
