// gemm.cuh: what the matrix products share: the walk over the output's tiles and the store with alpha and beta.
#pragma once
#include "common.cuh"

// Blocks in columns of 8 tile rows: neighbours share operands in the second-level cache.
template <int BM, int BN>
__device__ __forceinline__ void tile_of(int block, int M, int N, int &row, int &col) {
    int tiles_m = (M + BM - 1) / BM, tiles_n = (N + BN - 1) / BN, group = block / (8 * tiles_n), in = block - group * 8 * tiles_n;
    int height = min(8, tiles_m - group * 8);
    row = (group * 8 + in % height) * BM;
    col = in / height * BN;
}

// Writes x and y, already times alpha, to columns c and c+1 at value `at`; beta != 0 adds beta times what is there.
__device__ __forceinline__ void store_pair(float *o32, elem *o16, bool f32, float beta, int64_t at, int c, int N, float x, float y) {
    if (c + 1 < N && !(at & 1)) {
        if (f32) {
            float2 *p = (float2 *)(o32 + at);
            if (beta != 0.f) x = fmaf(beta, p->x, x), y = fmaf(beta, p->y, y);
            *p = make_float2(x, y);
        } else {
            if (beta != 0.f) {
                float2 old = load2(o16 + at);
                x = fmaf(beta, old.x, x), y = fmaf(beta, old.y, y);
            }
            store2(o16 + at, x, y);
        }
        return;
    }
#pragma unroll
    for (int e = 0; e < 2; e++) {
        if (c + e >= N) continue;
        float v = e ? y : x;
        if (f32) o32[at + e] = beta != 0.f ? fmaf(beta, o32[at + e], v) : v;
        else o16[at + e] = narrow(beta != 0.f ? fmaf(beta, widen(o16[at + e]), v) : v);
    }
}
