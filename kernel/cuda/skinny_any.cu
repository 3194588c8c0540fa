// skinny_any.cu: D = alpha X W^T + beta D for few rows X of any depth and type: what skinny.cu does not take.
// Layout: X [M,K] elem, W [N,K] elem, D [M,N] elem or fp32. One warp a column of D, eight rows of X at a time; a lane adds every 32nd
// product in ascending order, the lanes' sums are added in a tree. So a row of D has the same bits whatever the other rows are.
// Bytes: 2 N K (fp32 4 N K). Goal: none; small models and fp32.
// Elements: bf16, f16, f32.
#include "common.cuh"
#include "early.cuh"

// Grid N / 8 rounded up, block 256.
extern "C" __global__ void __launch_bounds__(256) skinny_any(void *d, const elem *x, const elem *w, int M, int N, int K, float alpha, float beta, int f32) {
    let_next_begin();
    wait_for_earlier();
    int lane = threadIdx.x & 31, n = blockIdx.x * 8 + (threadIdx.x >> 5);
    if (n >= N) return;
    w += (int64_t)n * K;
    for (int m0 = 0; m0 < M; m0 += 8) {
        float acc[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        for (int k = lane; k < K; k += 32) {
            float b = widen(w[k]);
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (m0 + i < M) acc[i] = fmaf(widen(x[(int64_t)(m0 + i) * K + k]), b, acc[i]);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float v = warp_sum(acc[i]) * alpha;
            if (lane != 0 || m0 + i >= M) continue;
            int64_t at = (int64_t)(m0 + i) * N + n;
            if (f32) ((float *)d)[at] = beta == 0.f ? v : fmaf(beta, ((float *)d)[at], v);
            else ((elem *)d)[at] = narrow(beta == 0.f ? v : fmaf(beta, widen(((elem *)d)[at]), v));
        }
    }
}
