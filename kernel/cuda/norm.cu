// norm.cu: the gradient's norm over one flat buffer in a fixed order, and the clip factor, both left on the device.
// Two launches: norm_partial with any fixed grid writes one sum of squares a block, norm_finish (one block) adds them.
// Layout: x [n] fp32, partial [blocks] fp32, loss [1] fp32, out [2] fp32 = norm, factor. Accumulation fp32 in a thread, fp64 across blocks.
// Bytes: 4 a value. Goal: 85 % of copy.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(512) norm_partial(float *partial, const float *x, int64_t n) {
    float s[4] = {0, 0, 0, 0};
    int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 4, stride = (int64_t)gridDim.x * blockDim.x * 4;
    for (; at + 4 <= n; at += stride) {
        float4 v = *(const float4 *)(x + at);
        s[0] = fmaf(v.x, v.x, s[0]), s[1] = fmaf(v.y, v.y, s[1]), s[2] = fmaf(v.z, v.z, s[2]), s[3] = fmaf(v.w, v.w, s[3]);
    }
    for (; at < n; at++) s[0] = fmaf(x[at], x[at], s[0]);   // at most one thread has a rest, of at most 3
    float t = block_sum((s[0] + s[1]) + (s[2] + s[3]));
    if (threadIdx.x == 0) partial[blockIdx.x] = t;
}

// factor = limit / (norm + 1e-6), at most 1 (torch's clip_grad_norm_); limit <= 0 = no clipping; NaN where norm or loss is not finite.
// scaling: the loss scale by which x is too large, or 0 (none); the factor takes it out.
// Grid 1, block 32.
extern "C" __global__ void norm_finish(float *out, const float *partial, int blocks, float limit, const float *loss, const float *scaling) {
    double s = 0;
    for (int i = threadIdx.x; i < blocks; i += 32) s += partial[i];
#pragma unroll
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if (threadIdx.x == 0) {
        float scale = scaling ? *scaling : 1.f, norm = (float)(sqrt(s) / scale), f = limit / (norm + 1e-6f);
        out[0] = norm;
        out[1] = !isfinite(norm) || !isfinite(*loss) ? __int_as_float(0x7fffffff) : (limit > 0 && f < 1.f ? f : 1.f) / scale;
    }
}
