// attention_backward.cu: dQ, dK, dV of attention_forward.cu from its output and logsumexp; no atomics, so a run repeats bit for bit.
// With P = exp(scale Q K^T - lse), dP = dO V^T, delta = rowsum(dO o): dS = P (dP - delta), dV = P^T dO, dK = scale dS^T Q,
// dQ = scale dS K. P and dP are computed twice: once by key tile (dK, dV: P^T stays in registers as the next GEMM's
// operand), once by query tile (dQ).
// The capped forms (attention_forward.cu) give dS the factor 1 - tanh^2 besides.
// Layout: as forward; d_o [M,H,D] rows ldo apart like o; delta [H,M] fp32; dq rows ldq, dk and dv rows ldk apart.
// Grouped heads (H > K): a block adds its query heads up in order. With few blocks gridDim.z divides them; then fp32 parts
// [z][2][M,K,D] (dk, dv) are written and attention_combine adds them in order.
//   keys' kernel: a block owns BN keys of one key head (K, V in shared memory, dK, dV fp32 in registers) and walks the tiles of BQ
//   queries that see them, of all its query heads; queries' kernel: it owns 64 MT query rows (dQ in registers) and walks the tiles of
//   keys that they see. Scores of a tile never leave the registers. mma.sync: lane l holds rows l/4 and l/4 + 8 of each 16, and of
//   each 8 columns 2 (l%4) and the next.
// Tensor cores by mma.sync (compute capability 8.0 and later), cp.async, accumulation fp32.
// FLOPs: 14 D for every visible pair. Goal: 85 % of FlashAttention-2's rate (10 D a pair counted).
// Heads above 256 columns: attention_backward_wide.cu.
// Elements: bf16, f16.
#include "attention_backward.cuh"

template <int ROWS, int THREADS>
__device__ __forceinline__ void load_floats(uint32_t dst, const float *src, int row, int M) {
    if (threadIdx.x < ROWS) {
        bool valid = row + (int)threadIdx.x < M;
        int n = valid ? 4 : 0;
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst + threadIdx.x * 4), "l"(src + (valid ? row + threadIdx.x : 0)), "r"(n));
    }
}

