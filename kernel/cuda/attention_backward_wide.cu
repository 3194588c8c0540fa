// attention_backward_wide.cu: attention_backward.cu for heads of more than 256 columns, up to 512: the same results, arguments and grids.
// Layout: as there. D is a multiple of 8; columns from D to 512 are zero.
// A thread's registers hold the sums of 128 (dK, dV) or 256 (dQ) of the 512 columns, so four or two warps share 16 rows. Scores and dP
// take all columns and would be computed once for each of these warps; here each warp computes a part, one matrix of the two, and they
// exchange P and dS through shared memory:
//   keys' kernel, 32 keys by 16 queries, 8 warps:            queries' kernel, 32 queries by 16 keys, 4 warps:
//     warps 0, 1: S^T for queries 0-7    4, 5: dP^T for 0-7      0, 1: S      2, 3: dP
//     warps 2, 3: S^T for queries 8-15   6, 7: dP^T for 8-15   then each adds 256 columns of dQ for its 16 rows
//   then each adds 128 columns of dK and dV for its 16 keys
// The tiles take what compute capability 8.6, 8.9 and 12.0 give a block but 1.5 KB; what is exchanged lies in the padding of their rows
// and in 512 bytes behind them: a lane leaves for the same lane of other warps 16 bytes, four numbers' dP - delta, then their P and dS.
// Tensor cores by mma.sync (compute capability 8.0 and later), cp.async, accumulation fp32; no atomics, so a run repeats bit for bit.
// FLOPs: 14 D for every visible pair. Goal: three quarters of the rate at heads of 256; loads are not overlapped.
// Elements: bf16, f16.
#include "attention_backward.cuh"

constexpr int WIDE = 512, WIDE_LD = Tile<WIDE>::LD, TILE_ROWS = 96;

// The 16 bytes of a lane and one of four tiles of 16 x 8 numbers, from the beginning of shared memory.
__device__ __forceinline__ int exchanged(int tile, int lane) {
    int row = tile * 32 + lane;
    return row < TILE_ROWS ? (row * WIDE_LD + WIDE) * 2 : TILE_ROWS * WIDE_LD * 2 + lane * 16;
}

// acc[16 x 8] = A[16 rows] B[8 rows]^T over all columns, in two sums.
__device__ __forceinline__ void dots_16x8(float (&acc)[4], uint32_t a, uint32_t b) {
    int lane = threadIdx.x & 31;
    uint32_t pa = a + ((lane & 15) * WIDE_LD + (lane >> 4) * 8) * 2;
    uint32_t pb = b + ((lane & 7) * WIDE_LD + (lane >> 3) * 8) * 2;
    float odd[4] = {0.f, 0.f, 0.f, 0.f};
    acc[0] = acc[1] = acc[2] = acc[3] = 0.f;
#pragma unroll
    for (int k = 0; k < WIDE; k += 32) {
        uint32_t fa[2][4], fb[4];
        ldmatrix4(fa[0], pa + k * 2);
        ldmatrix4(fa[1], pa + (k + 16) * 2);
        ldmatrix4(fb, pb + k * 2);
        mma(acc, fa[0], fb[0], fb[1]);
        mma(odd, fa[1], fb[2], fb[3]);
    }
#pragma unroll
    for (int c = 0; c < 4; c++) acc[c] += odd[c];
}

// acc += P[16 x 16] B[16 rows, W columns from b on]; p: P as the operand of mma.
template <int W>
__device__ __forceinline__ void add_columns(float (&acc)[1][W / 8][4], const uint32_t (&p)[4], uint32_t b) {
    int lane = threadIdx.x & 31;
    uint32_t pb = b + (((lane & 7) + (lane >> 3 & 1) * 8) * WIDE_LD + (lane >> 4) * 8) * 2;
#pragma unroll
    for (int d = 0; d < W; d += 16) {
        uint32_t fb[4];
        ldmatrix4t(fb, pb + d * 2);
        mma(acc[0][d / 8], p, fb[0], fb[1]);
        mma(acc[0][d / 8 + 1], p, fb[2], fb[3]);
    }
}

