// inorder.cu: a sum of several ranks' parts, the first part first, so that it does not depend on who computed them.
// sum[i] <- ((sum[i] + parts[0][i]) + parts[1][i]) + ...
// Layout: sum [n] fp32, parts [W, each] fp32 with n <= each; only the first n of a part are read.
// Blocks of 256 threads stride over the sum, four neighbours a thread where parts lie at multiples of 16 bytes, else one by one.
// Arithmetic fp32, each addition rounded by itself.
// Bytes: 4 W + 8 a number. Goal: 80 % of copy.
#include "common.cuh"

// Grid and block: any.
extern "C" __global__ void __launch_bounds__(256) inorder_add(float *sum, const float *parts, int64_t n, int64_t each, int W) {
    const bool wide = each % 4 == 0 && ((uint64_t)sum | (uint64_t)parts) % 16 == 0;
    int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 4, stride = (int64_t)gridDim.x * blockDim.x * 4;
    for (; at < n; at += stride) {
        if (wide && at + 4 <= n) {
            float4 s = *(float4 *)(sum + at);
            for (int r = 0; r < W; r++) {
                float4 p = *(const float4 *)(parts + r * each + at);
                s.x = __fadd_rn(s.x, p.x), s.y = __fadd_rn(s.y, p.y), s.z = __fadd_rn(s.z, p.z), s.w = __fadd_rn(s.w, p.w);
            }
            *(float4 *)(sum + at) = s;
        } else {
            for (int64_t i = at; i < n && i < at + 4; i++) {
                float s = sum[i];
                for (int r = 0; r < W; r++) s = __fadd_rn(s, parts[r * each + i]);
                sum[i] = s;
            }
        }
    }
}
