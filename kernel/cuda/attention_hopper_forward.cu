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
#include "attention_hopper.cuh"

template <int DP, int WGS, bool CAP>
__device__ void forward(elem *o, float *lse, const TensorMap *mq, const TensorMap *mk, const TensorMap *mv, const int *cu, const int *order,
                        int M, int B, int H, int K, int D, int ldo, float scale, int window, float cap) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if (threadIdx.x == 0) {
        prefetch_map(mq);
        prefetch_map(mk);
        prefetch_map(mv);
    }
    constexpr int BM = 64 * WGS, BN = 128, QTILE = BM * DP * 2, TILE = BN * DP * 2;
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ __align__(8) uint64_t bars[9];
    uint32_t sq = (smem(shared) + 1023) & ~1023u, sk = sq + QTILE, sv = sk + 2 * TILE;
    uint32_t full_q = smem(bars), full_k = full_q + 8, full_v = full_k + 16, empty_k = full_v + 16, empty_v = empty_k + 16;
    int tile = order ? order[blockIdx.y] : gridDim.y - 1 - blockIdx.y, head = blockIdx.z * gridDim.x + blockIdx.x, row0 = tile * BM, kv = head / (H / K);
    int n0 = first_key(cu, B, row0, window) / BN, n = (min(row0 + BM, M) + BN - 1) / BN - n0;
    if (threadIdx.x == 0) {
        barrier_init(full_q, 1);
        for (int s = 0; s < 2; s++) {
            barrier_init(full_k + 8 * s, 1);
            barrier_init(full_v + 8 * s, 1);
            barrier_init(empty_k + 8 * s, WGS);
            barrier_init(empty_v + 8 * s, WGS);
        }
        barrier_fence();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_down<WGS == 3 ? 32 : 24>();
        if (threadIdx.x == 0) {
            barrier_expect(full_q, QTILE);
            load_boxes<DP, BM>(sq, mq, full_q, head, row0);
            for (int i = 0; i < n; i++) {
                int s = i & 1, key = (n0 + i) * BN;
                if (i >= 2) barrier_wait(empty_k + 8 * s, (i / 2 - 1) & 1);
                barrier_expect(full_k + 8 * s, TILE);
                load_boxes<DP, BN>(sk + s * TILE, mk, full_k + 8 * s, kv, key);
                if (i >= 2) barrier_wait(empty_v + 8 * s, (i / 2 - 1) & 1);
                barrier_expect(full_v + 8 * s, TILE);
                load_boxes<DP, BN>(sv + s * TILE, mv, full_v + 8 * s, kv, key);
            }
        }
        return;
    }
    registers_up<WGS == 3 ? 160 : 240>();
    int wg = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x & 31;
    int top = row0 + wg * 64, row = top + warp * 16 + lane / 4;
    int from0 = first_key(cu, B, min(row, M - 1), window), from1 = first_key(cu, B, min(row + 8, M - 1), window);
    int all = first_key(cu, B, min(top + 63, M - 1), window);
    bool leader = threadIdx.x % 128 == 0;
    float acc[DP / 2], s[BN / 2], max_[2] = {-INF, -INF}, sum[2] = {0.f, 0.f}, shrink[2] = {1.f, 1.f};
    uint32_t p[BN / 4];
