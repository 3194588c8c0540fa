// gemm.cuh: what the GEMMs share: the walk over the output's tiles and the store with alpha and beta.
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

// Four lanes exchange pairs of columns: before, lane q has the q-th pair of each of four groups of eight; after, all of group q.
// Twice gives back what there was.
__device__ __forceinline__ void turn_quad(uint32_t (&v)[4], uint32_t quad, int q) {
    bool odd = q & 1, high = q & 2;
    uint32_t a = __shfl_xor_sync(quad, odd ? v[0] : v[1], 1), b = __shfl_xor_sync(quad, odd ? v[2] : v[3], 1);
    if (odd) v[0] = a, v[2] = b;
    else v[1] = a, v[3] = b;
    a = __shfl_xor_sync(quad, high ? v[0] : v[2], 2), b = __shfl_xor_sync(quad, high ? v[1] : v[3], 2);
    if (high) v[0] = a, v[1] = b;
    else v[2] = a, v[3] = b;
}

// Writes GROUPS groups of eight columns from col0 on of a row that begins at value `row`; value(j, e) is element e of this lane's
// pair of group j, as the tensor cores leave it, times alpha. Where the row allows it a lane writes 16 bytes at once, not 4.
template <int GROUPS, class Value>
__device__ __forceinline__ void store_row(float *o32, elem *o16, bool f32, float beta, int64_t row, int col0, int N, Value value) {
    int lane = threadIdx.x & 31, q = lane & 3;
    uint32_t quad = 0xFu << (lane & 28);
    bool wide = GROUPS % 4 == 0 && !f32 && !((uint64_t)o16 & 15) && !((row + col0) & 7);
#pragma unroll
    for (int j = 0; j < GROUPS; j += 4) {
        if (wide && col0 + j * 8 + 32 <= N) {
            uint4 *to = (uint4 *)(o16 + row + col0 + (j + q) * 8);
            uint32_t v[4];
            if (beta != 0.f) {
                uint4 old = *to;
                v[0] = old.x, v[1] = old.y, v[2] = old.z, v[3] = old.w;
                turn_quad(v, quad, q);
            }
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float2 was = beta != 0.f ? unpack2(v[k]) : make_float2(0.f, 0.f);
                float x = value(j + k, 0), y = value(j + k, 1);
                v[k] = beta != 0.f ? pack2(fmaf(beta, was.x, x), fmaf(beta, was.y, y)) : pack2(x, y);
            }
            turn_quad(v, quad, q);
            *to = make_uint4(v[0], v[1], v[2], v[3]);
            continue;
        }
#pragma unroll
        for (int k = j; k < min(j + 4, GROUPS); k++) {
            int c = col0 + k * 8 + q * 2;
            store_pair(o32, o16, f32, beta, row + c, c, N, value(k, 0), value(k, 1));
        }
    }
}
