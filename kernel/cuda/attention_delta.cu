// attention_delta.cu: delta = rowsum(dO o), which every family of attention's backward pass takes.
// Layout: o, d_o [M,H,D] elem, rows ldo values apart; delta [H,M] fp32. One warp a row and head, eight values a thread and round.
// Accumulation fp32. Bytes: 4 a value. Goal: 80 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

// delta[h,m] = sum_d o dO. One warp a row and head. Grid M H / 8 rounded up, block 256.
extern "C" __global__ void __launch_bounds__(256) attention_delta(float *delta, const elem *o, const elem *d_o, int M, int H, int D, int ldo) {
    int64_t i = (int64_t)blockIdx.x * 8 + (threadIdx.x >> 5);
    if (i >= (int64_t)M * H) return;
    int m = (int)(i / H), h = (int)(i - (int64_t)m * H), lane = threadIdx.x & 31;
    const elem *a = o + (int64_t)m * ldo + h * D, *b = d_o + (int64_t)m * ldo + h * D;
    float s = 0;
    for (int d = lane * 8; d < D; d += 256) {
        float f[8], g[8];
        unpack(load8(a + d), f);
        unpack(load8(b + d), g);
#pragma unroll
        for (int k = 0; k < 8; k++) s = fmaf(f[k], g[k], s);
    }
    s = warp_sum(s);
    if (lane == 0) delta[(int64_t)h * M + m] = s;
}
