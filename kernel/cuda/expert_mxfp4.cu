// expert_mxfp4.cu: the weights of E experts in MXFP4 to elem: w = E2M1(code) 2^(scale-127), exact in fp32, so rounded once.
// Layout: n values of all experts one after the other, blocks of 32: codes [n/2] u8, the first of two in the low nibble, scales [n/32] u8
// in E8M0, none above 252; w [n]. n is a multiple of 32.
// A thread makes 8 values (4 bytes in, one 16-byte store). Bytes: 2.53 a value (0.53 read, 2 written). Goal: 85 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

// Grid n / (8 blockDim.x) rounded up or less.
extern "C" __global__ void __launch_bounds__(256) expert_mxfp4_dequantise(elem *w, const uint8_t *codes, const uint8_t *scales, int64_t n) {
    __shared__ float table[16];
    if (threadIdx.x < 16) {
        int m = threadIdx.x & 7;
        float v = m < 2 ? 0.5f * m : (1.f + 0.5f * (m & 1)) * (float)(1 << (m >> 1)) * 0.5f;
        table[threadIdx.x] = threadIdx.x < 8 ? v : -v;
    }
    __syncthreads();
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 8; i < n; i += (int64_t)gridDim.x * blockDim.x * 8) {
        uint32_t q = __ldcs((const uint32_t *)(codes + (i >> 1)));
        uint32_t s = scales[i >> 5];
        float a = s ? __uint_as_float(s << 23) : __uint_as_float(0x400000), f[8]; // 2^-127 is no normal number
#pragma unroll
        for (int k = 0; k < 8; k++) f[k] = __fmul_rn(table[q >> (4 * k) & 15], a);
        store8(w + i, pack<elem>(f));
    }
}