// Keys by warp row, queries by column. WN warps divide BN = 16 MT WN keys, DS of them the columns of dK and dV.
template <int DP, int MT, int WN, int DS, int BQ, int STAGES, bool CAP, bool PREFIX = false>
__device__ void backward_kv(elem *dk, elem *dv, float *part, const elem *q, const elem *k, const elem *v, const elem *d_o, const float *lse, const float *delta,
                            const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window, float cap, const int *prefix = nullptr) {
    constexpr int BN = 16 * MT * WN, LD = Tile<DP>::LD, THREADS = 32 * WN * DS, NT = BQ / 8, W = DP / DS;
    constexpr int STAGE = 2 * Tile<DP>::bytes(BQ) + 8 * BQ;
    extern __shared__ __align__(128) uint8_t shared[];
    uint32_t sk = smem(shared), sv = sk + Tile<DP>::bytes(BN), stages = sv + Tile<DP>::bytes(BN);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, wrow = warp % WN * 16 * MT, col = warp / WN * W;
    int key0 = blockIdx.x * BN, kv = blockIdx.y, G = H / K / gridDim.z, head0 = kv * (H / K) + blockIdx.z * G;
    k += kv * D, v += kv * D;
    load_tile<DP, BN, THREADS>(sk, k, key0, M, D, ldk);
    load_tile<DP, BN, THREADS>(sv, v, key0, M, D, ldk);

    auto last_of = [&](int row) { return PREFIX ? last_branch(cu, prefix, B, row, M) : last_query(cu, B, row, M, window); };
    int last[MT][2];
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) last[i][h] = last_of(min(key0 + wrow + i * 16 + h * 8 + lane / 4, M - 1));
    int tile0 = key0 / BQ, tiles = (PREFIX ? last_of_tile(cu, prefix, B, key0, min(key0 + BN, M) - 1, M) : last_query(cu, B, min(key0 + BN, M) - 1, M, window)) / BQ + 1 - tile0;
    int all = PREFIX ? least_of_tile(cu, prefix, B, key0, min(key0 + BN, M) - 1, M) : last_query(cu, B, key0, M, window);   // queries up to here see every key of the tile that is not after them

    auto load = [&](int it) {
        int head = head0 + it / tiles, row = (tile0 + it % tiles) * BQ;
        uint32_t at = stages + it % STAGES * STAGE;
        load_tile<DP, BQ, THREADS>(at, q + head * D, row, M, D, ldq);
        load_tile<DP, BQ, THREADS>(at + Tile<DP>::bytes(BQ), d_o + head * D, row, M, D, ldo);
        load_floats<BQ, THREADS>(at + 2 * Tile<DP>::bytes(BQ), lse + (int64_t)head * M, row, M);
        load_floats<BQ, THREADS>(at + 2 * Tile<DP>::bytes(BQ) + 4 * BQ, delta + (int64_t)head * M, row, M);
    };
    float gk[MT][W / 8][4], gv[MT][W / 8][4];
    clear(gk);
    clear(gv);
    float scale2 = (CAP ? cap : scale) * LOG2E, factor = CAP ? cap_factor(scale, cap) : 0.f;
    int n = tiles * G;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < n) load(s);
        cp_commit();
    }
    for (int it = 0; it < n; it++) {
        if (STAGES == 1) {
            load(it);
            cp_commit();
            cp_wait<0>();
        } else {
            cp_wait<STAGES - 2>();
        }
        __syncthreads();
        if (STAGES > 1) {
            if (it + STAGES - 1 < n) load(it + STAGES - 1);
            cp_commit();
        }
        uint32_t sq = stages + it % STAGES * STAGE, sd = sq + Tile<DP>::bytes(BQ);
        const float *row_lse = (const float *)(shared + (sd + Tile<DP>::bytes(BQ) - sk)), *row_delta = row_lse + BQ;
        int row0 = (tile0 + it % tiles) * BQ;
        float p[MT][NT][4], dp[MT][NT][4];
        clear(p);
        mma_abt<DP, MT, NT>(p, sk + wrow * LD * 2, sq);
        bool edge = row0 < key0 + BN - 1 || row0 + BQ - 1 > all;
        if (CAP) {   // both GEMMs first: tanh then need not be kept
            clear(dp);
            mma_abt<DP, MT, NT>(dp, sv + wrow * LD * 2, sd);
#pragma unroll
            for (int j = 0; j < NT; j++) {
                float2 l = *(const float2 *)(row_lse + j * 8 + lane % 4 * 2), d = *(const float2 *)(row_delta + j * 8 + lane % 4 * 2);
                l.x *= LOG2E, l.y *= LOG2E;
#pragma unroll
                for (int i = 0; i < MT; i++) {
                    capped4(p[i][j][0], p[i][j][1], p[i][j][2], p[i][j][3], factor);
#pragma unroll
                    for (int c = 0; c < 4; c++) {
                        float t = p[i][j][c], x = exp2_fast(fmaf(t, scale2, c & 1 ? -l.y : -l.x));
                        if (edge) {
                            int row = row0 + j * 8 + lane % 4 * 2 + (c & 1), key = key0 + wrow + i * 16 + (c >> 1) * 8 + lane / 4;
                            if (row < key || row > last[i][c >> 1]) x = 0.f;
                        }
                        p[i][j][c] = x;
                        dp[i][j][c] = x * (dp[i][j][c] - (c & 1 ? d.y : d.x)) * fmaf(-t, t, 1.f);
                    }
                }
            }
            mma_pb<DP, W, MT, NT>(gv, p, sd + col * 2);
            mma_pb<DP, W, MT, NT>(gk, dp, sq + col * 2);
            if (STAGES == 1) __syncthreads();
            continue;
        }
#pragma unroll
        for (int j = 0; j < NT; j++) {
            float2 l = *(const float2 *)(row_lse + j * 8 + lane % 4 * 2);
            l.x *= LOG2E, l.y *= LOG2E;
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    float x = exp2_fast(fmaf(p[i][j][c], scale2, c & 1 ? -l.y : -l.x));
                    if (edge) {
                        int row = row0 + j * 8 + lane % 4 * 2 + (c & 1), key = key0 + wrow + i * 16 + (c >> 1) * 8 + lane / 4;
                        if (row < key || row > last[i][c >> 1]) x = 0.f;
                    }
                    p[i][j][c] = x;
                }
        }
        mma_pb<DP, W, MT, NT>(gv, p, sd + col * 2);
        clear(dp);
        mma_abt<DP, MT, NT>(dp, sv + wrow * LD * 2, sd);
