// attention_hopper_backward.cu: the operation of attention_backward.cu for compute capability 9.0 and heads of up to 128; it
// takes attention_hopper_forward's output and attention_delta's sums.
// Layout: as there; q, k, v, dO as tensor maps {D, heads, M} of elem, 128-byte swizzle, boxes {64, 1, rows}: for the keys' kernel
// k, v 128 rows and q, dO BQ rows; for the queries' kernel q, dO 128 rows and k, v BN rows. Results by address.
// One block of 3 warpgroups: the first feeds two stages through the copy engine, the other two hold 64 keys (or queries) each;
// the probabilities never leave their registers. GEMMs with wgmma, accumulation fp32, no atomics.
// The capped forms are those of attention_backward.cu.
// FLOPs: 14 D for every visible pair. Goal: 70 % of cuDNN's rate (10 D a pair counted).
// Elements: bf16, f16.
#include "attention_hopper.cuh"

template <int DP, int BQ, bool CAP, bool PREFIX = false>
__device__ void backward_kv(elem *dk, elem *dv, float *part, const TensorMap *mq, const TensorMap *mk, const TensorMap *mv, const TensorMap *md,
                            const float *lse, const float *delta, const int *cu, const int *order, int M, int B, int H, int K, int D, int ldk, int splits, float scale, int window, float cap, const int *prefix = nullptr) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if (threadIdx.x == 0) {
        prefetch_map(mq);
        prefetch_map(mk);
        prefetch_map(mv);
        prefetch_map(md);
    }
    constexpr int BN = 128, TILE = BN * DP * 2, QTILE = BQ * DP * 2;
    constexpr float LOG2E = 1.4426950408889634f;
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ __align__(8) uint64_t bars[5];
    __shared__ __align__(8) float rows[2][2][BQ];
    uint32_t sk = (smem(shared) + 1023) & ~1023u, sv = sk + TILE, sq = sv + TILE, sd = sq + 2 * QTILE;
    uint32_t full_k = smem(bars), full = full_k + 8, empty = full + 16;
    int key0 = (order ? order[blockIdx.y] : blockIdx.y) * BN, kv = blockIdx.z / splits * gridDim.x + blockIdx.x, split = blockIdx.z % splits;
    int G = H / K / splits, head0 = kv * (H / K) + split * G;
    auto last_of = [&](int row) { return PREFIX ? last_branch(cu, prefix, B, row, M) : last_query(cu, B, row, M, window); };
    int tile0 = key0 / BQ, end = min(key0 + BN, M) - 1;
    int tiles = (PREFIX ? last_of_tile(cu, prefix, B, key0, end, M) : last_query(cu, B, end, M, window)) / BQ + 1 - tile0, n = tiles * G;
    if (threadIdx.x == 0) {
        barrier_init(full_k, 1);
        for (int s = 0; s < 2; s++) {
            barrier_init(full + 8 * s, 33);   // the copies, and every lane that writes rows of lse and delta
            barrier_init(empty + 8 * s, 256);   // every thread that reads rows of lse and delta
        }
        barrier_fence();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_down<24>();
        int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
        if (threadIdx.x == 0) {
            barrier_expect(full_k, 2 * TILE);
            load_boxes<DP, BN>(sk, mk, full_k, kv, key0);
            load_boxes<DP, BN>(sv, mv, full_k, kv, key0);
        }
        if (warp == 0 && lane == 0) {
            for (int i = 0; i < n; i++) {
                int s = i & 1, head = head0 + i / tiles, row = (tile0 + i % tiles) * BQ;
                if (i >= 2) barrier_wait(empty + 8 * s, (i / 2 - 1) & 1);
                barrier_expect(full + 8 * s, 2 * QTILE);
                load_boxes<DP, BQ>(sq + s * QTILE, mq, full + 8 * s, head, row);
                load_boxes<DP, BQ>(sd + s * QTILE, md, full + 8 * s, head, row);
            }
        } else if (warp == 1) {
            for (int i = 0; i < n; i++) {
                int s = i & 1, row = (tile0 + i % tiles) * BQ;
                int64_t at = (int64_t)(head0 + i / tiles) * M;
                float l[BQ / 32], d[BQ / 32];
#pragma unroll
                for (int j = 0; j < BQ / 32; j++) {
                    int r = min(row + j * 32 + lane, M - 1);
                    l[j] = lse[at + r] * LOG2E;
                    d[j] = delta[at + r];
                }
                if (i >= 2) barrier_wait(empty + 8 * s, (i / 2 - 1) & 1);
#pragma unroll
                for (int j = 0; j < BQ / 32; j++) {
                    rows[s][0][j * 32 + lane] = l[j];
                    rows[s][1][j * 32 + lane] = d[j];
                }
                barrier_arrive(full + 8 * s);
            }
        }
        return;
    }
    registers_up<240>();
    int wg = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x & 31;
    int top = key0 + wg * 64, key = top + warp * 16 + lane / 4;
    int last0 = last_of(min(key, M - 1)), last1 = last_of(min(key + 8, M - 1));
    int all = PREFIX ? least_of_tile(cu, prefix, B, min(top, M - 1), min(top + 63, M - 1), M) : last_query(cu, B, min(top, M - 1), M, window);
    float gk[DP / 2], gv[DP / 2], s[BQ / 2], dp[BQ / 2];
    uint32_t p[BQ / 4], ds[BQ / 4];
