// attention_single_backward.cu: dQ, dK, dV as attention_backward.cu, in fp32 without tensor cores; it takes
// attention_single_forward's output and attention_delta's sums. No atomics, so a run repeats bit for bit.
// Layout: as there, in fp32; part, which nothing needs here, is 0.
// One block of 8 R threads owns R keys (dK, dV) or R query rows (dQ) and walks the others in tiles of R; eight threads own a row.
// Grouped heads (H > K): a block of keys adds its query heads up in order. Accumulation fp32, no approximate functions.
// The capped forms are those of attention_backward.cu.
// FLOPs: 14 D for every visible pair. Goal: none of speed, as attention_single_forward.cu.
#include "attention_single.cuh"

template <int DP, int R, bool CAP, bool PREFIX = false>
__device__ void backward_kv(float *dk, float *dv, const float *q, const float *k, const float *v, const float *d_o, const float *lse, const float *delta,
                            const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window, float cap, const int *prefix = nullptr) {
    extern __shared__ __align__(16) float tiles[];
    constexpr int TILE = Rows<DP>::floats(R);
    float *sk = tiles, *sv = sk + TILE, *sq = sv + TILE, *sd = sq + TILE, *sp = sd + TILE, *ss = sp + R * (R + 1);
    int key0 = blockIdx.x * R, kv = blockIdx.y, r = threadIdx.x / 8, t = threadIdx.x & 7, key = key0 + r;
    load_rows<DP, R>(sk, k + kv * D, key0, M, D, ldk);
    load_rows<DP, R>(sv, v + kv * D, key0, M, D, ldk);
    int last = PREFIX ? last_branch(cu, prefix, B, min(key, M - 1), M) : last_query(cu, B, min(key, M - 1), M, window);
    int end = PREFIX ? last_of_tile(cu, prefix, B, key0, min(key0 + R, M) - 1, M) : last_query(cu, B, min(key0 + R, M) - 1, M, window);
    float gk[(DP + 31) / 32 * 4], gv[(DP + 31) / 32 * 4];
#pragma unroll
    for (int i = 0; i < (DP + 31) / 32 * 4; i++) gk[i] = gv[i] = 0.f;
    for (int head = kv * (H / K); head < (kv + 1) * (H / K); head++)
        for (int row0 = key0; row0 <= end; row0 += R) {
            __syncthreads();
            load_rows<DP, R>(sq, q + head * D, row0, M, D, ldq);
            load_rows<DP, R>(sd, d_o + head * D, row0, M, D, ldo);
            __syncthreads();
            float p[R / 8], dp[R / 8];
            dots<DP, R>(p, sk + r * Rows<DP>::LD, sq);
            dots<DP, R>(dp, sv + r * Rows<DP>::LD, sd);
#pragma unroll
            for (int j = 0; j < R / 8; j++) {
                int row = row0 + t + 8 * j;
                bool seen = key < M && row >= key && row <= last;
                int64_t at = (int64_t)head * M + min(row, M - 1);
                float c = CAP ? tanhf(p[j] * scale / cap) : 0.f, x = seen ? expf((CAP ? c * cap : p[j] * scale) - lse[at]) : 0.f;
                sp[r * (R + 1) + t + 8 * j] = x;
                float ds = seen ? x * (dp[j] - delta[at]) : 0.f;
                ss[r * (R + 1) + t + 8 * j] = CAP ? ds * fmaf(-c, c, 1.f) : ds;
            }
            __syncwarp();
            weigh<DP, R>(gv, sp + r * (R + 1), sd);
            weigh<DP, R>(gk, ss + r * (R + 1), sq);
        }
    if (key >= M) return;
    store_row<DP>(dk + (int64_t)key * ldk + kv * D, gk, scale, D);
    store_row<DP>(dv + (int64_t)key * ldk + kv * D, gv, 1.f, D);
}

