// lion.cu: one step of Lion over one flat buffer that holds every trained tensor.
// p <- p (1 - lr wd) - lr sign(b1 m + (1-b1) g); m <- b2 m + (1-b2) g, g first multiplied by the clip factor; sign(0) = 0.
// Layout: p, m, g [n] fp32, copy [n] elem (the operand of the next step's GEMMs) or 0. lr, clip: one fp32 on the device each.
// A clip factor that is not a number changes nothing: the host may learn of a loss gone bad after the step was queued.
// Blocks of 256 threads stride over the buffer, four neighbours a thread (16-byte accesses), the rest one by one.
// Arithmetic fp32, each operation rounded by itself (no fused multiply-add): the sign of a sum near zero is then the CPU's.
// 1 - lr wd in fp64, rounded once.
// Bytes: 22 a parameter (12 read, 10 written). Goal: 80 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

struct Lion {
    float keep, rate, b1, to1, b2, to2;   // 1 - lr wd, lr, and the weights of m and g in both sums
};

__device__ __forceinline__ void update(float &p, float &m, float g, const Lion &s) {
    float c = __fadd_rn(__fmul_rn(s.b1, m), __fmul_rn(s.to1, g));
    float sign = c > 0.f ? 1.f : c < 0.f ? -1.f : c;   // a NaN stays one
    p = __fsub_rn(__fmul_rn(p, s.keep), s.rate * sign);
    m = __fadd_rn(__fmul_rn(s.b2, m), __fmul_rn(s.to2, g));
}

// Grid and block: any.
extern "C" __global__ void __launch_bounds__(256) lion_step(float *p, float *m, elem *copy, const float *g, const float *lr, const float *clip,
                                                           int64_t n, float b1, float to1, float b2, float to2, float decay) {
    float c = *clip;
    if (c != c) return;
    const Lion s = {(float)(1. - (double)*lr * (double)decay), *lr, b1, to1, b2, to2};
    int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 4, stride = (int64_t)gridDim.x * blockDim.x * 4;
    for (; at < n; at += stride) {
        if (at + 4 <= n) {
            float4 P = *(float4 *)(p + at), M = *(float4 *)(m + at), G = *(const float4 *)(g + at);
            update(P.x, M.x, __fmul_rn(G.x, c), s);
            update(P.y, M.y, __fmul_rn(G.y, c), s);
            update(P.z, M.z, __fmul_rn(G.z, c), s);
            update(P.w, M.w, __fmul_rn(G.w, c), s);
            *(float4 *)(p + at) = P, *(float4 *)(m + at) = M;
            if (copy) store4(copy + at, P.x, P.y, P.z, P.w);
        } else {
            for (int64_t i = at; i < n; i++) {
                float P = p[i], M = m[i];
                update(P, M, __fmul_rn(g[i], c), s);
                p[i] = P, m[i] = M;
                if (copy) copy[i] = narrow(P);
            }
        }
    }
}
