// likeliest.cu: the place of the largest number of each row, of equals the first; -1 - i where number i is the first that is not finite.
// Layout: x [M,N] fp32, place [M] int32. One block of 1024 a row; the result does not depend on the order.
// Bytes: 4 a number. Goal: 10 us a row of 128,000.
#include "common.cuh"
#include "early.cuh"

struct Best {
    float value;
    int at, broken;   // broken: the first number that is not finite, INT_MAX = none
    __device__ __forceinline__ void take(float v, int i) {
        if (!(fabsf(v) < INF)) broken = min(broken, i);
        if (v > value || (v == value && i < at)) value = v, at = i;
    }
    __device__ __forceinline__ void join(const Best &o) {
        if (o.value > value || (o.value == value && o.at < at)) value = o.value, at = o.at;
        broken = min(broken, o.broken);
    }
};

// Grid M, block 1024.
extern "C" __global__ void __launch_bounds__(1024) likeliest_rows(int *place, const float *x, int N) {
    constexpr int NONE = 0x7fffffff;
    __shared__ Best part[32];
    let_next_begin();
    wait_for_earlier();
    x += (int64_t)blockIdx.x * N;
    Best b = {-INF, NONE, NONE};
    int wide = N % 4 == 0 ? N : 0;
#pragma unroll 4
    for (int i = threadIdx.x * 4; i < wide; i += blockDim.x * 4) {
        float4 v = *(const float4 *)(x + i);
        b.take(v.x, i), b.take(v.y, i + 1), b.take(v.z, i + 2), b.take(v.w, i + 3);
    }
    for (int i = wide + threadIdx.x; i < N; i += blockDim.x) b.take(x[i], i);
    auto over_warp = [&]() {
#pragma unroll
        for (int d = 16; d; d >>= 1) b.join({__shfl_xor_sync(~0u, b.value, d), __shfl_xor_sync(~0u, b.at, d), __shfl_xor_sync(~0u, b.broken, d)});
    };
    over_warp();
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = b;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    b = part[threadIdx.x];
    over_warp();
    if (threadIdx.x == 0) place[blockIdx.x] = b.broken == NONE ? b.at : -1 - b.broken;
}
