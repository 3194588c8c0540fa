// attention_grouped.cu: attention of few query rows over a cache, as attention_cached.cu has it, by tensor cores: all query heads of a key
// head are computed by one block, so that keys and values are read once.
// Layout: as in attention_cached.cu; D a multiple of 8, at most DP. The *_wide forms have up to 16 query heads a block, the others up to 8.
// A block of eight warps has one query row. Warp w takes the keys 16 w to 16 w + 15 of each 128 and runs an online softmax over them; scores of heads (rows of mma.m16n8k16) and keys (columns) are the left operand of the product with the values. Operands
// come from global memory as they are used: inner indices of q k, and the columns of the result, are permuted so that a lane's 16 bytes are
// neighbours. The warps' results are added in fixed order. So a row has the same bits whatever the other rows are. P is rounded to elem.
// The forms *_split divide a row's keys among the blocks of grid.z as attention_split_* do, and leave the same parts for attention_join.
// Bytes: 4 D a key and key head. Goal: 70 % of copy at 64 rows.
// Elements: bf16, f16.
#include "attention.cuh"
#include "early.cuh"

constexpr int WARPS = 8;

// Eight values of a row at p, or zeros.
__device__ __forceinline__ uint4 eight(const elem *p, bool there) { return there ? *(const uint4 *)p : make_uint4(0, 0, 0, 0); }
// Values of neighbouring keys, a the first's, from two words: their low or their high halves.
__device__ __forceinline__ uint32_t halves(uint32_t a, uint32_t b, bool high) { return __byte_perm(a, b, high ? 0x7632 : 0x5410); }
__device__ __forceinline__ uint32_t word(const uint4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

template <int DP, bool CAP, bool WIDE, bool SPLIT>
__device__ __forceinline__ void grouped(elem *o, float *lse, const elem *q, const elem *k, const elem *v, const int *cuq, const int *cuk,
                                        int M, int N, int S, int H, int K, int D, float scale, int window, float cap, float *partial, float *stat, int span) {
    constexpr int R = WIDE ? 2 : 1, MOST = 8 * R, C = DP / 32, E = DP / 64, LD = DP + 4;
    __shared__ float part[WARPS][8][LD], top[WARPS][MOST], sum[WARPS][MOST];
    int row = blockIdx.x, group = H / K, groups = (group + MOST - 1) / MOST, kv = blockIdx.y / groups;
    int head0 = kv * group + (int)blockIdx.y % groups * MOST, heads = min(MOST, kv * group + group - head0);
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    let_next_begin();
    wait_for_earlier();
    int s = S > 0 ? sequence_of(cuq, S, row) : S, lo = 0, hi = 0;
    if (s < S && row >= cuq[s]) {
        int q1 = min(cuq[s + 1], M), k0 = min(max(cuk[s], 0), N), k1 = min(max(cuk[s + 1], 0), N);
        hi = k1 - (q1 - 1 - row);
        lo = window > 0 ? max(k0, hi - window) : k0;
        if (SPLIT) {
            int from = k0 + (int)blockIdx.z * span;
            lo = max(lo, from);
            if (blockIdx.z + 1 < gridDim.z) hi = min(hi, from + span);
        }
    }
    if (lo >= hi) {   // the whole block
        if (SPLIT) {
            if (threadIdx.x < heads) {
                float *at = stat + (((int64_t)row * H + head0 + threadIdx.x) * gridDim.z + blockIdx.z) * 2;
                at[0] = -INF, at[1] = 0.f;
            }
        } else {
            for (int i = threadIdx.x; i < heads * D; i += 32 * WARPS) o[((int64_t)row * H + head0) * D + i] = narrow(0.f);
            if (threadIdx.x < heads) lse[(int64_t)(head0 + threadIdx.x) * M + row] = 0.f;
        }
        return;
    }
    uint4 query[C][R];
#pragma unroll
    for (int c = 0; c < C; c++)
#pragma unroll
        for (int r = 0; r < R; r++) query[c][r] = eight(q + ((int64_t)row * H + head0 + g + 8 * r) * D + c * 32 + t * 8, g + 8 * r < heads && c * 32 + t * 8 < D);
    int64_t ld = (int64_t)K * D;
    k += kv * D + t * 8;
    v += kv * D + g * 8;
    float acc[DP / 8][4], m[R], total[R];
#pragma unroll
    for (int i = 0; i < DP / 8; i++) acc[i][0] = acc[i][1] = acc[i][2] = acc[i][3] = 0.f;
#pragma unroll
    for (int r = 0; r < R; r++) m[r] = -INF, total[r] = 0.f;
    uint4 keys[2][C], values[4][E];
    int base = lo + warp * 16;
    const elem *key0 = k + (base + g) * ld, *value0 = v + (base + 2 * t) * ld;
    auto load_keys = [&](int base) {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int c = 0; c < C; c++) keys[i][c] = eight(key0 + i * 8 * ld + c * 32, base + i * 8 + g < hi && c * 32 + t * 8 < D);
        key0 += WARPS * 16 * ld;
    };
    auto load_values = [&](int base) {
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < E; e++) values[j][e] = eight(value0 + ((j & 1) + (j >> 1) * 8) * ld + e * 64, base + 2 * t + (j & 1) + (j >> 1) * 8 < hi && e * 64 + g * 8 < D);
        value0 += WARPS * 16 * ld;
    };
    load_keys(base);
    load_values(base);
