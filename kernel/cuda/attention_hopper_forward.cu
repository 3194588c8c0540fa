// attention_hopper_forward.cu: the operation of attention_forward.cu for compute capability 9.0 and heads of up to 128.
// Layout: as there; q, k, v as tensor maps {D, heads, M} of elem with boxes {64, 1, rows}, q 64 WGS rows, k and v 128, 128-byte
// swizzle (o, lse by address).
// One block of WGS + 1 warpgroups: one thread of the first brings K and V in tiles of 128 keys, two stages each, through the copy
// engine; the other WGS (2 or 3) hold 64 query rows each and multiply with wgmma, the scores of the next tile in flight beside the
// weighted sum of this one. Accumulation and statistics fp32.
//   warpgroup 0   thread 0: Q once, then K, V, K, V ... -> [stage 0 | stage 1]   (full and empty barriers)
//   warpgroup w   query rows 64 (w-1) ... + 63: S = Q K^T [64,128], softmax, O += P V, all in registers; a warp 16 rows, lane l
//                 rows l/4 and l/4 + 8 of them, and of each 8 columns 2 (l%4) and the next
// The capped forms are those of attention_forward.cu.
// FLOPs: 4 D for every visible pair. Goal: 80 % of cuDNN's rate.
// Elements: bf16, f16.
#include "attention_hopper_forward.cuh"

// Grid (C, M / (64 WGS) rounded up, H / C): C heads at a time, so that their keys and values stay in the second-level cache; block 128 (WGS + 1), dynamic shared memory (64 WGS + 512) DP 2 + 1024 bytes. order, from
// attention_order with tiles of 64 WGS rows, puts long tiles first; it may be 0.
#define FORWARD(DP, WGS) \
    extern "C" __global__ void __launch_bounds__(128 * (WGS + 1), 1) attention_hopper_forward_##DP(elem *o, float *lse, const __grid_constant__ TensorMap q, \
        const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, const int *cu, const int *order, int M, int B, int H, int K, int D, int ldo, float scale, \
        int window) { \
        forward<DP, WGS, false>(o, lse, &q, &k, &v, OwnKeys{cu, B, M, window}, order, M, H, K, D, ldo, scale, 0.f); \
    } \
    extern "C" __global__ void __launch_bounds__(128 * (WGS + 1), 1) attention_hopper_forward_capped_##DP(elem *o, float *lse, const __grid_constant__ TensorMap q, \
        const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, const int *cu, const int *order, int M, int B, int H, int K, int D, int ldo, float scale, \
        int window, float cap) { \
        forward<DP, WGS, true>(o, lse, &q, &k, &v, OwnKeys{cu, B, M, window}, order, M, H, K, D, ldo, scale, cap); \
    }
// The prefixed forms are those of attention_forward.cu.
#define PREFIXED(DP, WGS) \
    extern "C" __global__ void __launch_bounds__(128 * (WGS + 1), 1) attention_hopper_forward_prefixed_##DP(elem *o, float *lse, const __grid_constant__ TensorMap q, \
        const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, const int *cu, const int *order, int M, int B, int H, int K, int D, int ldo, float scale, \
        const int *prefix) { \
        forward<DP, WGS, false>(o, lse, &q, &k, &v, PrefixKeys{cu, prefix, B, M}, order, M, H, K, D, ldo, scale, 0.f); \
    }
FORWARD(64, 3)
FORWARD(128, 2)
PREFIXED(64, 2)
PREFIXED(128, 2)
