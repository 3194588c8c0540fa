// stochastic.cu: fp32 numbers rounded to bf16 at random: element e adds 16 random bits to the bits of x and drops the lower 16. The bits
// are the half e%2, the lower first, of word e/2%4 of Philox4x32-10(counter = (e/8 low, e/8 high, step, 1), key = seed + stream). The
// result is that of the CPU, bit for bit. A bf16 and an infinity stay; a NaN stays one.
// Layout: y flat bf16, x flat fp32, addresses multiples of 16 bytes; counter int32 [2] = (seed, step).
// Eight values, one draw of the generator, a thread and round. Grid-stride.
// Bytes: 6 a value. Goal: 60 % of copy; the generator takes 20 wide multiplications for 8 values.
#include "common.cuh"

__device__ __forceinline__ uint4 philox(uint64_t group, uint32_t step, uint64_t key) {
    uint32_t a = (uint32_t)group, b = (uint32_t)(group >> 32), c = step, d = 1, k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
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

__device__ __forceinline__ uint32_t rounded(float x, uint32_t random) {
    uint32_t b = __float_as_uint(x);
    if (x != x) b |= 1u << 22;
    else if ((b & 0x7f800000u) != 0x7f800000u) b += random;
    return b >> 16;
}

// Grid: any.
extern "C" __global__ void __launch_bounds__(256) stochastic_round(bf16 *y, const float *x, const int *counter, uint64_t stream, int64_t n) {
    const uint64_t key = (uint64_t)(uint32_t)counter[0] + stream;
    const uint32_t step = (uint32_t)counter[1];
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 8; i < n; i += (int64_t)gridDim.x * blockDim.x * 8) {
        const uint4 r = philox((uint64_t)i / 8, step, key);
        const uint32_t words[4] = {r.x, r.y, r.z, r.w};
        if (i + 8 <= n) {
            const float4 lo = *(const float4 *)(x + i), hi = *(const float4 *)(x + i + 4);
            const float v[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
            uint32_t out[4];
#pragma unroll
            for (int k = 0; k < 4; k++) out[k] = rounded(v[2 * k], words[k] & 0xffff) | rounded(v[2 * k + 1], words[k] >> 16) << 16;
            *(uint4 *)(y + i) = make_uint4(out[0], out[1], out[2], out[3]);
        } else {
#pragma unroll
            for (int k = 0; k < 8; k++)
                if (i + k < n) ((unsigned short *)y)[i + k] = (unsigned short)rounded(x[i + k], words[k / 2] >> (k % 2 * 16) & 0xffff);
        }
    }
}
