// lion_8bit.cu: one step of Lion over one flat buffer of every trained tensor, the moment in 8 bits (kernel/lion_8bit.go has the
// formula): for each block of up to 256 numbers of a tensor, codes of the signed dynamic map and the block's largest magnitude.
// Layout: p, g fp32, copy elem (the operand of the next step's GEMMs) or 0; blocks [n] of (first number, as uint32, and how many of them);
// codes [256 q], absmax fp32 [q] of the first q blocks; m fp32 [256 (n - q)] of the others, which are of small tensors. lr, clip: one
// fp32 on the device each, so a captured graph replays with new values.
// A clip factor that is not a number changes nothing: the host may learn of a loss gone bad after the step was queued.
// A warp takes a block, eight numbers a thread: number lane + 32 j is a thread's j-th. No block waits for another.
// Arithmetic fp32, each operation rounded by itself (no fused multiply-add), so that codes are the CPU's bit for bit; 1 - lr wd in fp64.
// Bytes: 16 a parameter (9 read, 7 written) and 16 a block. Goal: 60 % of copy.
// Elements: bf16, f16, f32.
#include "dynamic_map.cuh"

// Grid: any; block: 256.
extern "C" __global__ void __launch_bounds__(256) lion_8bit_step(float *p, elem *copy, const float *g, uint8_t *codes, float *absmax,
        float *moments, const uint2 *blocks, const float *lr, const float *clip, int q, int n, float b1, float b2, float decay) {
    __shared__ Maps maps;
    const float c = *clip, rate = *lr;
    if (c != c) return;
    load_maps(maps);
    __syncthreads();
    const float keep = (float)(1. - (double)rate * (double)decay), to1 = (float)(1. - (double)b1), to2 = (float)(1. - (double)b2);
    const int lane = threadIdx.x & 31;
    for (int64_t b = (int64_t)blockIdx.x * 8 + (threadIdx.x >> 5); b < n; b += (int64_t)gridDim.x * 8) {
        const uint2 where = blocks[b];
        const int64_t from = where.x, at = (b < q ? b : b - q) * 256;
        const int count = (int)where.y;
        const bool coded = b < q;
        const float scale = coded ? absmax[b] : 0.f;
        float M[8], top = 0.f;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const int i = lane + 32 * j;
            if (i >= count) continue;
            float m = coded ? __fmul_rn(maps.value[0][codes[at + i]], scale) : moments[at + i];
            const float d = __fmul_rn(g[from + i], c);
            const float s = __fadd_rn(__fmul_rn(b1, m), __fmul_rn(to1, d));
            const float sign = s > 0.f ? 1.f : s < 0.f ? -1.f : s;   // a NaN stays one
            const float P = __fsub_rn(__fmul_rn(p[from + i], keep), __fmul_rn(rate, sign));
            p[from + i] = P;
            if (copy) copy[from + i] = narrow(P);
            M[j] = m = __fadd_rn(__fmul_rn(b2, m), __fmul_rn(to2, d));
            if (!coded) moments[at + i] = m;
            top = fmaxf(top, fabsf(m));
        }
        if (!coded) continue;
        top = warp_max(top);
        float inverse = 0.f;
        if (top < 1.17549435e-38f) {
            top = 0.f;
        } else {
            top = fminf(top, 3.40282347e38f);
            inverse = __fdiv_rn(1.f, top);
        }
        __syncwarp();   // every thread has read the old one
        if (lane == 0) absmax[b] = top;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const int i = lane + 32 * j;
            if (i < count) codes[at + i] = (uint8_t)signed_code(maps, __fmul_rn(M[j], inverse), M[j]);
        }
    }
}
