// attention_hopper_forward.cuh: the forward pass of attention_hopper_forward.cu and attention_hopper_prompt.cu, which differ in what a row
// sees (a View of attention.cuh).
#pragma once
#include "attention_hopper.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Makes the rows of a tile from `rows` on zero: of another sequence, they may hold what is not finite. Values would reach sums by it, with
// a weight of zero; keys scores beside theirs, where capped4 takes four at once.
template <int DP, int BN, int WGS>
__device__ __forceinline__ void zero_behind(uint32_t tile, int rows) {
    for (int i = threadIdx.x - 128; i < (BN - rows) * (DP / 2); i += 128 * WGS) {
        int row = rows + i / (DP / 2), at = i % (DP / 2);   // four bytes
        store_shared(tile + at / 32 * BN * 128 + row * 128 + at % 32 * 4, 0);
    }
    bulk_fence();
    asm volatile("bar.sync 5, %0;" ::"n"(128 * WGS) : "memory");
}
#endif

template <int DP, int WGS, bool CAP, class View>
__device__ void forward(elem *o, float *lse, const TensorMap *mq, const TensorMap *mk, const TensorMap *mv, const View view, const int *order,
                        int M, int H, int K, int D, int ldo, float scale, float cap) {
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
    if (view.none(row0, BM)) return zero_tile<128 * (WGS + 1)>(o + head * D, lse + (int64_t)head * M, row0, BM, M, D, ldo);
    int begin = view.begin(row0, BN), end = view.end(row0, BM), n = (end - begin + BN - 1) / BN;
    Walk walk(Branch{0, 1 << 30, 1 << 30}, BN, 0);
    __shared__ int hole[2][View::PREFIXES ? BM : 1];   // of each row
    if constexpr (View::PREFIXES) {
        walk = Walk(view.branch(row0), BN, end);
        n = walk.n;
        for (int i = threadIdx.x; i < BM; i += 128 * (WGS + 1)) {
            Branch b = view.branch(row0 + i);
            hole[0][i] = b.hole0, hole[1][i] = b.hole1;
        }
    }
    auto key_at = [&](int i) { return View::PREFIXES ? walk.tile(i) * BN : begin + i * BN; };
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
                int s = i & 1, key = key_at(i);
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
    int from0 = view.first(row), from1 = view.first(row + 8), all = view.all(view.first(top), view.first(top + 63));
    Clean clean(Branch{1 << 30, 0, 0}, Branch{0, 0, 0});
    if constexpr (View::PREFIXES) {
        all = view.own(top + 63);
        clean = Clean(view.branch(top), view.branch(top + 63));
    }
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
        if (key0 + BN - 1 > view.last(top) || (key0 < all && !(View::PREFIXES && clean.holds(key0, BN)))) {
            int local = View::PREFIXES ? row - row0 : 0;
            int hole0 = View::PREFIXES ? hole[0][local] : 0, hole1 = View::PREFIXES ? hole[1][local] : 0;
            int hole2 = View::PREFIXES ? hole[0][local + 8 * View::PREFIXES] : 0, hole3 = View::PREFIXES ? hole[1][local + 8 * View::PREFIXES] : 0;
#pragma unroll
            for (int i = 0; i < BN / 2; i++) {
                int key = key0 + i / 4 * 8 + lane % 4 * 2 + (i & 1), h = i >> 1 & 1;
                bool hidden = View::PREFIXES && key >= (h ? hole2 : hole0) && key < (h ? hole3 : hole1);
                if (hidden || key > view.last(row + 8 * h) || key < (h ? from1 : from0)) s[i] = -INF;
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
    int behind = View::ALL ? 0 : (end - begin) % BN;   // where in the last tile, if not at its end, the keys end
    barrier_wait(full_q, 0);
    barrier_wait(full_k, 0);
    if (CAP && behind && n == 1) zero_behind<DP, BN, WGS>(sk, behind);
    turn_wait(mine);
    wgmma_fence();
    scores<DP, BM, BN>(s, q, sk);
    wgmma_commit();
    turn_give(next);
    wgmma_wait<0>();
    hold(s);
    if (leader) barrier_arrive(empty_k);
    softmax(key_at(0));
    pack_rows<BN>(p, s);
    for (int i = 0; i + 1 < n; i++) {
        int st = i & 1, nx = st ^ 1;
        barrier_wait(full_k + 8 * nx, (i + 1) / 2 & 1);
        barrier_wait(full_v + 8 * st, i / 2 & 1);
        if (CAP && behind && i + 2 == n) zero_behind<DP, BN, WGS>(sk + nx * TILE, behind);
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
        softmax(key_at(i + 1));
        wgmma_wait<0>();
        hold(acc);
        if (leader) barrier_arrive(empty_v + 8 * st);
#pragma unroll
        for (int j = 0; j < DP / 2; j++) acc[j] *= shrink[j >> 1 & 1];
        pack_rows<BN>(p, s);
    }
    barrier_wait(full_v + 8 * (n - 1 & 1), (n - 1) / 2 & 1);
    if (behind) zero_behind<DP, BN, WGS>(sv + (n - 1 & 1) * TILE, behind);
    hold(acc);
    turn_wait(mine);
    wgmma_fence();
    weighted<DP, BN>(acc, p, sv + (n - 1 & 1) * TILE);
    wgmma_commit();
    if (wg < WGS - 1) turn_give(next);
    wgmma_wait<0>();
    hold(acc);
    auto some = [&](int h) { return View::ALL || sum[h] != 0; };   // the row sees a key
#pragma unroll
    for (int h = 0; h < 2; h++) {
        sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
        sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
        if (lane % 4 == 0 && row + 8 * h < M) lse[(int64_t)head * M + row + 8 * h] = some(h) ? max_[h] * top_scale + logf(sum[h]) : 0.f;
    }
    store_head<DP>(o + head * D, acc, some(0) ? 1.f / sum[0] : 0.f, some(1) ? 1.f / sum[1] : 0.f, row, M, D, ldo);
#endif
}
