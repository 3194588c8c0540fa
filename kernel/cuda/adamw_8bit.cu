// adamw_8bit.cu: one AdamW step over one flat buffer of every trained tensor, the moments in 8 bits (kernel/adamw_8bit.go has the
// formula): of each block of up to 256 numbers of a tensor codes of two dynamic maps, and the block's largest magnitudes.
// Layout: p, g fp32, copy elem (the operand of the next step's GEMMs) or 0; blocks [n] of (first number, as uint32, and how many of them);
// codes1, codes2 [256 q], absmax1, absmax2 fp32 [q] of the first q blocks; m, v fp32 [256 (n - q)] of the others, which are of small
// tensors. lr, clip: one fp32 on the device each; step: one int32 on the device, t of the first step is 1. So a captured graph replays with
// new values. scaling: 0, or [3] fp32 whose last is the number of steps skipped, which t does not count.
// A clip factor that is not a number changes nothing: the host may learn of a loss gone bad after the step was queued.
// A warp takes a block, eight numbers a thread: read once, the new magnitudes found by shuffles, written once. No block waits for another.
// Arithmetic fp32, each operation rounded by itself (no fused multiply-add), so that codes are the CPU's bit for bit; bias corrections fp64
// once a block of threads, rounded to fp32 as the host does.
// Bytes: 18 a parameter (10 read, 8 written) and 24 a block. Goal: 80 % of copy.
// Elements: bf16, f16, f32.
#include "dynamic_map.cuh"

__device__ double power(double b, int t) {   // b^t by squaring: the same on every chip
    double r = 1;
    for (; t; t >>= 1, b = __dmul_rn(b, b))
        if (t & 1) r = __dmul_rn(r, b);
    return r;
}

struct Step {
    float b1, to1, b2, to2, size, eps, keep;   // weights of moments and gradient; -lr sqrt(c2) / c1, eps sqrt(c2), 1 - lr wd, c = 1 - b^t
};

__device__ __forceinline__ void update(float &p, float &m, float &v, float d, const Step &s) {
    m = __fadd_rn(__fmul_rn(s.b1, m), __fmul_rn(s.to1, d));
    v = __fadd_rn(__fmul_rn(s.b2, v), __fmul_rn(__fmul_rn(s.to2, d), d));
    p = __fmul_rn(__fadd_rn(p, __fmul_rn(s.size, __fdiv_rn(m, __fadd_rn(__fsqrt_rn(v), s.eps)))), s.keep);
}

// scale_of makes a block's largest magnitude finite, 0 where it has no normal inverse, and returns the inverse.
__device__ __forceinline__ float scale_of(float &absmax) {
    if (absmax < 1.17549435e-38f) return absmax = 0.f;
    absmax = fminf(absmax, 3.40282347e38f);
    return __fdiv_rn(1.f, absmax);
}

// Grid: any; block: 256.
extern "C" __global__ void __launch_bounds__(256) adamw_8bit_step(float *p, elem *copy, const float *g, uint8_t *codes1, uint8_t *codes2,
        float *absmax1, float *absmax2, float *moments1, float *moments2, const uint2 *blocks, const float *lr, const int *step, const float *clip,
        const float *scaling, int q, int n, float b1, float b2, float eps, float decay) {
    __shared__ Maps maps;
    __shared__ Step shared;
    const float c = *clip;
    if (c != c) return;
    load_maps(maps);
    if (threadIdx.x == 0) {
        const int t = *step - (scaling ? (int)scaling[2] : 0);
        const double c1 = (double)(float)__dadd_rn(1., -power(b1, t)), c2 = (double)(float)__dadd_rn(1., -power(b2, t)), root = sqrt(c2), rate = *lr;
        shared = {b1, __fsub_rn(1.f, b1), b2, __fsub_rn(1.f, b2), (float)(-rate * root / c1), (float)((double)eps * root), (float)(1. - rate * (double)decay)};
    }
    __syncthreads();
    const Step s = shared;
    const int lane = threadIdx.x & 31;
    for (int64_t b = (int64_t)blockIdx.x * 8 + (threadIdx.x >> 5); b < n; b += (int64_t)gridDim.x * 8) {
        const uint2 where = blocks[b];
        const int64_t from = where.x;
        const int count = (int)where.y;
        const bool whole = count == 256 && (where.x & 3) == 0, coded = b < q;
        const int64_t at = (coded ? b : b - q) * 256 + lane * 4;   // and 128 further
        __align__(16) float P[8], D[8], M[8], V[8];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int first = h * 128 + lane * 4;
            if (whole) {
                *(float4 *)(P + 4 * h) = *(const float4 *)(p + from + first), *(float4 *)(D + 4 * h) = *(const float4 *)(g + from + first);
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const bool in = first + j < count;
                    P[4 * h + j] = in ? p[from + first + j] : 0.f, D[4 * h + j] = in ? g[from + first + j] : 0.f;
                }
            }
            if (!coded) *(float4 *)(M + 4 * h) = *(const float4 *)(moments1 + at + 128 * h), *(float4 *)(V + 4 * h) = *(const float4 *)(moments2 + at + 128 * h);
        }
        if (coded) {
            const float scale1 = absmax1[b], scale2 = absmax2[b];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const uint32_t c1 = *(const uint32_t *)(codes1 + at + 128 * h), c2 = *(const uint32_t *)(codes2 + at + 128 * h);
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    M[4 * h + j] = __fmul_rn(maps.value[0][(c1 >> (8 * j)) & 255], scale1);
                    V[4 * h + j] = __fmul_rn(maps.value[1][(c2 >> (8 * j)) & 255], scale2);
                }
            }
        }
        float top1 = 0.f, top2 = 0.f;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const bool in = (j >> 2) * 128 + lane * 4 + (j & 3) < count;
            update(P[j], M[j], V[j], __fmul_rn(D[j], c), s);
            if (in) top1 = fmaxf(top1, fabsf(M[j])), top2 = fmaxf(top2, V[j]);
        }
        float inverse1 = 0.f, inverse2 = 0.f;
        if (coded) {
            top1 = warp_max(top1), top2 = warp_max(top2);
            inverse1 = scale_of(top1), inverse2 = scale_of(top2);
            __syncwarp();   // every thread has read the old ones
            if (lane == 0) absmax1[b] = top1, absmax2[b] = top2;
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int first = h * 128 + lane * 4;
            if (whole) {
                *(float4 *)(p + from + first) = *(float4 *)(P + 4 * h);
                if (copy) store4(copy + from + first, P[4 * h], P[4 * h + 1], P[4 * h + 2], P[4 * h + 3]);
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (first + j < count) {
                        p[from + first + j] = P[4 * h + j];
                        if (copy) copy[from + first + j] = narrow(P[4 * h + j]);
                    }
            }
            if (coded) {
                uint32_t c1 = 0, c2 = 0;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int i = 4 * h + j;
                    const bool in = first + j < count;
                    c1 |= (in ? (uint32_t)signed_code(maps, __fmul_rn(M[i], inverse1), M[i]) : 0u) << (8 * j);
                    c2 |= (in ? (uint32_t)unsigned_code(maps, __fmul_rn(V[i], inverse2)) : 0u) << (8 * j);
                }
                *(uint32_t *)(codes1 + at + 128 * h) = c1, *(uint32_t *)(codes2 + at + 128 * h) = c2;
            } else {
                *(float4 *)(moments1 + at + 128 * h) = *(float4 *)(M + 4 * h), *(float4 *)(moments2 + at + 128 * h) = *(float4 *)(V + 4 * h);
            }
        }
    }
}
