// attention_prompt.cu: attention_forward.cu where a piece of a prompt reads the keys and values of a cache: the same pass over other keys.
// Layout: q, o [M,H,D], k, v [N,K,D] elem; lse [H,M] fp32; cuq, cuk [2] int32: the one sequence has the queries cuq[0] .. cuq[1]-1 and the
// keys cuk[0] .. cuk[1]-1, of which the queries are the last. Bounds beyond M and N are cut. A row that sees no key, or is not of the
// sequence, gives 0, in lse too. The capped forms are those of attention_forward.cu. Heads up to 64, 128, 256 and 512.
// FLOPs: 4 D for every visible pair; bytes: q, o once, k and v once for each query tile (cache). Goal: that of attention_forward.cu.
// Elements: bf16, f16.
#include "attention_forward.cuh"

// Grid (M / rows of a tile rounded up, H), block 128 DS, dynamic shared memory (rows + 2 BN) (DP + 8) 2 bytes.
#define PROMPT(DP, MT, BN, DS) \
    extern "C" __global__ void __launch_bounds__(128 * DS) attention_prompt_##DP(elem *o, float *lse, const elem *q, const elem *k, const elem *v, const int *cuq, \
        const int *cuk, int M, int N, int H, int K, int D, float scale, int window) { \
        forward<DP, MT, BN, false, CacheKeys, DS>(o, lse, q, k, v, CacheKeys(cuq, cuk, M, N, window), M, H, K, D, H * D, K * D, H * D, scale, 0.f); \
    } \
    extern "C" __global__ void __launch_bounds__(128 * DS) attention_prompt_capped_##DP(elem *o, float *lse, const elem *q, const elem *k, const elem *v, const int *cuq, \
        const int *cuk, int M, int N, int H, int K, int D, float scale, int window, float cap) { \
        forward<DP, MT, BN, true, CacheKeys, DS>(o, lse, q, k, v, CacheKeys(cuq, cuk, M, N, window), M, H, K, D, H * D, K * D, H * D, scale, cap); \
    }
PROMPT(64, 2, 64, 1)
PROMPT(128, 2, 64, 1)
PROMPT(256, 1, 32, 1)
PROMPT(512, 1, 16, 2)