#pragma unroll
    for (int i = 0; i < DP / 2; i++) gk[i] = gv[i] = 0.f;
    float scale2 = (CAP ? cap : scale) * LOG2E, factor = CAP ? cap_factor(scale, cap) : 0.f;
    if (wg == 1) turn_give(1);
    barrier_wait(full_k, 0);
    for (int i = 0; i < n; i++) {
        int st = i & 1, row0 = (tile0 + i % tiles) * BQ;
        uint32_t q = sq + st * QTILE, d = sd + st * QTILE;
        barrier_wait(full + 8 * st, i / 2 & 1);
        hold(s);
        hold(dp);
        turn_wait(1 + wg);
        wgmma_fence();
        scores<DP, BN, BQ>(s, sk + wg * 8192, q);
        wgmma_commit();
        scores<DP, BN, BQ>(dp, sv + wg * 8192, d);
        wgmma_commit();
        if (wg == 0 || i + 1 < n) turn_give(2 - wg);
        wgmma_wait<1>();
        hold(s);
        if (CAP) {   // when both are there: tanh then need not be kept
            wgmma_wait<0>();
            hold(dp);
            bool edge = row0 < top + 63 || row0 + BQ - 1 > all;
#pragma unroll
            for (int i = 0; i < BQ / 4; i++) {
                if (DP == 128 && i % 2 == 0) capped4(s[2 * i], s[2 * i + 1], s[2 * i + 2], s[2 * i + 3], factor);
                int h = i & 1, r = i / 2 * 8 + lane % 4 * 2;
                float2 l = *(const float2 *)&rows[st][0][r], e = *(const float2 *)&rows[st][1][r];
                float t0 = DP == 128 ? s[2 * i] : capped(s[2 * i], factor), t1 = DP == 128 ? s[2 * i + 1] : capped(s[2 * i + 1], factor);
                float x0 = exp2_fast(fmaf(t0, scale2, -l.x)), x1 = exp2_fast(fmaf(t1, scale2, -l.y));
                if (edge) {
                    int row = row0 + r, first = key + 8 * h, last = h ? last1 : last0;
                    if (row < first || row > last) x0 = 0.f;
                    if (row + 1 < first || row + 1 > last) x1 = 0.f;
                }
                p[i] = pack2(x0, x1);
                ds[i] = pack2(x0 * fmaf(-t0, t0, 1.f) * (dp[2 * i] - e.x), x1 * fmaf(-t1, t1, 1.f) * (dp[2 * i + 1] - e.y));
            }
            hold(gv);
            wgmma_fence();
            weighted<DP, BQ>(gv, p, d);
            wgmma_commit();
        } else {
#pragma unroll
            for (int j = 0; j < BQ / 8; j++) {
                float2 l = *(const float2 *)&rows[st][0][j * 8 + lane % 4 * 2];
#pragma unroll
                for (int c = 0; c < 4; c++) s[4 * j + c] = exp2_fast(fmaf(s[4 * j + c], scale2, c & 1 ? -l.y : -l.x));
            }
            if (row0 < top + 63 || row0 + BQ - 1 > all) {
#pragma unroll
                for (int c = 0; c < BQ / 2; c++) {
                    int row = row0 + c / 4 * 8 + lane % 4 * 2 + (c & 1);
                    if (row < key + (c >> 1 & 1) * 8 || row > (c >> 1 & 1 ? last1 : last0)) s[c] = 0.f;
                }
            }
            pack_rows<BQ>(p, s);
            hold(gv);
            wgmma_fence();
            weighted<DP, BQ>(gv, p, d);
            wgmma_commit();
            wgmma_wait<1>();
            hold(dp);
#pragma unroll
            for (int j = 0; j < BQ / 8; j++) {   // from the rounded probabilities: the exact ones would not fit beside the rest
                float2 l = *(const float2 *)&rows[st][1][j * 8 + lane % 4 * 2];
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    float2 x = unpack2(p[2 * j + h]);
                    ds[2 * j + h] = pack2(x.x * (dp[4 * j + 2 * h] - l.x), x.y * (dp[4 * j + 2 * h + 1] - l.y));
                }
            }
        }
        hold(gk);
        wgmma_fence();
        weighted<DP, BQ>(gk, ds, q);
        wgmma_commit();
        wgmma_wait<0>();
        hold(gk);
        hold(gv);
        barrier_arrive(empty + 8 * st);
    }
    if (splits == 1) {
        store_head<DP>(dk + kv * D, gk, scale, scale, key, M, D, ldk);
        store_head<DP>(dv + kv * D, gv, 1.f, 1.f, key, M, D, ldk);
        return;
    }
    int64_t size = (int64_t)M * K * D;
    part += (int64_t)split * 2 * size;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (key + 8 * h >= M) continue;