#pragma unroll
        for (int j = 0; j < NT; j++) {
            float2 l = *(const float2 *)(row_delta + j * 8 + lane % 4 * 2);
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int c = 0; c < 4; c++) p[i][j][c] *= dp[i][j][c] - (c & 1 ? l.y : l.x);
        }
        mma_pb<DP, W, MT, NT>(gk, p, sq + col * 2);
        if (STAGES == 1) __syncthreads();
    }
    cp_wait<0>();
    store_keys<W, MT>(dk, dv, part, gk, gv, key0 + wrow, kv, col, M, K, D, ldk, scale);
}

// dk, dv <- sum over z of part[z]. Grid-stride over M K D / 2 pairs.
extern "C" __global__ void __launch_bounds__(256) attention_combine(elem *dk, elem *dv, const float *part, int splits, int M, int K, int D, int ldk) {
    int64_t size = (int64_t)M * K * D;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 2; i < size; i += (int64_t)gridDim.x * blockDim.x * 2) {
        float2 a = {0.f, 0.f}, b = {0.f, 0.f};
        for (int z = 0; z < splits; z++) {
            float2 x = *(const float2 *)(part + z * 2 * size + i), y = *(const float2 *)(part + (z * 2 + 1) * size + i);
            a.x += x.x, a.y += x.y, b.x += y.x, b.y += y.y;
        }
        int64_t at = i / (K * D) * ldk + i % (K * D);
        store2(dk + at, a.x, a.y);
        store2(dv + at, b.x, b.y);
    }
}