#pragma unroll 1
    while (base < hi) {   // the same rounds in all lanes
        float x[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            x[i][0] = x[i][1] = x[i][2] = x[i][3] = 0.f;
#pragma unroll
            for (int c = 0; c < C; c++) {
                const uint4 &a = query[c][0], b = WIDE ? query[c][R - 1] : make_uint4(0, 0, 0, 0);
                uint32_t first[4] = {a.x, b.x, a.y, b.y}, second[4] = {a.z, b.z, a.w, b.w};
                mma(x[i], first, keys[i][c].x, keys[i][c].y);
                mma(x[i], second, keys[i][c].z, keys[i][c].w);
            }
        }
        int then = base + WARPS * 16;
        load_keys(then);
#pragma unroll
        for (int r = 0; r < R; r++) {
            float up = m[r];
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float &y = x[i][2 * r + e];
                    y *= scale;
                    if (CAP) y = cap * (1.f - __fdividef(2.f, expf(y * (2.f / cap)) + 1.f));
                    if (base + i * 8 + 2 * t + e >= hi) y = -INF;
                    up = fmaxf(up, y);
                }
            up = fmaxf(up, __shfl_xor_sync(~0u, up, 1));
            up = fmaxf(up, __shfl_xor_sync(~0u, up, 2));
            float from = up == -INF ? 0.f : up, shrink = exp2_fast((m[r] - from) * 1.4426950408889634f), more = 0.f;
            m[r] = up;
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float &y = x[i][2 * r + e];
                    y = exp2_fast((y - from) * 1.4426950408889634f);
                    more += y;
                }
            total[r] = fmaf(total[r], shrink, more);   // of this lane's keys
#pragma unroll
            for (int i = 0; i < DP / 8; i++) acc[i][2 * r] *= shrink, acc[i][2 * r + 1] *= shrink;
        }
        uint32_t p[4] = {pack2(x[0][0], x[0][1]), WIDE ? pack2(x[0][2], x[0][3]) : 0u, pack2(x[1][0], x[1][1]), WIDE ? pack2(x[1][2], x[1][3]) : 0u};
#pragma unroll
        for (int e = 0; e < E; e++)
#pragma unroll
            for (int w = 0; w < 8; w++)
                mma(acc[e * 8 + w], p, halves(word(values[0][e], w / 2), word(values[1][e], w / 2), w & 1), halves(word(values[2][e], w / 2), word(values[3][e], w / 2), w & 1));
        load_values(then);
        base = then;
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        total[r] += __shfl_xor_sync(~0u, total[r], 1);
        total[r] += __shfl_xor_sync(~0u, total[r], 2);
        if (t == 0) top[warp][g + 8 * r] = m[r], sum[warp][g + 8 * r] = total[r];
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        if (r > 0) __syncthreads();
#pragma unroll
        for (int e = 0; e < E; e++)