#pragma unroll
        for (int j = 0; j < DP / 8; j++) {
            int c = j * 8 + lane % 4 * 2;
            int64_t at = ((int64_t)(key + 8 * h) * K + kv) * D + c;
            if (c < D) {
                *(float2 *)(part + at) = make_float2(gk[4 * j + 2 * h] * scale, gk[4 * j + 2 * h + 1] * scale);
                *(float2 *)(part + size + at) = make_float2(gv[4 * j + 2 * h], gv[4 * j + 2 * h + 1]);
            }
        }
    }
#endif
}

template <int DP, int BN, bool CAP, bool PREFIX = false>
__device__ void backward_q(elem *dq, const TensorMap *mq, const TensorMap *mk, const TensorMap *mv, const TensorMap *md, const float *lse, const float *delta,
                           const int *cu, const int *order, int M, int B, int H, int K, int D, int ldq, float scale, int window, float cap, const int *prefix = nullptr) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if (threadIdx.x == 0) {
        prefetch_map(mq);
        prefetch_map(mk);
        prefetch_map(mv);
        prefetch_map(md);
    }
    constexpr int BM = 128, TILE = BM * DP * 2, KTILE = BN * DP * 2;
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ __align__(8) uint64_t bars[5];
    uint32_t sq = (smem(shared) + 1023) & ~1023u, sd = sq + TILE, sk = sd + TILE, sv = sk + 2 * KTILE;
    uint32_t full_q = smem(bars), full = full_q + 8, empty = full + 16;
    int tile = order ? order[blockIdx.y] : gridDim.y - 1 - blockIdx.y, head = blockIdx.z * gridDim.x + blockIdx.x, row0 = tile * BM, kv = head / (H / K);
    int n0 = first_key(cu, B, row0, PREFIX ? 0 : window) / BN, n = (min(row0 + BM, M) + BN - 1) / BN - n0;
    auto branch = [&](int row) { return branch_of(cu, prefix, B, min(row, M - 1)); };
    Walk walk(Branch{0, 1 << 30, 1 << 30}, BN, 0);
    __shared__ int hole[2][PREFIX ? BM : 1];   // of each row
    if constexpr (PREFIX) {
        walk = Walk(branch(row0), BN, min(row0 + BM, M));
        n = walk.n;
        for (int i = threadIdx.x; i < BM; i += 384) {
            Branch b = branch(row0 + i);
            hole[0][i] = b.hole0, hole[1][i] = b.hole1;
        }
    }
    auto key_at = [&](int i) { return (PREFIX ? walk.tile(i) : n0 + i) * BN; };
    if (threadIdx.x == 0) {
        barrier_init(full_q, 1);
        for (int s = 0; s < 2; s++) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, 2);
        }
        barrier_fence();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_down<24>();
        if (threadIdx.x == 0) {
            barrier_expect(full_q, 2 * TILE);
            load_boxes<DP, BM>(sq, mq, full_q, head, row0);
            load_boxes<DP, BM>(sd, md, full_q, head, row0);
            for (int i = 0; i < n; i++) {
                int s = i & 1, key = key_at(i);
                if (i >= 2) barrier_wait(empty + 8 * s, (i / 2 - 1) & 1);
                barrier_expect(full + 8 * s, 2 * KTILE);
                load_boxes<DP, BN>(sk + s * KTILE, mk, full + 8 * s, kv, key);
                load_boxes<DP, BN>(sv + s * KTILE, mv, full + 8 * s, kv, key);
            }
        }
        return;
    }
    registers_up<240>();
    int wg = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x & 31;
    int top = row0 + wg * 64, row = top + warp * 16 + lane / 4;
    int from0 = first_key(cu, B, min(row, M - 1), window), from1 = first_key(cu, B, min(row + 8, M - 1), window);
    int all = first_key(cu, B, min(top + 63, M - 1), window);
    Clean clean(Branch{1 << 30, 0, 0}, Branch{0, 0, 0});
    if constexpr (PREFIX) {
        Branch a = branch(top), b = branch(top + 63);
        from0 = branch(row).first, from1 = branch(row + 8).first;
        clean = Clean(a, b);   // all is the last row's own sequence already: window is 0
    }
    int64_t at = (int64_t)head * M;
    float lse0 = lse[at + min(row, M - 1)] * 1.4426950408889634f, lse1 = lse[at + min(row + 8, M - 1)] * 1.4426950408889634f;
    float delta0 = delta[at + min(row, M - 1)], delta1 = delta[at + min(row + 8, M - 1)];
    float acc[DP / 2], s[BN / 2], dp[BN / 2];
    uint32_t ds[BN / 4];
