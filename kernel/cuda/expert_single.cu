// expert_single.cu: expert_gemm.cu in fp32 without tensor cores, for plans in fp32 and TF32.
// Layout and grids as expert_gemm.cu; all matrices fp32, addresses and rows of any alignment. One block of 256 threads makes a tile of
// 64x64 (gemm_single.cuh). Accumulation fp32 by fused multiply-adds. FLOPs 2 S N K. Goal: none of speed.
#include "experts.cuh"
#include "gemm_single.cuh"

template <bool TB>
__device__ void rows(float *y, const float *x, const float *w, const int *starts, int S, int E, int N, int K, float alpha, float beta) {
    int e, row0;
    if (!block_tile<64>(y, starts, S, E, N, beta, e, row0)) return;
    int64_t first = starts[e];
    gemm_tile<false, TB>(y + first * N, x + first * K, w + (int64_t)e * N * K, starts[e + 1] - (int)first, N, row0, blockIdx.x * 64, 0, K, K, TB ? K : N, N, alpha, beta);
}

// Grid (tiles of N, tiles of rows, 1), block 256.
extern "C" __global__ void __launch_bounds__(256) expert_single_nn(float *y, const float *x, const float *w, const int *starts, int S, int E, int N, int K, float alpha, float beta) {
    rows<false>(y, x, w, starts, S, E, N, K, alpha, beta);
}
extern "C" __global__ void __launch_bounds__(256) expert_single_nt(float *y, const float *x, const float *w, const int *starts, int S, int E, int N, int K, float alpha, float beta) {
    rows<true>(y, x, w, starts, S, E, N, K, alpha, beta);
}

// Grid (tiles of K, tiles of N, E), block 256.
extern "C" __global__ void __launch_bounds__(256) expert_single_weight(float *dw, const float *a, const float *b, const int *starts, int N, int K, float alpha, float beta) {
    int e = blockIdx.z;
    int64_t first = starts[e];
    gemm_tile<true, false>(dw + (int64_t)e * N * K, a + first * N, b + first * K, N, K, blockIdx.y * 64, blockIdx.x * 64, 0, starts[e + 1] - (int)first, N, K, K, alpha, beta);
}
extern "C" __global__ void __launch_bounds__(256) expert_single_weight_gathered(float *dw, const float *a, const float *x, const int *source, const int *starts, int N, int K, int per, int tokens, float alpha, float beta) {
    int e = blockIdx.z;
    int64_t first = starts[e];
    auto row = [=](int l) -> int64_t {
        int s = source[first + l];
        return s >= 0 && s / per < tokens ? s / per : -1;
    };
    gemm_tile_of<true, false>(row, dw + (int64_t)e * N * K, a + first * N, x, N, K, blockIdx.y * 64, blockIdx.x * 64, 0, starts[e + 1] - (int)first, N, K, K, alpha, beta);
}