template <bool CAP>
__device__ void backward_kv(elem *dk, elem *dv, float *part, const elem *q, const elem *k, const elem *v, const elem *d_o, const float *lse, const float *delta,
                            const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window, float cap) {
    constexpr int BN = 32, BQ = 16, THREADS = 256, W = WIDE / 4;
    extern __shared__ __align__(128) uint8_t shared[];
    uint32_t sk = smem(shared), sv = sk + Tile<WIDE>::bytes(BN), sq = sv + Tile<WIDE>::bytes(BN), sd = sq + Tile<WIDE>::bytes(BQ);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, wrow = warp % 2 * 16, share = warp / 2, half = share % 2, col = share * W;
    bool scores = share < 2;   // else dP
    int key0 = blockIdx.x * BN, kv = blockIdx.y, G = H / K / gridDim.z, head0 = kv * (H / K) + blockIdx.z * G;
    k += kv * D, v += kv * D;
    load_tile<WIDE, BN, THREADS>(sk, k, key0, M, D, ldk);
    load_tile<WIDE, BN, THREADS>(sv, v, key0, M, D, ldk);
    int last[2];
#pragma unroll
    for (int h = 0; h < 2; h++) last[h] = last_query(cu, B, min(key0 + wrow + h * 8 + lane / 4, M - 1), M, window);
    int tile0 = key0 / BQ, tiles = last_query(cu, B, min(key0 + BN, M) - 1, M, window) / BQ + 1 - tile0;
    int all = last_query(cu, B, key0, M, window);   // queries up to here see every key of the tile that is not after them
    float gk[1][W / 8][4], gv[1][W / 8][4];
    clear(gk);
    clear(gv);
    float scale2 = (CAP ? cap : scale) * LOG2E, factor = CAP ? cap_factor(scale, cap) : 0.f;
    uint8_t *mine = shared + exchanged(wrow / 8 + half, lane);
    for (int it = 0; it < tiles * G; it++) {
        int head = head0 + it / tiles, row0 = (tile0 + it % tiles) * BQ, row = row0 + half * 8 + lane % 4 * 2;
        load_tile<WIDE, BQ, THREADS>(sq, q + head * D, row0, M, D, ldq);
        load_tile<WIDE, BQ, THREADS>(sd, d_o + head * D, row0, M, D, ldo);
        cp_commit();
        const float *of = (scores ? lse : delta) + (int64_t)head * M;
        float stat[2] = {of[min(row, M - 1)], of[min(row + 1, M - 1)]};
        cp_wait<0>();
        __syncthreads();
        float p[4], slope[4];
        dots_16x8(p, (scores ? sk : sv) + wrow * WIDE_LD * 2, (scores ? sq : sd) + half * 8 * WIDE_LD * 2);
        if (scores) {
            if (CAP) capped4(p[0], p[1], p[2], p[3], factor);
#pragma unroll
            for (int c = 0; c < 4; c++) {
                int query = row + (c & 1), key = key0 + wrow + (c >> 1) * 8 + lane / 4;
                float t = p[c], x = exp2_fast(fmaf(t, scale2, -stat[c & 1] * LOG2E));
                if (query < key || query > last[c >> 1]) x = 0.f;
                p[c] = x;
                slope[c] = CAP ? x * fmaf(-t, t, 1.f) : x;
            }
        } else {
            *(float4 *)mine = make_float4(p[0] - stat[0], p[1] - stat[1], p[2] - stat[0], p[3] - stat[1]);
        }
        __syncthreads();
        if (scores) {
            float4 x = *(const float4 *)mine;
            *(uint4 *)mine = make_uint4(pack2(p[0], p[1]), pack2(slope[0] * x.x, slope[1] * x.y), pack2(p[2], p[3]), pack2(slope[2] * x.z, slope[3] * x.w));
        }
        __syncthreads();
        uint4 a = *(const uint4 *)(shared + exchanged(wrow / 8, lane)), b = *(const uint4 *)(shared + exchanged(wrow / 8 + 1, lane));
        uint32_t fp[4] = {a.x, a.z, b.x, b.z}, fs[4] = {a.y, a.w, b.y, b.w};
        add_columns<W>(gv, fp, sd + col * 2);
        add_columns<W>(gk, fs, sq + col * 2);
        __syncthreads();   // every warp is done with these queries
    }
    store_keys<W, 1>(dk, dv, part, gk, gv, key0 + wrow, kv, col, M, K, D, ldk, scale);
}

