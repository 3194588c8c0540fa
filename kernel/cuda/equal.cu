// equal.cu: whether two buffers hold the same bits.
// Layout: a, b [n] of 16 bytes; differ [1] int32, 1 where a bit differs and else as it was. Bytes: 32 a pair. Goal: 80 % of copy.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256) equal_bits(int *differ, const uint4 *a, const uint4 *b, int64_t n) {
    unsigned other = 0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        uint4 x = a[i], y = b[i];
        other |= (x.x ^ y.x) | (x.y ^ y.y) | (x.z ^ y.z) | (x.w ^ y.w);
    }
    if (other) *differ = 1;
}