template <int DP, int MT, int BN, int STAGES, bool CAP, bool PREFIX = false>
__device__ void backward_q(elem *dq, const elem *q, const elem *k, const elem *v, const elem *d_o, const float *lse, const float *delta,
                           const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window, float cap, const int *prefix = nullptr) {
    constexpr int BM = 64 * MT, LD = Tile<DP>::LD, THREADS = 128, NT = BN / 8, STAGE = 2 * Tile<DP>::bytes(BN);
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ int first[BM];
    __shared__ int hole[2][PREFIX ? BM : 1];
    uint32_t sq = smem(shared), sd = sq + Tile<DP>::bytes(BM), stages = sd + Tile<DP>::bytes(BM);
    int tile = gridDim.x - 1 - blockIdx.x, head = blockIdx.y, row0 = tile * BM;
    k += head / (H / K) * D, v += head / (H / K) * D;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, wrow = warp * 16 * MT;
    for (int i = threadIdx.x; i < BM; i += THREADS) {
        if constexpr (PREFIX) {
            Branch b = branch_of(cu, prefix, B, min(row0 + i, M - 1));
            first[i] = b.first, hole[0][i] = b.hole0, hole[1][i] = b.hole1;
        } else {
            first[i] = first_key(cu, B, min(row0 + i, M - 1), window);
        }
    }
    load_tile<DP, BM, THREADS>(sq, q + head * D, row0, M, D, ldq);
    load_tile<DP, BM, THREADS>(sd, d_o + head * D, row0, M, D, ldo);
    __syncthreads();
    int n0 = first[0] / BN, n = (min(row0 + BM, M) + BN - 1) / BN - n0, all = first[BM - 1];
    Walk walk(Branch{0, 1 << 30, 1 << 30}, BN, 0);
    Clean clean(Branch{1 << 30, 0, 0}, Branch{0, 0, 0});
    if constexpr (PREFIX) {
        walk = Walk(Branch{first[0], hole[0][0], hole[1][0]}, BN, min(row0 + BM, M));
        clean = Clean(Branch{first[0], hole[0][0], hole[1][0]}, Branch{first[BM - 1], hole[0][BM - 1], hole[1][BM - 1]});
        n = walk.n, all = hole[1][BM - 1] == 1 << 30 ? first[BM - 1] : hole[1][BM - 1];
    }
    auto tile_at = [&](int it) { return PREFIX ? walk.tile(it) : n0 + it; };
    auto load = [&](int it) {
        uint32_t at = stages + it % STAGES * STAGE;
        load_tile<DP, BN, THREADS>(at, k, tile_at(it) * BN, M, D, ldk);
        load_tile<DP, BN, THREADS>(at + Tile<DP>::bytes(BN), v, tile_at(it) * BN, M, D, ldk);
    };
    float lse2[MT][2], dl[MT][2];
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int64_t at = (int64_t)head * M + min(row0 + wrow + i * 16 + h * 8 + lane / 4, M - 1);
            lse2[i][h] = lse[at] * LOG2E;
            dl[i][h] = delta[at];
        }
    float acc[MT][DP / 8][4];
    clear(acc);
    float scale2 = (CAP ? cap : scale) * LOG2E, factor = CAP ? cap_factor(scale, cap) : 0.f;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < n) load(s);
        cp_commit();
    }
    for (int it = 0; it < n; it++) {
        if (STAGES == 1) {
            load(it);
            cp_commit();
            cp_wait<0>();
        } else {
            cp_wait<STAGES - 2>();
        }
        __syncthreads();
        if (STAGES > 1) {
            if (it + STAGES - 1 < n) load(it + STAGES - 1);
            cp_commit();
        }
        uint32_t sk = stages + it % STAGES * STAGE, sv = sk + Tile<DP>::bytes(BN);
        int key0 = tile_at(it) * BN;
        float p[MT][NT][4], dp[MT][NT][4];
        clear(p);
        mma_abt<DP, MT, NT>(p, sq + wrow * LD * 2, sk);
        clear(dp);
        mma_abt<DP, MT, NT>(dp, sd + wrow * LD * 2, sv);
        bool edge = key0 + BN - 1 > row0 + wrow || (key0 < all && !(PREFIX && clean.holds(key0, BN)));
        if (CAP) {
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < NT; j++) capped4(p[i][j][0], p[i][j][1], p[i][j][2], p[i][j][3], factor);
        }
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                int local = wrow + i * 16 + (c >> 1) * 8 + lane / 4, row = row0 + local, from = edge ? first[local] : 0;
                int hole0 = PREFIX && edge ? hole[0][PREFIX ? local : 0] : 0, hole1 = PREFIX && edge ? hole[1][PREFIX ? local : 0] : 0;
#pragma unroll
                for (int j = 0; j < NT; j++) {
                    float t = p[i][j][c], x = exp2_fast(fmaf(t, scale2, -lse2[i][c >> 1]));
                    if (CAP) x *= fmaf(-t, t, 1.f);
                    int key = key0 + j * 8 + lane % 4 * 2 + (c & 1);
                    if (edge && (key > row || key < from || (PREFIX && key >= hole0 && key < hole1))) x = 0.f;
                    p[i][j][c] = x * (dp[i][j][c] - dl[i][c >> 1]);
                }
            }
        mma_pb<DP, DP, MT, NT>(acc, p, sk);
        if (STAGES == 1) __syncthreads();
    }
    cp_wait<0>();
    float f[MT][2];
#pragma unroll
    for (int i = 0; i < MT; i++) f[i][0] = f[i][1] = scale;
    store_rows<DP, MT>(dq + head * D, acc, f, row0 + wrow, M, 0, D, ldq);
}