template <bool CAP>
__device__ void backward_q(elem *dq, const elem *q, const elem *k, const elem *v, const elem *d_o, const float *lse, const float *delta,
                           const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window, float cap) {
    constexpr int BM = 32, BN = 16, THREADS = 128, W = WIDE / 2;
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ int first[BM];
    uint32_t sq = smem(shared), sd = sq + Tile<WIDE>::bytes(BM), sk = sd + Tile<WIDE>::bytes(BM), sv = sk + Tile<WIDE>::bytes(BN);
    int tile = gridDim.x - 1 - blockIdx.x, head = blockIdx.y, row0 = tile * BM;
    k += head / (H / K) * D, v += head / (H / K) * D;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, wrow = warp % 2 * 16, col = warp / 2 * W;
    bool scores = warp < 2;   // else dP
    for (int i = threadIdx.x; i < BM; i += THREADS) first[i] = first_key(cu, B, min(row0 + i, M - 1), window);
    load_tile<WIDE, BM, THREADS>(sq, q + head * D, row0, M, D, ldq);
    load_tile<WIDE, BM, THREADS>(sd, d_o + head * D, row0, M, D, ldo);
    __syncthreads();
    int lo = first[0] / BN * BN, hi = min(row0 + BM, M), all = first[BM - 1];
    float stat[2];
#pragma unroll
    for (int h = 0; h < 2; h++) stat[h] = (scores ? lse : delta)[(int64_t)head * M + min(row0 + wrow + h * 8 + lane / 4, M - 1)] * (scores ? LOG2E : 1.f);
    float acc[1][W / 8][4];
    clear(acc);
    float scale2 = (CAP ? cap : scale) * LOG2E, factor = CAP ? cap_factor(scale, cap) : 0.f;
    uint8_t *mine[2] = {shared + exchanged(wrow / 8, lane), shared + exchanged(wrow / 8 + 1, lane)};
    for (int key0 = lo; key0 < hi; key0 += BN) {
        load_tile<WIDE, BN, THREADS>(sk, k, key0, M, D, ldk);
        load_tile<WIDE, BN, THREADS>(sv, v, key0, M, D, ldk);
        cp_commit();
        cp_wait<0>();
        __syncthreads();
        float p[1][2][4];
        clear(p);
        mma_abt<WIDE, 1, 2>(p, (scores ? sq : sd) + wrow * WIDE_LD * 2, scores ? sk : sv);
        if (scores) {
            bool edge = key0 + BN - 1 > row0 + wrow || key0 < all;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                if (CAP) capped4(p[0][j][0], p[0][j][1], p[0][j][2], p[0][j][3], factor);
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    int local = wrow + (c >> 1) * 8 + lane / 4, key = key0 + j * 8 + lane % 4 * 2 + (c & 1);
                    float t = p[0][j][c], x = exp2_fast(fmaf(t, scale2, -stat[c >> 1]));
                    if (CAP) x *= fmaf(-t, t, 1.f);
                    if (edge && (key > row0 + local || key < first[local])) x = 0.f;
                    p[0][j][c] = x;
                }
            }
        } else {
#pragma unroll
            for (int j = 0; j < 2; j++) *(float4 *)mine[j] = make_float4(p[0][j][0] - stat[0], p[0][j][1] - stat[0], p[0][j][2] - stat[1], p[0][j][3] - stat[1]);
        }
        __syncthreads();
        if (scores) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float4 x = *(const float4 *)mine[j];
                *(uint2 *)mine[j] = make_uint2(pack2(p[0][j][0] * x.x, p[0][j][1] * x.y), pack2(p[0][j][2] * x.z, p[0][j][3] * x.w));
            }
        }
        __syncthreads();
        uint2 a = *(const uint2 *)mine[0], b = *(const uint2 *)mine[1];
        uint32_t fs[4] = {a.x, a.y, b.x, b.y};
        add_columns<W>(acc, fs, sk + col * 2);
        __syncthreads();   // every warp is done with these keys
    }
    float f[1][2] = {{scale, scale}};
    store_rows<W, 1>(dq + head * D, acc, f, row0 + wrow, M, col, D, ldq);
}

// attention_backward_kv_512: grid (M / 32 rounded up, K, splits), splits divides H / K, block 256; part may be 0 when splits is 1.
// attention_backward_q_512: grid (M / 32 rounded up, H), block 128. Dynamic shared memory 96 (512 + 8) 2 + 512 bytes.
extern "C" __global__ void __launch_bounds__(256) attention_backward_kv_512(elem *dk, elem *dv, float *part, const elem *q, const elem *k, const elem *v,
    const elem *d_o, const float *lse, const float *delta, const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window) {
    backward_kv<false>(dk, dv, part, q, k, v, d_o, lse, delta, cu, M, B, H, K, D, ldq, ldk, ldo, scale, window, 0.f);
}
extern "C" __global__ void __launch_bounds__(256) attention_backward_kv_capped_512(elem *dk, elem *dv, float *part, const elem *q, const elem *k, const elem *v,
    const elem *d_o, const float *lse, const float *delta, const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window, float cap) {
    backward_kv<true>(dk, dv, part, q, k, v, d_o, lse, delta, cu, M, B, H, K, D, ldq, ldk, ldo, scale, window, cap);
}
extern "C" __global__ void __launch_bounds__(128) attention_backward_q_512(elem *dq, const elem *q, const elem *k, const elem *v,
    const elem *d_o, const float *lse, const float *delta, const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window) {
    backward_q<false>(dq, q, k, v, d_o, lse, delta, cu, M, B, H, K, D, ldq, ldk, ldo, scale, window, 0.f);
}
extern "C" __global__ void __launch_bounds__(128) attention_backward_q_capped_512(elem *dq, const elem *q, const elem *k, const elem *v,
    const elem *d_o, const float *lse, const float *delta, const int *cu, int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window, float cap) {
    backward_q<true>(dq, q, k, v, d_o, lse, delta, cu, M, B, H, K, D, ldq, ldk, ldo, scale, window, cap);
}
