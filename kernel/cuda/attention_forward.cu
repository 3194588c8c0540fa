// attention_forward.cu: O = softmax(scale Q K^T, causal) V over packed sequences, tiled, no T x T matrix.
// Layout: q [M,H,D], k and v [M,K,D] elem, rows ldq and ldk values apart (three parts of one matrix work); o [M,H,D] elem, rows
// ldo apart; lse [H,M] fp32, natural logarithm; cu [B+1] int32 row numbers where sequences start (attention.cuh), H a multiple of K.
// Query i sees keys j <= i of its own sequence, with window > 0 only the last `window` of them, itself included.
// D is a multiple of 8; the kernel with the next larger DP serves it (32, 64, 80, 96, 128, 256), the rest is zero.
// One block of 128 threads: 16 MT 4 query rows of one head; it walks the keys in tiles of BN, which cp.async loads while the
// tensor cores (mma.sync, compute capability 8.0 and later) work on the tile before. Sums, softmax and statistics in fp32.
//               keys ->
//   query rows   | BN | BN | BN |       a warp holds 16 MT rows: scores [16 MT,BN] and O [16 MT,DP] stay in its registers,
//   warp 0   |   | S  | S  | S\         lane l has rows l/4 and l/4 + 8 of each 16, and of each 8 columns 2 (l%4) and the
//   warp 1   v   | S  | S  | S \        next: a row's maximum and sum take two shuffles. Above the diagonal nothing is
//   ...          | S  | S  | S  \       computed.
// The capped forms put tanh(scale Q K^T / cap) cap in place of scale Q K^T: three special functions for a score, else one.
// FLOPs: 4 D for every visible pair; bytes: q, o once, k and v once for each query tile (cache). Goal: FlashAttention-2's rate.
// Elements: bf16, f16.
#include "attention.cuh"

template <int DP, int MT, int BN, bool CAP>
__device__ void forward(elem *o, float *lse, const elem *q, const elem *k, const elem *v, const int *cu,
                        int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window, float cap) {
    constexpr int BM = 64 * MT, LD = Tile<DP>::LD, THREADS = 128, NT = BN / 8;
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ int first[BM];
    uint32_t sq = smem(shared), sk = sq + Tile<DP>::bytes(BM), sv = sk + Tile<DP>::bytes(BN);
    int tile = gridDim.x - 1 - blockIdx.x, head = blockIdx.y, row0 = tile * BM;   // long rows first: the short ones fill the end
    q += head * D, o += head * D;
    k += head / (H / K) * D, v += head / (H / K) * D;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, wrow = warp * 16 * MT;
    for (int i = threadIdx.x; i < BM; i += THREADS) first[i] = first_key(cu, B, min(row0 + i, M - 1), window);
    load_tile<DP, BM, THREADS>(sq, q, row0, M, D, ldq);
    __syncthreads();
    int lo = first[0], hi = min(row0 + BM, M), n0 = lo / BN;   // first[] rises with the row
    load_tile<DP, BN, THREADS>(sk, k, n0 * BN, M, D, ldk);
    cp_commit();

    float acc[MT][DP / 8][4], max_[MT][2], sum[MT][2];
#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int d = 0; d < DP / 8; d++) acc[i][d][0] = acc[i][d][1] = acc[i][d][2] = acc[i][d][3] = 0.f;
        max_[i][0] = max_[i][1] = -INF;
        sum[i][0] = sum[i][1] = 0.f;
    }
    float top = CAP ? cap : scale, scale2 = top * 1.4426950408889634f, factor = CAP ? cap_factor(scale, cap) : 0.f;   // exponentials to the base 2
    int all = first[BM - 1];                      // keys from here on are visible to every row, up to the diagonal
    for (int n = n0; n * BN < hi; n++) {
        int key0 = n * BN;
        load_tile<DP, BN, THREADS>(sv, v, key0, M, D, ldk);
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
        if ((n + 1) * BN < hi) load_tile<DP, BN, THREADS>(sk, k, key0 + BN, M, D, ldk);
        cp_commit();
        if (CAP) {
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < NT; j++) capped4<DP != 128>(s[i][j][0], s[i][j][1], s[i][j][2], s[i][j][3], factor);
        }
        if (key0 + BN - 1 > row0 + wrow || key0 < all) {
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    int local = wrow + i * 16 + h * 8 + lane / 4, row = row0 + local, from = first[local];
#pragma unroll
                    for (int j = 0; j < NT; j++)
#pragma unroll
                        for (int e = 0; e < 2; e++) {
                            int key = key0 + j * 8 + lane % 4 * 2 + e;
                            if (key > row || key < from) s[i][j][2 * h + e] = -INF;
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
                for (int d = 0; d < DP / 8; d++) {
                    acc[i][d][2 * h] *= shrink;
                    acc[i][d][2 * h + 1] *= shrink;
                }
            }
        cp_wait<1>();   // this v
        __syncthreads();
        mma_pb<DP, DP, MT, NT>(acc, s, sv);
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
            inv[i][h] = 1.f / t;
            int row = row0 + wrow + i * 16 + h * 8 + lane / 4;
            if (lane % 4 == 0 && row < M) lse[(int64_t)head * M + row] = max_[i][h] * top + logf(t);
        }
    store_rows<DP, MT>(o, acc, inv, row0 + wrow, M, 0, D, ldo);
}

// Grid (M / rows of a tile rounded up, H), block 128, dynamic shared memory (rows + 2 BN) (DP + 8) 2 bytes.
#define FORWARD(DP, MT, BN) \
    extern "C" __global__ void __launch_bounds__(128) attention_forward_##DP(elem *o, float *lse, const elem *q, const elem *k, const elem *v, const int *cu, \
        int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window) { \
        forward<DP, MT, BN, false>(o, lse, q, k, v, cu, M, B, H, K, D, ldq, ldk, ldo, scale, window, 0.f); \
    } \
    extern "C" __global__ void __launch_bounds__(128) attention_forward_capped_##DP(elem *o, float *lse, const elem *q, const elem *k, const elem *v, const int *cu, \
        int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window, float cap) { \
        forward<DP, MT, BN, true>(o, lse, q, k, v, cu, M, B, H, K, D, ldq, ldk, ldo, scale, window, cap); \
    }
FORWARD(32, 2, 64)
FORWARD(64, 2, 64)
FORWARD(80, 2, 64)
FORWARD(96, 2, 64)
FORWARD(128, 2, 64)
FORWARD(256, 1, 32)

// order[n] <- the tiles of `rows` rows by falling length, equal ones by rising number: query tiles (by_keys 0) by the keys they
// see, key tiles (by_keys 1) by the queries that see them. Once a batch, not a layer. Grid 1, block 1024, dynamic shared memory 4 n.
extern "C" __global__ void __launch_bounds__(1024) attention_order(int *order, const int *cu, int M, int B, int rows, int window, int by_keys) {
    extern __shared__ int length[];
    int n = (M + rows - 1) / rows;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        int row = i * rows, end = min(row + rows, M);
        length[i] = by_keys ? last_query(cu, B, end - 1, M, window) + 1 - row : end - first_key(cu, B, row, window);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        int rank = 0;
        for (int j = 0; j < n; j++) rank += length[j] > length[i] || (length[j] == length[i] && j < i);
        order[rank] = i;
    }
}
