// neftune.cu: y = x + scale u, u uniform in [-1,1): column c of a token has (w >> 8) 2^-23 - 1, w = word c%4 of Philox4x32-10(counter =
// (c/4, position, row, step), key = seed + stream). The noise is that of the CPU, bit for bit; the sum is rounded once.
// Layout: x, y [M,C] elem, y may be x; rows, positions [M] int32; scale [M] fp32; counter int32 [2] = (seed, step).
// Four columns, one draw of the generator, a thread and round. Grid-stride. Arithmetic fp32.
// Bytes: 4 a value. Goal: latency; a step adds noise once.
// Elements: bf16, f16, f32.
#include "common.cuh"

__device__ __forceinline__ uint4 philox(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint64_t key) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#pragma unroll
    for (int i = 0; i < 10; i++) {
        uint64_t p = (uint64_t)0xd2511f53u * a, q = (uint64_t)0xcd9e8d57u * c;
        a = (uint32_t)(q >> 32) ^ b ^ k0;
        b = (uint32_t)q;
        c = (uint32_t)(p >> 32) ^ d ^ k1;
        d = (uint32_t)p;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return make_uint4(a, b, c, d);
}

__device__ __forceinline__ float noise(uint32_t w) { return (float)(w >> 8) * 0x1p-23f - 1.f; }

// Grid: any.
extern "C" __global__ void __launch_bounds__(256) neftune_add(elem *y, const elem *x, const int *rows, const int *positions,
                                                              const float *scale, const int *counter, uint64_t stream, int M, int C) {
    uint64_t key = (uint64_t)(uint32_t)counter[0] + stream;
    uint32_t step = (uint32_t)counter[1];
    int groups = (C + 3) / 4;
    int64_t total = (int64_t)M * groups;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        int m = (int)(i / groups), g = (int)(i % groups);
        uint4 w = philox(g, positions[m], rows[m], step, key);
        float u[4] = {noise(w.x), noise(w.y), noise(w.z), noise(w.w)}, s = scale[m];
        int64_t first = (int64_t)m * C + g * 4;
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (g * 4 + k < C) y[first + k] = narrow(fmaf(s, u[k], widen(x[first + k])));
    }
}