#pragma unroll
    for (int i = 0; i < DP / 2; i++) acc[i] = 0.f;
    float top_scale = CAP ? cap : scale, scale2 = top_scale * 1.4426950408889634f, factor = CAP ? cap_factor(scale, cap) : 0.f;

    auto softmax = [&](int key0) {   // s becomes exp2(scale2 s - max); max_, sum and shrink follow
        if (CAP) {
#pragma unroll
            for (int i = 0; i < BN / 2; i += 4) capped4<DP == 128>(s[i], s[i + 1], s[i + 2], s[i + 3], factor);
        }
        if (key0 + BN - 1 > top || key0 < all) {
#pragma unroll
            for (int i = 0; i < BN / 2; i++) {
                int key = key0 + i / 4 * 8 + lane % 4 * 2 + (i & 1), h = i >> 1 & 1;
                if (key > row + 8 * h || key < (h ? from1 : from0)) s[i] = -INF;
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {   // four partial maxima and sums: one chain of 64 would wait on itself
            float m4[4] = {max_[h], -INF, -INF, -INF}, t4[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
            for (int i = 0; i < BN / 2; i += 4) m4[i / 4 & 3] = fmaxf(m4[i / 4 & 3], fmaxf(s[i + 2 * h], s[i + 2 * h + 1]));
            float m = fmaxf(fmaxf(m4[0], m4[1]), fmaxf(m4[2], m4[3]));
            m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
            m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
            float base = m == -INF ? 0.f : m * scale2;
            shrink[h] = exp2_fast(max_[h] * scale2 - base);
            max_[h] = m;
#pragma unroll
            for (int i = 0; i < BN / 2; i += 4)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float x = exp2_fast(fmaf(s[i + 2 * h + e], scale2, -base));
                    s[i + 2 * h + e] = x;
                    t4[(i / 4 & 1) * 2 + e] += x;
                }
            sum[h] = fmaf(sum[h], shrink[h], (t4[0] + t4[1]) + (t4[2] + t4[3]));
        }
    };
    uint32_t q = sq + wg * 8192;
    int mine = 1 + wg, next = 1 + (wg + 1) % WGS;   // the warpgroups issue GEMMs in turns: one multiplies while another takes exponentials
    if (wg == WGS - 1) turn_give(next);
    barrier_wait(full_q, 0);
    barrier_wait(full_k, 0);
    turn_wait(mine);
    wgmma_fence();
    scores<DP, BM, BN>(s, q, sk);
    wgmma_commit();
    turn_give(next);
    wgmma_wait<0>();
    hold(s);
    if (leader) barrier_arrive(empty_k);
    softmax(n0 * BN);
    pack_rows<BN>(p, s);
    for (int i = 0; i + 1 < n; i++) {
        int st = i & 1, nx = st ^ 1;
        barrier_wait(full_k + 8 * nx, (i + 1) / 2 & 1);
        barrier_wait(full_v + 8 * st, i / 2 & 1);
        hold(acc);
        turn_wait(mine);
        wgmma_fence();
        scores<DP, BM, BN>(s, q, sk + nx * TILE);
        wgmma_commit();
        weighted<DP, BN>(acc, p, sv + st * TILE);
        wgmma_commit();
        turn_give(next);
        wgmma_wait<1>();
        hold(s);
        if (leader) barrier_arrive(empty_k + 8 * nx);
        softmax((n0 + i + 1) * BN);
        wgmma_wait<0>();
        hold(acc);
        if (leader) barrier_arrive(empty_v + 8 * st);
#pragma unroll
        for (int j = 0; j < DP / 2; j++) acc[j] *= shrink[j >> 1 & 1];
        pack_rows<BN>(p, s);
    }
    barrier_wait(full_v + 8 * (n - 1 & 1), (n - 1) / 2 & 1);
    hold(acc);
    turn_wait(mine);
    wgmma_fence();
    weighted<DP, BN>(acc, p, sv + (n - 1 & 1) * TILE);
    wgmma_commit();
    if (wg < WGS - 1) turn_give(next);
    wgmma_wait<0>();
    hold(acc);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
        sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
        if (lane % 4 == 0 && row + 8 * h < M) lse[(int64_t)head * M + row + 8 * h] = max_[h] * top_scale + logf(sum[h]);
    }
    store_head<DP>(o + head * D, acc, 1.f / sum[0], 1.f / sum[1], row, M, D, ldo);
#endif
}

// Grid (C, M / (64 WGS) rounded up, H / C): C heads at a time, so that their keys and values stay in the second-level cache; block 128 (WGS + 1), dynamic shared memory (64 WGS + 512) DP 2 + 1024 bytes. order, from
// attention_order with tiles of 64 WGS rows, puts long tiles first; it may be 0.
#define FORWARD(DP, WGS) \
    extern "C" __global__ void __launch_bounds__(128 * (WGS + 1), 1) attention_hopper_forward_##DP(elem *o, float *lse, const __grid_constant__ TensorMap q, \
        const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, const int *cu, const int *order, int M, int B, int H, int K, int D, int ldo, float scale, \
        int window) { \
        forward<DP, WGS, false>(o, lse, &q, &k, &v, cu, order, M, B, H, K, D, ldo, scale, window, 0.f); \
    } \
    extern "C" __global__ void __launch_bounds__(128 * (WGS + 1), 1) attention_hopper_forward_capped_##DP(elem *o, float *lse, const __grid_constant__ TensorMap q, \
        const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, const int *cu, const int *order, int M, int B, int H, int K, int D, int ldo, float scale, \
        int window, float cap) { \
        forward<DP, WGS, true>(o, lse, &q, &k, &v, cu, order, M, B, H, K, D, ldo, scale, window, cap); \
    }
FORWARD(64, 3)
FORWARD(128, 2)
