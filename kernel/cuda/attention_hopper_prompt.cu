// attention_hopper_prompt.cu: attention_prompt.cu for compute capability 9.0 and heads of up to 128: the pass of
// attention_hopper_forward.cu over the keys and values of a cache.
// Layout: as there and there; q, k, v as tensor maps {D, heads, M} and {D, heads, N} of elem with boxes {64, 1, rows}.
// FLOPs: 4 D for every visible pair. Goal: that of attention_hopper_forward.cu.
// Elements: bf16, f16.
#include "attention_hopper_forward.cuh"

// Grid (H, M / (64 WGS) rounded up, 1), block 128 (WGS + 1), dynamic shared memory (64 WGS + 512) DP 2 + 1024 bytes.
#define PROMPT(DP, WGS) \
    extern "C" __global__ void __launch_bounds__(128 * (WGS + 1), 1) attention_hopper_prompt_##DP(elem *o, float *lse, const __grid_constant__ TensorMap q, \
        const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, const int *cuq, const int *cuk, int M, int N, int H, int K, int D, float scale, \
        int window) { \
        forward<DP, WGS, false>(o, lse, &q, &k, &v, CacheKeys(cuq, cuk, M, N, window), 0, M, H, K, D, H * D, scale, 0.f); \
    } \
    extern "C" __global__ void __launch_bounds__(128 * (WGS + 1), 1) attention_hopper_prompt_capped_##DP(elem *o, float *lse, const __grid_constant__ TensorMap q, \
        const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, const int *cuq, const int *cuk, int M, int N, int H, int K, int D, float scale, \
        int window, float cap) { \
        forward<DP, WGS, true>(o, lse, &q, &k, &v, CacheKeys(cuq, cuk, M, N, window), 0, M, H, K, D, H * D, scale, cap); \
    }
PROMPT(64, 3)
PROMPT(128, 2)