#pragma unroll
    for (int i = 0; i < DP / 2; i++) acc[i] = 0.f;
    float scale2 = (CAP ? cap : scale) * 1.4426950408889634f, factor = CAP ? cap_factor(scale, cap) : 0.f;
    if (wg == 1) turn_give(1);
    barrier_wait(full_q, 0);
    for (int i = 0; i < n; i++) {
        int st = i & 1, key0 = key_at(i);
        barrier_wait(full + 8 * st, i / 2 & 1);
        hold(s);
        hold(dp);
        turn_wait(1 + wg);
        wgmma_fence();
        scores<DP, BM, BN>(s, sq + wg * 8192, sk + st * KTILE);
        wgmma_commit();
        scores<DP, BM, BN>(dp, sd + wg * 8192, sv + st * KTILE);
        wgmma_commit();
        if (wg == 0 || i + 1 < n) turn_give(2 - wg);
        wgmma_wait<1>();
        hold(s);
#pragma unroll
        for (int j = 0; j < BN / 2; j++) {
            if (CAP && j % 4 == 0) capped4<DP == 128>(s[j], s[j + 1], s[j + 2], s[j + 3], factor);
            float t = s[j];
            s[j] = exp2_fast(fmaf(t, scale2, j >> 1 & 1 ? -lse1 : -lse0));
            if (CAP) s[j] *= fmaf(-t, t, 1.f);
        }
        if (key0 + BN - 1 > top || (key0 < all && !(PREFIX && clean.holds(key0, BN)))) {
            int local = PREFIX ? row - row0 : 0;
            int hole0 = PREFIX ? hole[0][local] : 0, hole1 = PREFIX ? hole[1][local] : 0;
            int hole2 = PREFIX ? hole[0][local + 8 * PREFIX] : 0, hole3 = PREFIX ? hole[1][local + 8 * PREFIX] : 0;
#pragma unroll
            for (int j = 0; j < BN / 2; j++) {
                int key = key0 + j / 4 * 8 + lane % 4 * 2 + (j & 1), h = j >> 1 & 1;
                bool hidden = PREFIX && key >= (h ? hole2 : hole0) && key < (h ? hole3 : hole1);
                if (hidden || key > row + 8 * h || key < (h ? from1 : from0)) s[j] = 0.f;
            }
        }
        wgmma_wait<0>();
        hold(dp);
#pragma unroll
        for (int j = 0; j < BN / 2; j++) dp[j] = s[j] * (dp[j] - (j >> 1 & 1 ? delta1 : delta0));
        pack_rows<BN>(ds, dp);
        hold(acc);
        wgmma_fence();
        weighted<DP, BN>(acc, ds, sk + st * KTILE);
        wgmma_commit();
        wgmma_wait<0>();
        hold(acc);
        if (threadIdx.x % 128 == 0) barrier_arrive(empty + 8 * st);
    }
    store_head<DP>(dq + head * D, acc, scale, scale, row, M, D, ldq);
