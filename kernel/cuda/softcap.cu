// softcap.cu: y = cap tanh(x / cap).
// Layout: x, y [n] fp32, flat; y may be x. One value a thread and round. Grid-stride.
// Bytes: 8 a value. Goal: none of speed: the logits of a few tokens.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256) softcap_apply(float *y, const float *x, float cap, int64_t n) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) y[i] = cap * tanhf(x[i] / cap);
}
