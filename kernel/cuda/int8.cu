// int8.cu: weights in 8 bits with a scale for each row (LLM.int8()), to elem.
// Layout: code [rows,cols] signed bytes, scale [rows] fp32, the largest magnitude of the row; w [rows,cols] elem, row-major.
// value = code * scale (rounded) * (1/127) (rounded), in fp32, then rounded to elem.
// A block makes 2048 values of one row, a thread 8: 8 bytes in, one 16-byte store (two of fp32); a row whose length is no
// multiple of 8 goes value by value.
// Bytes: 3 a value in 16 bits (1 read, 2 written). Goal: 85 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

__device__ __forceinline__ float value(int code, float scale) {
    return __fmul_rn(__fmul_rn((float)code, scale), 7.874015718698502e-3f);
}

// Grid: x rows, y cols / 2048 rounded up.
extern "C" __global__ void __launch_bounds__(256) int8_dequantise(elem *w, const int8_t *code, const float *scale, int cols) {
    int c = (blockIdx.y * 256 + threadIdx.x) * 8;
    if (c >= cols) return;
    int64_t at = (int64_t)blockIdx.x * cols + c;
    float s = scale[blockIdx.x];
    if (cols & 7) {
        for (int k = 0; k < 8 && c + k < cols; k++) w[at + k] = narrow<elem>(value(code[at + k], s));
        return;
    }
    uint2 q = __ldcs((const uint2 *)(code + at));
    float f[8];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        f[k] = value((int8_t)(q.x >> (8 * k)), s);
        f[4 + k] = value((int8_t)(q.y >> (8 * k)), s);
    }
    store8(w + at, pack(f));
}
