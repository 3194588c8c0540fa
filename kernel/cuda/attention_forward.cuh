// attention_forward.cuh: the forward pass of attention_forward.cu and attention_prompt.cu, which differ in what a row sees (a View of
// attention.cuh).
#pragma once
#include "attention.cuh"

// DS groups of four warps have the same rows, and of the output's columns a part each: as many sums as a thread's registers hold. Each
// group computes all scores.
template <int DP, int MT, int BN, bool CAP, class View, int DS = 1>
__device__ void forward(elem *o, float *lse, const elem *q, const elem *k, const elem *v, const View view,
                        int M, int H, int K, int D, int ldq, int ldk, int ldo, float scale, float cap) {
    constexpr int BM = 64 * MT, LD = Tile<DP>::LD, THREADS = 128 * DS, NT = BN / 8, W = DP / DS;
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ int first[BM];
    __shared__ int hole[2][View::PREFIXES ? BM : 1];
    uint32_t sq = smem(shared), sk = sq + Tile<DP>::bytes(BM), sv = sk + Tile<DP>::bytes(BN);
    int tile = gridDim.x - 1 - blockIdx.x, head = blockIdx.y, row0 = tile * BM;   // long rows first: the short ones fill the end
    q += head * D, o += head * D;
    k += head / (H / K) * D, v += head / (H / K) * D;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, wrow = (DS == 1 ? warp : warp % 4) * 16 * MT, col = DS == 1 ? 0 : warp / 4 * W;
    if (view.none(row0, BM)) return zero_tile<THREADS>(o, lse + (int64_t)head * M, row0, BM, M, D, ldo);
    for (int i = threadIdx.x; i < BM; i += THREADS) {
        if constexpr (View::PREFIXES) {
            Branch b = view.branch(row0 + i);
            first[i] = b.first, hole[0][i] = b.hole0, hole[1][i] = b.hole1;
        } else {
            first[i] = view.first(row0 + i);
        }
    }
    load_tile<DP, BM, THREADS>(sq, q, row0, M, D, ldq);
    __syncthreads();
    int hi = view.end(row0, BM), begin = view.begin(row0, BN);   // first[] rises with the row
    load_tile<DP, BN, THREADS>(sk, k, begin, view.rows(hi), D, ldk);
    cp_commit();

    float acc[MT][W / 8][4], max_[MT][2], sum[MT][2];
#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int d = 0; d < W / 8; d++) acc[i][d][0] = acc[i][d][1] = acc[i][d][2] = acc[i][d][3] = 0.f;
        max_[i][0] = max_[i][1] = -INF;
        sum[i][0] = sum[i][1] = 0.f;
    }
    float top = CAP ? cap : scale, scale2 = top * 1.4426950408889634f, factor = CAP ? cap_factor(scale, cap) : 0.f;   // exponentials to the base 2
    int all = view.all(first[0], first[BM - 1]);                      // keys from here on are visible to every row, up to the diagonal
    Walk walk(Branch{begin, 1 << 30, 1 << 30}, BN, begin);
    Clean clean(Branch{1 << 30, 0, 0}, Branch{0, 0, 0});
    if constexpr (View::PREFIXES) {
        all = view.own(row0 + BM - 1);
        walk = Walk(Branch{first[0], hole[0][0], hole[1][0]}, BN, hi);
        clean = Clean(Branch{first[0], hole[0][0], hole[1][0]}, Branch{first[BM - 1], hole[0][BM - 1], hole[1][BM - 1]});
    }
    int it = 0;   // of the walk
    auto after = [&](int key0) { return !View::PREFIXES ? key0 + BN : it + 1 < walk.n ? walk.tile(it + 1) * BN : hi; };
    for (int key0 = begin; key0 < hi; key0 = after(key0), it++) {
        load_tile<DP, BN, THREADS>(sv, v, key0, view.rows(hi), D, ldk);
        cp_commit();
        cp_wait<1>();   // q and this k
        __syncthreads();
        float s[MT][NT][4];
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int j = 0; j < NT; j++) s[i][j][0] = s[i][j][1] = s[i][j][2] = s[i][j][3] = 0.f;
        mma_abt<DP, MT, NT>(s, sq + wrow * LD * 2, sk);
        __syncthreads();   // every warp is done with k
        if (after(key0) < hi) load_tile<DP, BN, THREADS>(sk, k, after(key0), view.rows(hi), D, ldk);
        cp_commit();
        if (CAP) {
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < NT; j++) capped4<DP != 128>(s[i][j][0], s[i][j][1], s[i][j][2], s[i][j][3], factor);
        }
        if (key0 + BN - 1 > view.last(row0 + wrow) || (key0 < all && !(View::PREFIXES && clean.holds(key0, BN)))) {
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    int local = wrow + i * 16 + h * 8 + lane / 4, last = view.last(row0 + local), from = first[local];
                    int hole0 = View::PREFIXES ? hole[0][View::PREFIXES ? local : 0] : 0, hole1 = View::PREFIXES ? hole[1][View::PREFIXES ? local : 0] : 0;
#pragma unroll
                    for (int j = 0; j < NT; j++)
#pragma unroll
                        for (int e = 0; e < 2; e++) {
                            int key = key0 + j * 8 + lane % 4 * 2 + e;
                            if (key > last || key < from || (View::PREFIXES && key >= hole0 && key < hole1)) s[i][j][2 * h + e] = -INF;
                        }
                }
        }
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float m = max_[i][h];
#pragma unroll
                for (int j = 0; j < NT; j++) m = fmaxf(m, fmaxf(s[i][j][2 * h], s[i][j][2 * h + 1]));
                m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
                m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
                float base = m == -INF ? 0.f : m * scale2, shrink = exp2_fast(max_[i][h] * scale2 - base);   // nothing seen yet: 0
                max_[i][h] = m;
                float t = 0;
#pragma unroll
                for (int j = 0; j < NT; j++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        float p = exp2_fast(fmaf(s[i][j][2 * h + e], scale2, -base));
                        s[i][j][2 * h + e] = p;
                        t += p;
                    }
                sum[i][h] = fmaf(sum[i][h], shrink, t);   // this thread's keys; the four threads of a row are added at the end
#pragma unroll
                for (int d = 0; d < W / 8; d++) {
                    acc[i][d][2 * h] *= shrink;
                    acc[i][d][2 * h + 1] *= shrink;
                }
            }
        cp_wait<1>();   // this v
        __syncthreads();
        mma_pb<DP, W, MT, NT>(acc, s, sv + col * 2);
        __syncthreads();   // every warp is done with v
    }
    cp_wait<0>();
    float inv[MT][2];
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float t = sum[i][h];
            t += __shfl_xor_sync(~0u, t, 1);
            t += __shfl_xor_sync(~0u, t, 2);
            inv[i][h] = View::ALL || t != 0 ? 1.f / t : 0.f;
            int row = row0 + wrow + i * 16 + h * 8 + lane / 4;
            if (col == 0 && lane % 4 == 0 && row < M) lse[(int64_t)head * M + row] = View::ALL || t != 0 ? max_[i][h] * top + logf(t) : 0.f;
        }
    store_rows<W, MT>(o, acc, inv, row0 + wrow, M, col, D, ldo);
}
