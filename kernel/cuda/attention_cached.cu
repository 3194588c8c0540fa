// attention_cached.cu: attention of few query rows over keys with sequence bounds of their own, as in generation over a cache.
// Layout: q, o [M,H,D], k, v [N,K,D] elem, packed rows; cuq, cuk [S+1] int32; lse [H,M] fp32. D a multiple of 8, at most DP.
// The last query of a sequence sees all its keys, the one before all but the last, and so on; with window > 0 only the last
// window of them. A row that sees no key or is in no sequence gives 0, in lse too. Bounds beyond M and N are cut.
// The capped forms put tanh(scale q k / cap) cap in place of scale q k.
// One block a query row and head. DP/8 threads, at most 32, share a key, each 8 of its values or, of heads above 256, 8 of each half;
// every such group runs an online softmax over keys of its own, several at a time so that their loads overlap; the groups' results are added in fixed order. Accumulation fp32.
// attention_split_*: the same, the keys of a row divided among the blocks of grid.z, so that few rows over many keys fill the device: block
// z has those from its sequence's first key plus z times span on, the last block the rest. attention_join adds what they leave, in
// ascending order: part [M,H,Z,D] fp32, sums of exponentials times values; stat [M,H,Z,2] fp32, each block's largest score and sum.
// Bytes: 4 D a key and head; the heads of one key head find it in the cache. Goal: 10 us for a row over 512 keys; not for long prompts.
// Elements: bf16, f16, f32.
#include "attention.cuh"
#include "early.cuh"

// Writes o and lse, or with SPLIT the block's share to part and stat.
template <int DP, bool CAP, bool SPLIT>
__device__ __forceinline__ void cached(elem *o, float *lse, const elem *q, const elem *k, const elem *v, const int *cuq, const int *cuk,
                                       int M, int N, int S, int H, int K, int D, float scale, int window, float cap, float *partial, float *stat, int span) {
    constexpr int L = DP > 256 ? 32 : DP / 8, PARTS = DP / (8 * L), GROUPS = 128 / L, AHEAD = 4 / PARTS;   // threads a key; eights of a thread; keys at a time; rounds whose loads are in flight
    __shared__ float part[GROUPS][DP], top[GROUPS], sum[GROUPS];
    int row = blockIdx.x, head = blockIdx.y, kv = head / (H / K), group = threadIdx.x / L, at = threadIdx.x % L * 8;
    bool mine[PARTS];
#pragma unroll
    for (int i = 0; i < PARTS; i++) mine[i] = at + i * 8 * L < D;
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
    if (SPLIT && lo >= hi) {   // the whole block
        if (threadIdx.x == 0) {
            float *at = stat + (((int64_t)row * H + head) * gridDim.z + blockIdx.z) * 2;
            at[0] = -INF, at[1] = 0.f;
        }
        return;
    }
    float x[PARTS][8], acc[PARTS][8], m = -INF, t = 0;
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
#pragma unroll
        for (int e = 0; e < 8; e++) x[i][e] = acc[i][e] = 0;
        if (mine[i]) unpack(load8(q + ((int64_t)row * H + head) * D + at + i * 8 * L), x[i]);
#pragma unroll
        for (int e = 0; e < 8; e++) x[i][e] *= scale;
    }
    int64_t ld = (int64_t)K * D;
    k += kv * D + at;
    v += kv * D + at;
    for (int base = lo; base < hi; base += AHEAD * GROUPS) {   // the same rounds in all threads: they shuffle
        Eight<elem> keys[AHEAD][PARTS], values[AHEAD][PARTS];
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            int key = base + a * GROUPS + group;
#pragma unroll
            for (int i = 0; i < PARTS; i++) {
                keys[a][i] = values[a][i] = fill8(0);
                if (mine[i] && key < hi) keys[a][i] = load8(k + key * ld + i * 8 * L), values[a][i] = load8(v + key * ld + i * 8 * L);
            }
        }
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            float y[8], score = 0;
#pragma unroll
            for (int i = 0; i < PARTS; i++) {
                unpack(keys[a][i], y);
#pragma unroll
                for (int e = 0; e < 8; e++) score = fmaf(x[i][e], y[e], score);
            }
#pragma unroll
            for (int d = L / 2; d; d >>= 1) score += __shfl_xor_sync(~0u, score, d);
            if (CAP) score = cap * (1.f - __fdividef(2.f, expf(score * (2.f / cap)) + 1.f));
            bool there = base + a * GROUPS + group < hi;   // no branch: every thread takes part in the next shuffle
            float up = there ? fmaxf(m, score) : m, shrink = there ? expf(m - up) : 1.f, p = there ? expf(score - up) : 0.f;
            m = up;
            t = fmaf(t, shrink, p);
