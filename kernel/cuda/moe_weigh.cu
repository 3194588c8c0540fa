// moe_weigh.cu: y = w scale[experts], 0 where that is no expert: what a token's experts count, times a number of each expert.
// Layout: y, w [n] fp32 and experts [n] int32, flat; scale [E] fp32; y may be w. One value a thread and round. Grid-stride.
// Bytes: 12 a value. Goal: latency; a call moves a few values a token.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256) moe_weigh(float *y, const float *w, const int *experts, const float *scale, int E, int64_t n) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        int e = experts[i];
        y[i] = e >= 0 && e < E ? w[i] * scale[e] : 0.f;
    }
}