// attention_backward_kv_DP: grid (M / keys of a tile rounded up, K, splits), splits divides H / K, block 32 WN DS; part may be 0
// when splits is 1. attention_backward_q_DP: grid (M / (64 MT) rounded up, H), block 128.
#define BACKWARD(DP, MT, WN, DS, BQ, STAGES, QMT, QBN, QSTAGES) \
    extern "C" __global__ void __launch_bounds__(32 * WN * DS) attention_backward_kv_##DP(elem *dk, elem *dv, float *part, const elem *q, const elem *k, const elem *v, \
        const elem *d_o, const float *lse, const float *delta, const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window) { \
        backward_kv<DP, MT, WN, DS, BQ, STAGES, false>(dk, dv, part, q, k, v, d_o, lse, delta, cu, M, B, H, K, D, ldq, ldk, ldo, scale, window, 0.f); \
    } \
    extern "C" __global__ void __launch_bounds__(32 * WN * DS) attention_backward_kv_capped_##DP(elem *dk, elem *dv, float *part, const elem *q, const elem *k, const elem *v, \
        const elem *d_o, const float *lse, const float *delta, const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window, float cap) { \
        backward_kv<DP, MT, WN, DS, BQ, STAGES, true>(dk, dv, part, q, k, v, d_o, lse, delta, cu, M, B, H, K, D, ldq, ldk, ldo, scale, window, cap); \
    } \
    extern "C" __global__ void __launch_bounds__(128) attention_backward_q_capped_##DP(elem *dq, const elem *q, const elem *k, const elem *v, \
        const elem *d_o, const float *lse, const float *delta, const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window, float cap) { \
        backward_q<DP, QMT, QBN, QSTAGES, true>(dq, q, k, v, d_o, lse, delta, cu, M, B, H, K, D, ldq, ldk, ldo, scale, window, cap); \
    } \
    extern "C" __global__ void __launch_bounds__(128) attention_backward_q_##DP(elem *dq, const elem *q, const elem *k, const elem *v, \
        const elem *d_o, const float *lse, const float *delta, const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window) { \
        backward_q<DP, QMT, QBN, QSTAGES, false>(dq, q, k, v, d_o, lse, delta, cu, M, B, H, K, D, ldq, ldk, ldo, scale, window, 0.f); \
    }
// The prefixed forms are those of attention_forward.cu.
#define PREFIXED(DP, MT, WN, DS, BQ, STAGES, QMT, QBN, QSTAGES) \
    extern "C" __global__ void __launch_bounds__(32 * WN * DS) attention_backward_kv_prefixed_##DP(elem *dk, elem *dv, float *part, const elem *q, const elem *k, const elem *v, \
        const elem *d_o, const float *lse, const float *delta, const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, const int *prefix) { \
        backward_kv<DP, MT, WN, DS, BQ, STAGES, false, true>(dk, dv, part, q, k, v, d_o, lse, delta, cu, M, B, H, K, D, ldq, ldk, ldo, scale, 0, 0.f, prefix); \
    } \
    extern "C" __global__ void __launch_bounds__(128) attention_backward_q_prefixed_##DP(elem *dq, const elem *q, const elem *k, const elem *v, \
        const elem *d_o, const float *lse, const float *delta, const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, const int *prefix) { \
        backward_q<DP, QMT, QBN, QSTAGES, false, true>(dq, q, k, v, d_o, lse, delta, cu, M, B, H, K, D, ldq, ldk, ldo, scale, 0, 0.f, prefix); \
    }
BACKWARD(32, 2, 4, 1, 32, 2, 2, 64, 2)
BACKWARD(64, 2, 4, 1, 32, 2, 2, 32, 2)
BACKWARD(80, 1, 4, 1, 64, 2, 2, 32, 2)
BACKWARD(96, 1, 4, 1, 64, 2, 2, 32, 1)
BACKWARD(128, 1, 4, 1, 32, 2, 2, 32, 1)
BACKWARD(256, 1, 2, 2, 32, 1, 1, 16, 1)
PREFIXED(32, 2, 4, 1, 32, 2, 2, 64, 2)
PREFIXED(64, 1, 4, 1, 32, 2, 2, 32, 2)
PREFIXED(80, 1, 4, 1, 64, 2, 2, 32, 2)
PREFIXED(96, 1, 4, 1, 64, 2, 2, 32, 1)
PREFIXED(128, 1, 4, 1, 32, 2, 1, 32, 1)
PREFIXED(256, 1, 2, 2, 32, 1, 1, 16, 1)