#pragma unroll
            for (int h = 0; h < 2; h++)   // columns 2 t and 2 t + 1 of the tiles w are values 16 t + 8 h + w
#pragma unroll
                for (int w = 0; w < 8; w += 4)
                    *(float4 *)&part[warp][g][e * 64 + 16 * t + 8 * h + w] = make_float4(acc[e * 8 + w][2 * r + h], acc[e * 8 + w + 1][2 * r + h], acc[e * 8 + w + 2][2 * r + h], acc[e * 8 + w + 3][2 * r + h]);
        __syncthreads();
        int head = threadIdx.x >> 5;   // of eight
        if (head + 8 * r < heads) {
            float all = -INF, sums = 0, factor[WARPS];
#pragma unroll
            for (int w = 0; w < WARPS; w++) all = fmaxf(all, top[w][head + 8 * r]);
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                float one = sum[w][head + 8 * r];
                factor[w] = one == 0 ? 0.f : exp2_fast((top[w][head + 8 * r] - all) * 1.4426950408889634f);
                sums = fmaf(one, factor[w], sums);   // NaN goes on
            }
            int64_t at = (int64_t)row * H + head0 + head + 8 * r;
            for (int d = lane; d < D; d += 32) {
                float y = 0;
#pragma unroll
                for (int w = 0; w < WARPS; w++)
                    if (sum[w][head + 8 * r] != 0) y = fmaf(part[w][head][d], factor[w], y);
                if (SPLIT) partial[(at * gridDim.z + blockIdx.z) * D + d] = y;
                else o[at * D + d] = narrow(sums == 0 ? 0.f : y / sums);
            }
            if (lane == 0) {
                if (SPLIT) stat[(at * gridDim.z + blockIdx.z) * 2] = all, stat[(at * gridDim.z + blockIdx.z) * 2 + 1] = sums;
                else lse[(int64_t)(head0 + head + 8 * r) * M + row] = sums == 0 ? 0.f : all + logf(sums);
            }
        }
    }
}

#define GROUPED_ARGS const elem *q, const elem *k, const elem *v, const int *cuq, const int *cuk, int M, int N, int S, int H, int K, int D

// Grid (M, K blocks of query heads), *_split (the same, Z), block 256.
#define FORM(NAME, DP, WIDE) \
    extern "C" __global__ void __launch_bounds__(256, DP == 64 ? 2 : 1) attention_grouped_##NAME(elem *o, float *lse, GROUPED_ARGS, float scale, int window) { \
        grouped<DP, false, WIDE, false>(o, lse, q, k, v, cuq, cuk, M, N, S, H, K, D, scale, window, 0.f, 0, 0, 0); \
    } \
    extern "C" __global__ void __launch_bounds__(256, DP == 64 ? 2 : 1) attention_grouped_capped_##NAME(elem *o, float *lse, GROUPED_ARGS, float scale, int window, float cap) { \
        grouped<DP, true, WIDE, false>(o, lse, q, k, v, cuq, cuk, M, N, S, H, K, D, scale, window, cap, 0, 0, 0); \
    } \
    extern "C" __global__ void __launch_bounds__(256, DP == 64 ? 2 : 1) attention_grouped_split_##NAME(float *part, float *stat, GROUPED_ARGS, int span, float scale, int window) { \
        grouped<DP, false, WIDE, true>(0, 0, q, k, v, cuq, cuk, M, N, S, H, K, D, scale, window, 0.f, part, stat, span); \
    } \
    extern "C" __global__ void __launch_bounds__(256, DP == 64 ? 2 : 1) attention_grouped_split_capped_##NAME(float *part, float *stat, GROUPED_ARGS, int span, float scale, int window, float cap) { \
        grouped<DP, true, WIDE, true>(0, 0, q, k, v, cuq, cuk, M, N, S, H, K, D, scale, window, cap, part, stat, span); \
    }
FORM(64, 64, false)
FORM(64_wide, 64, true)
FORM(128, 128, false)
FORM(128_wide, 128, true)
