// sgd.cu: one step of SGD with momentum over one flat buffer that holds every trained tensor.
// d = g clip + wd p; m <- mu m + d; p <- p - lr m, or p - lr (d + mu m) with Nesterov.
// Layout: p, m, g [n] fp32, copy [n] elem (the operand of the next step's GEMMs) or 0. lr, clip: one fp32 on the device each.
// A clip factor that is not a number changes nothing: the host may learn of a loss gone bad after the step was queued.
// Blocks of 256 threads stride over the buffer, four neighbours a thread (16-byte accesses), the rest one by one.
// Arithmetic fp32, each operation rounded by itself (no fused multiply-add), so that the bits are the CPU's.
// Bytes: 22 a parameter (12 read, 10 written). Goal: 80 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

__device__ __forceinline__ void update(float &p, float &m, float g, float lr, float mu, float wd, int nesterov) {
    const float d = __fadd_rn(g, __fmul_rn(wd, p));
    m = __fadd_rn(__fmul_rn(mu, m), d);
    const float step = nesterov ? __fadd_rn(d, __fmul_rn(mu, m)) : m;
    p = __fsub_rn(p, __fmul_rn(lr, step));
}

// Grid and block: any.
extern "C" __global__ void __launch_bounds__(256) sgd_step(float *p, float *m, elem *copy, const float *g, const float *lr, const float *clip,
                                                          int64_t n, float mu, float wd, int nesterov) {
    const float c = *clip, rate = *lr;
    if (c != c) return;
    int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 4, stride = (int64_t)gridDim.x * blockDim.x * 4;
    for (; at < n; at += stride) {
        if (at + 4 <= n) {
            float4 P = *(float4 *)(p + at), M = *(float4 *)(m + at), G = *(const float4 *)(g + at);
            update(P.x, M.x, __fmul_rn(G.x, c), rate, mu, wd, nesterov);
            update(P.y, M.y, __fmul_rn(G.y, c), rate, mu, wd, nesterov);
            update(P.z, M.z, __fmul_rn(G.z, c), rate, mu, wd, nesterov);
            update(P.w, M.w, __fmul_rn(G.w, c), rate, mu, wd, nesterov);
            *(float4 *)(p + at) = P, *(float4 *)(m + at) = M;
            if (copy) store4(copy + at, P.x, P.y, P.z, P.w);
        } else {
            for (int64_t i = at; i < n; i++) {
                float P = p[i], M = m[i];
                update(P, M, __fmul_rn(g[i], c), rate, mu, wd, nesterov);
                p[i] = P, m[i] = M;
                if (copy) copy[i] = narrow(P);
            }
        }
    }
}