#pragma unroll
            for (int i = 0; i < PARTS; i++) {
                unpack(values[a][i], y);
#pragma unroll
                for (int e = 0; e < 8; e++) acc[i][e] = fmaf(p, y[e], acc[i][e] * shrink);
            }
        }
    }
    if (at == 0) top[group] = m, sum[group] = t;
#pragma unroll
    for (int i = 0; i < PARTS; i++)
#pragma unroll
        for (int e = 0; e < 8; e++) part[group][at + i * 8 * L + e] = acc[i][e];
    __syncthreads();
    float all = -INF, total = 0;
    for (int g = 0; g < GROUPS; g++) all = fmaxf(all, top[g]);
    for (int g = 0; g < GROUPS; g++) total += sum[g] == 0 ? 0.f : sum[g] * expf(top[g] - all);   // NaN goes on
    int64_t at_split = SPLIT ? ((int64_t)row * H + head) * gridDim.z + blockIdx.z : 0;
    for (int d = threadIdx.x; d < D; d += blockDim.x) {
        float y = 0;
        for (int g = 0; g < GROUPS; g++)
            if (sum[g] != 0) y = fmaf(part[g][d], expf(top[g] - all), y);
        if (SPLIT) partial[at_split * D + d] = y;
        else o[((int64_t)row * H + head) * D + d] = narrow(total == 0 ? 0.f : y / total);
    }
    if (SPLIT) {
        if (threadIdx.x == 0) stat[at_split * 2] = all, stat[at_split * 2 + 1] = total;
        return;
    }
    if (threadIdx.x == 0) lse[(int64_t)head * M + row] = total == 0 ? 0.f : all + logf(total);
}

// Grid (M, H), attention_split_* (M, H, Z), block 128.
#define CACHED(DP) \
    extern "C" __global__ void __launch_bounds__(128) attention_cached_##DP(elem *o, float *lse, const elem *q, const elem *k, const elem *v, const int *cuq, \
        const int *cuk, int M, int N, int S, int H, int K, int D, float scale, int window) { \
        cached<DP, false, false>(o, lse, q, k, v, cuq, cuk, M, N, S, H, K, D, scale, window, 0.f, 0, 0, 0); \
    } \
    extern "C" __global__ void __launch_bounds__(128) attention_cached_capped_##DP(elem *o, float *lse, const elem *q, const elem *k, const elem *v, const int *cuq, \
        const int *cuk, int M, int N, int S, int H, int K, int D, float scale, int window, float cap) { \
        cached<DP, true, false>(o, lse, q, k, v, cuq, cuk, M, N, S, H, K, D, scale, window, cap, 0, 0, 0); \
    } \
    extern "C" __global__ void __launch_bounds__(128, 4) attention_split_##DP(float *part, float *stat, const elem *q, const elem *k, const elem *v, const int *cuq, \
        const int *cuk, int M, int N, int S, int H, int K, int D, int span, float scale, int window) { \
        cached<DP, false, true>(0, 0, q, k, v, cuq, cuk, M, N, S, H, K, D, scale, window, 0.f, part, stat, span); \
    } \
    extern "C" __global__ void __launch_bounds__(128, 4) attention_split_capped_##DP(float *part, float *stat, const elem *q, const elem *k, const elem *v, const int *cuq, \
        const int *cuk, int M, int N, int S, int H, int K, int D, int span, float scale, int window, float cap) { \
        cached<DP, true, true>(0, 0, q, k, v, cuq, cuk, M, N, S, H, K, D, scale, window, cap, part, stat, span); \
    }
CACHED(8)
CACHED(16)
CACHED(32)
CACHED(64)
CACHED(128)
CACHED(256)
CACHED(512)

// Grid (M, H), block 128.
extern "C" __global__ void __launch_bounds__(128) attention_join(elem *o, float *lse, const float *part, const float *stat, int M, int H, int D, int Z) {
    let_next_begin();
    wait_for_earlier();
    int row = blockIdx.x, head = blockIdx.y;
    int64_t at = ((int64_t)row * H + head) * Z;
    float all = -INF, total = 0;
    for (int z = 0; z < Z; z++)
        if (stat[(at + z) * 2 + 1] != 0) all = fmaxf(all, stat[(at + z) * 2]);   // NaN goes on by its sum
    for (int z = 0; z < Z; z++) {
        float s = stat[(at + z) * 2 + 1];
        if (s != 0) total += s * expf(stat[(at + z) * 2] - all);
    }
    for (int d = threadIdx.x; d < D; d += blockDim.x) {
        float y = 0;
        for (int z = 0; z < Z; z++)
            if (stat[(at + z) * 2 + 1] != 0) y = fmaf(part[(at + z) * D + d], expf(stat[(at + z) * 2] - all), y);
        o[((int64_t)row * H + head) * D + d] = narrow(total == 0 ? 0.f : y / total);
    }
    if (threadIdx.x == 0) lse[(int64_t)head * M + row] = total == 0 ? 0.f : all + logf(total);
}