template <int DP, int R, bool CAP, bool PREFIX = false>
__device__ void backward_q(float *dq, const float *q, const float *k, const float *v, const float *d_o, const float *lse, const float *delta,
                           const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window, float cap, const int *prefix = nullptr) {
    extern __shared__ __align__(16) float tiles[];
    constexpr int TILE = Rows<DP>::floats(R);
    float *sq = tiles, *sd = sq + TILE, *sk = sd + TILE, *sv = sk + TILE, *ss = sv + TILE;
    int tile = gridDim.x - 1 - blockIdx.x, head = blockIdx.y, row0 = tile * R;
    int r = threadIdx.x / 8, t = threadIdx.x & 7, row = row0 + r;
    k += head / (H / K) * D, v += head / (H / K) * D;
    load_rows<DP, R>(sq, q + head * D, row0, M, D, ldq);
    load_rows<DP, R>(sd, d_o + head * D, row0, M, D, ldo);
    int lo = first_key(cu, B, row0, window), from = first_key(cu, B, min(row, M - 1), window), hi = min(row0 + R, M);
    Branch mine{0, 1 << 30, 1 << 30}, top_row = mine;
    if constexpr (PREFIX) {
        mine = branch_of(cu, prefix, B, min(row, M - 1)), top_row = branch_of(cu, prefix, B, row0);
        lo = top_row.first, from = mine.first;
    }
    int64_t at = (int64_t)head * M + min(row, M - 1);
    float l = lse[at], d = delta[at], acc[(DP + 31) / 32 * 4];
#pragma unroll
    for (int i = 0; i < (DP + 31) / 32 * 4; i++) acc[i] = 0.f;
    for (int key0 = lo / R * R; key0 < hi; key0 += R) {
        if (PREFIX && key0 >= top_row.hole0 && key0 + R <= top_row.hole1) continue;   // no row of the tile sees these keys
        __syncthreads();
        load_rows<DP, R>(sk, k, key0, M, D, ldk);
        load_rows<DP, R>(sv, v, key0, M, D, ldk);
        __syncthreads();
        float p[R / 8], dp[R / 8];
        dots<DP, R>(p, sq + r * Rows<DP>::LD, sk);
        dots<DP, R>(dp, sd + r * Rows<DP>::LD, sv);
#pragma unroll
        for (int j = 0; j < R / 8; j++) {
            int key = key0 + t + 8 * j;
            bool seen = row < M && key <= row && key >= from && !(PREFIX && key >= mine.hole0 && key < mine.hole1);
            float c = CAP ? tanhf(p[j] * scale / cap) : 0.f, x = seen ? expf((CAP ? c * cap : p[j] * scale) - l) * (dp[j] - d) : 0.f;
            ss[r * (R + 1) + t + 8 * j] = CAP ? x * fmaf(-c, c, 1.f) : x;
        }
        __syncwarp();
        weigh<DP, R>(acc, ss + r * (R + 1), sk);
    }
    if (row < M) store_row<DP>(dq + (int64_t)row * ldq + head * D, acc, scale, D);
}

// attention_single_backward_kv_DP: grid (M / R rounded up, K); attention_single_backward_q_DP: grid (M / R rounded up, H); block 8 R,
// dynamic shared memory 4 (4 R (DP + 4) + 2 R (R + 1)) bytes.
#define BACKWARD(DP, R) \
    extern "C" __global__ void __launch_bounds__(8 * R, 1) attention_single_backward_kv_##DP(float *dk, float *dv, const float *part, const float *q, const float *k, const float *v, \
        const float *d_o, const float *lse, const float *delta, const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window) { \
        backward_kv<DP, R, false>(dk, dv, q, k, v, d_o, lse, delta, cu, M, B, H, K, D, ldq, ldk, ldo, scale, window, 0.f); \
    } \
    extern "C" __global__ void __launch_bounds__(8 * R, 1) attention_single_backward_q_##DP(float *dq, const float *q, const float *k, const float *v, \
        const float *d_o, const float *lse, const float *delta, const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window) { \
        backward_q<DP, R, false>(dq, q, k, v, d_o, lse, delta, cu, M, B, H, K, D, ldq, ldk, ldo, scale, window, 0.f); \
    } \
    extern "C" __global__ void __launch_bounds__(8 * R, 1) attention_single_backward_kv_capped_##DP(float *dk, float *dv, const float *part, const float *q, const float *k, const float *v, \
        const float *d_o, const float *lse, const float *delta, const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window, float cap) { \
        backward_kv<DP, R, true>(dk, dv, q, k, v, d_o, lse, delta, cu, M, B, H, K, D, ldq, ldk, ldo, scale, window, cap); \
    } \
    extern "C" __global__ void __launch_bounds__(8 * R, 1) attention_single_backward_q_capped_##DP(float *dq, const float *q, const float *k, const float *v, \
        const float *d_o, const float *lse, const float *delta, const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window, float cap) { \
        backward_q<DP, R, true>(dq, q, k, v, d_o, lse, delta, cu, M, B, H, K, D, ldq, ldk, ldo, scale, window, cap); \
    }
// The prefixed forms are those of attention_forward.cu.
#define PREFIXED(DP, R) \
    extern "C" __global__ void __launch_bounds__(8 * R, 1) attention_single_backward_kv_prefixed_##DP(float *dk, float *dv, const float *part, const float *q, const float *k, const float *v, \
        const float *d_o, const float *lse, const float *delta, const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, const int *prefix) { \
        backward_kv<DP, R, false, true>(dk, dv, q, k, v, d_o, lse, delta, cu, M, B, H, K, D, ldq, ldk, ldo, scale, 0, 0.f, prefix); \
    } \
    extern "C" __global__ void __launch_bounds__(8 * R, 1) attention_single_backward_q_prefixed_##DP(float *dq, const float *q, const float *k, const float *v, \
        const float *d_o, const float *lse, const float *delta, const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, const int *prefix) { \
        backward_q<DP, R, false, true>(dq, q, k, v, d_o, lse, delta, cu, M, B, H, K, D, ldq, ldk, ldo, scale, 0, 0.f, prefix); \
    }
BACKWARD(32, 32)
BACKWARD(64, 32)
BACKWARD(80, 32)
BACKWARD(96, 32)
BACKWARD(128, 32)
BACKWARD(256, 16)
BACKWARD(512, 8)
PREFIXED(32, 32)
PREFIXED(64, 32)
PREFIXED(80, 32)
PREFIXED(96, 32)
PREFIXED(128, 32)
PREFIXED(256, 16)
