// attention_single_forward.cu: the operation of attention_forward.cu in fp32 without tensor cores, for plans in fp32 and TF32.
// Layout: as there, q, k, v, o in fp32; addresses and rows multiples of 16 bytes, which D, a multiple of 8, gives.
// One block of 8 R threads: R query rows of one head; it walks the keys in tiles of R. Eight threads own a row: each takes
// every eighth key's score, and every eighth group of four columns of the output. Accumulation fp32, no approximate functions.
// The capped forms are those of attention_forward.cu.
// FLOPs: 4 D for every visible pair. Goal: none of speed; it serves to compare with and to look for rounding.
#include "attention_single.cuh"

template <int DP, int R, bool CAP, bool PREFIX = false>
__device__ void forward(float *o, float *lse, const float *q, const float *k, const float *v, const int *cu,
                        int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window, float cap, const int *prefix = nullptr) {
    extern __shared__ __align__(16) float tiles[];
    float *sq = tiles, *sk = sq + Rows<DP>::floats(R), *sv = sk + Rows<DP>::floats(R), *sp = sv + Rows<DP>::floats(R);   // sp [R][R+1]
    int tile = gridDim.x - 1 - blockIdx.x, head = blockIdx.y, row0 = tile * R;
    int r = threadIdx.x / 8, t = threadIdx.x & 7, row = row0 + r;
    q += head * D, o += head * D;
    k += head / (H / K) * D, v += head / (H / K) * D;
    int lo = first_key(cu, B, row0, window), from = first_key(cu, B, min(row, M - 1), window), hi = min(row0 + R, M);
    Branch mine{0, 1 << 30, 1 << 30}, top_row = mine;
    if constexpr (PREFIX) {
        mine = branch_of(cu, prefix, B, min(row, M - 1)), top_row = branch_of(cu, prefix, B, row0);
        lo = top_row.first, from = mine.first;
    }
    load_rows<DP, R>(sq, q, row0, M, D, ldq);
    float acc[(DP + 31) / 32 * 4], top = -INF, sum = 0.f;
#pragma unroll
    for (int i = 0; i < (DP + 31) / 32 * 4; i++) acc[i] = 0.f;
    for (int key0 = lo / R * R; key0 < hi; key0 += R) {
        if (PREFIX && key0 >= top_row.hole0 && key0 + R <= top_row.hole1) continue;   // no row of the tile sees these keys
        __syncthreads();   // every thread is done with the tile before
        load_rows<DP, R>(sk, k, key0, M, D, ldk);
        load_rows<DP, R>(sv, v, key0, M, D, ldk);
        __syncthreads();
        float s[R / 8], m = top;
        dots<DP, R>(s, sq + r * Rows<DP>::LD, sk);
#pragma unroll
        for (int j = 0; j < R / 8; j++) {
            int key = key0 + t + 8 * j;
            bool hidden = PREFIX && key >= mine.hole0 && key < mine.hole1;
            if (CAP)
                s[j] = hidden || key > row || key < from ? -INF : cap * tanhf(s[j] * scale / cap);
            else
                s[j] = hidden || key > row || key < from ? -INF : s[j] * scale;
            m = fmaxf(m, s[j]);
        }
        m = row_max(m);
        float base = m == -INF ? 0.f : m, shrink = expf(top - base), part = 0.f;
        top = m;
#pragma unroll
        for (int j = 0; j < R / 8; j++) {
            float p = expf(s[j] - base);
            part += p;
            sp[r * (R + 1) + t + 8 * j] = p;
        }
        sum = sum * shrink + row_sum(part);
#pragma unroll
        for (int i = 0; i < (DP + 31) / 32 * 4; i++) acc[i] *= shrink;
        __syncwarp();   // a row's threads are of one warp
        weigh<DP, R>(acc, sp + r * (R + 1), sv);
    }
    if (row >= M) return;
    store_row<DP>(o + (int64_t)row * ldo, acc, 1.f / sum, D);
    if (t == 0) lse[(int64_t)head * M + row] = top + logf(sum);
}

// Grid (M / R rounded up, H), block 8 R, dynamic shared memory 4 (3 R (DP + 4) + R (R + 1)) bytes.
#define FORWARD(DP, R) \
    extern "C" __global__ void __launch_bounds__(8 * R, 1) attention_single_forward_##DP(float *o, float *lse, const float *q, const float *k, const float *v, const int *cu, \
        int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window) { \
        forward<DP, R, false>(o, lse, q, k, v, cu, M, B, H, K, D, ldq, ldk, ldo, scale, window, 0.f); \
    } \
    extern "C" __global__ void __launch_bounds__(8 * R, 1) attention_single_forward_capped_##DP(float *o, float *lse, const float *q, const float *k, const float *v, const int *cu, \
        int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window, float cap) { \
        forward<DP, R, true>(o, lse, q, k, v, cu, M, B, H, K, D, ldq, ldk, ldo, scale, window, cap); \
    }
// The prefixed forms are those of attention_forward.cu.
#define PREFIXED(DP, R) \
    extern "C" __global__ void __launch_bounds__(8 * R, 1) attention_single_forward_prefixed_##DP(float *o, float *lse, const float *q, const float *k, const float *v, const int *cu, \
        int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, const int *prefix) { \
        forward<DP, R, false, true>(o, lse, q, k, v, cu, M, B, H, K, D, ldq, ldk, ldo, scale, 0, 0.f, prefix); \
    }
FORWARD(32, 32)
FORWARD(64, 32)
FORWARD(80, 32)
FORWARD(96, 32)
FORWARD(128, 32)
FORWARD(256, 16)
FORWARD(512, 8)
PREFIXED(32, 32)
PREFIXED(64, 32)
PREFIXED(80, 32)
PREFIXED(96, 32)
PREFIXED(128, 32)
PREFIXED(256, 16)