#endif
}

// attention_hopper_backward_kv_DP: grid (C, M / 128 rounded up, splits K / C), block 384, shared memory (256 + 4 BQ) DP 2 + 1024 bytes.
// attention_hopper_backward_q_DP: grid (C, M / 128 rounded up, H / C), block 384, shared memory (256 + 4 BN) DP 2 + 1024 bytes.
// order, from attention_order with tiles of 128 rows (by keys and by queries), puts long tiles first; it may be 0.
#define BACKWARD(DP, BQ, BN) \
    extern "C" __global__ void __launch_bounds__(384, 1) attention_hopper_backward_kv_##DP(elem *dk, elem *dv, float *part, const __grid_constant__ TensorMap q, \
        const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap d_o, const float *lse, const float *delta, const int *cu, const int *order, \
        int M, int B, int H, int K, int D, int ldk, int splits, float scale, int window) { \
        backward_kv<DP, BQ, false>(dk, dv, part, &q, &k, &v, &d_o, lse, delta, cu, order, M, B, H, K, D, ldk, splits, scale, window, 0.f); \
    } \
    extern "C" __global__ void __launch_bounds__(384, 1) attention_hopper_backward_q_##DP(elem *dq, const __grid_constant__ TensorMap q, \
        const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap d_o, const float *lse, const float *delta, const int *cu, const int *order, \
        int M, int B, int H, int K, int D, int ldq, float scale, int window) { \
        backward_q<DP, BN, false>(dq, &q, &k, &v, &d_o, lse, delta, cu, order, M, B, H, K, D, ldq, scale, window, 0.f); \
    } \
    extern "C" __global__ void __launch_bounds__(384, 1) attention_hopper_backward_kv_capped_##DP(elem *dk, elem *dv, float *part, const __grid_constant__ TensorMap q, \
        const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap d_o, const float *lse, const float *delta, const int *cu, const int *order, \
        int M, int B, int H, int K, int D, int ldk, int splits, float scale, int window, float cap) { \
        backward_kv<DP, BQ, true>(dk, dv, part, &q, &k, &v, &d_o, lse, delta, cu, order, M, B, H, K, D, ldk, splits, scale, window, cap); \
    } \
    extern "C" __global__ void __launch_bounds__(384, 1) attention_hopper_backward_q_capped_##DP(elem *dq, const __grid_constant__ TensorMap q, \
        const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap d_o, const float *lse, const float *delta, const int *cu, const int *order, \
        int M, int B, int H, int K, int D, int ldq, float scale, int window, float cap) { \
        backward_q<DP, BN, true>(dq, &q, &k, &v, &d_o, lse, delta, cu, order, M, B, H, K, D, ldq, scale, window, cap); \
    }
// The prefixed forms are those of attention_forward.cu.
#define PREFIXED(DP, BQ, BN) \
    extern "C" __global__ void __launch_bounds__(384, 1) attention_hopper_backward_kv_prefixed_##DP(elem *dk, elem *dv, float *part, const __grid_constant__ TensorMap q, \
        const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap d_o, const float *lse, const float *delta, const int *cu, const int *order, \
        int M, int B, int H, int K, int D, int ldk, int splits, float scale, const int *prefix) { \
        backward_kv<DP, BQ, false, true>(dk, dv, part, &q, &k, &v, &d_o, lse, delta, cu, order, M, B, H, K, D, ldk, splits, scale, 0, 0.f, prefix); \
    } \
    extern "C" __global__ void __launch_bounds__(384, 1) attention_hopper_backward_q_prefixed_##DP(elem *dq, const __grid_constant__ TensorMap q, \
        const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap d_o, const float *lse, const float *delta, const int *cu, const int *order, \
        int M, int B, int H, int K, int D, int ldq, float scale, const int *prefix) { \
        backward_q<DP, BN, false, true>(dq, &q, &k, &v, &d_o, lse, delta, cu, order, M, B, H, K, D, ldq, scale, 0, 0.f, prefix); \
    }
BACKWARD(64, 128, 128)
BACKWARD(128, 64, 64)
PREFIXED(64, 64, 128)
PREFIXED(128, 64, 64)
