// attention_sinks.cu: gives a finished attention its sinks: scores of their own for each head, without a value.
// Layout: o [M,H D] elem packed rows; lse [H,M] fp32; sinks [H] elem. Both are changed in place.
// lse <- log(exp(lse) + exp(sink)), o <- o exp(lse before - lse). A warp takes a head of a row, 8 a block.
// Accumulation fp32. Bytes: 4 a value. Goal: 80 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

// Grid: M H / 8 rounded up, block 256.
extern "C" __global__ void __launch_bounds__(256) attention_sinks_apply(elem *o, float *lse, const elem *sinks, int M, int H, int D) {
    int64_t row = (int64_t)blockIdx.x * 8 + (threadIdx.x >> 5);
    int lane = threadIdx.x & 31;
    if (row >= (int64_t)M * H) return;
    int h = (int)(row % H);
    float *at = lse + (int64_t)h * M + row / H;
    float before = *at, sink = widen(sinks[h]), top = fmaxf(before, sink);
    float after = top + logf(expf(before - top) + expf(sink - top)), by = expf(before - after);
    __syncwarp();
    if (lane == 0) *at = after;
    o += row * D;
    if (D % 8 == 0) {
        for (int i = lane * 8; i < D; i += 256) {
            float f[8];
            unpack(load8(o + i), f);
#pragma unroll
            for (int k = 0; k < 8; k++) f[k] *= by;
            store8(o + i, pack(f));
        }
    } else {
        for (int i = lane; i < D; i += 32) o[i] = narrow(widen(o[i]) * by);
    }
}
