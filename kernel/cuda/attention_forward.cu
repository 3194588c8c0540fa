// attention_forward.cu: O = softmax(scale Q K^T, causal) V over packed sequences, tiled, no T x T matrix.
// Layout: q [M,H,D], k and v [M,K,D] elem, rows ldq and ldk values apart (three parts of one matrix work); o [M,H,D] elem, rows
// ldo apart; lse [H,M] fp32, natural logarithm; cu [B+1] int32 row numbers where sequences start (attention.cuh), H a multiple of K.
// Query i sees keys j <= i of its own sequence, with window > 0 only the last `window` of them, itself included.
// D is a multiple of 8; the kernel with the next larger DP serves it (32, 64, 80, 96, 128, 256, 512), the rest is zero.
// One block of 128 DS threads: 16 MT 4 query rows of one head; it walks the keys in tiles of BN, which cp.async loads while the
// tensor cores (mma.sync, compute capability 8.0 and later) work on the tile before. Sums, softmax and statistics in fp32.
//               keys ->
//   query rows   | BN | BN | BN |       a warp holds 16 MT rows: scores [16 MT,BN] and O [16 MT,DP] stay in its registers,
//   warp 0   |   | S  | S  | S\         lane l has rows l/4 and l/4 + 8 of each 16, and of each 8 columns 2 (l%4) and the
//   warp 1   v   | S  | S  | S \        next: a row's maximum and sum take two shuffles. Above the diagonal nothing is
//   ...          | S  | S  | S  \       computed.
// Of heads above 256 two warps (DS = 2) have the same rows and scores, and half of O's columns each.
// The capped forms put tanh(scale Q K^T / cap) cap in place of scale Q K^T: three special functions for a score, else one.
// FLOPs: 4 D for every visible pair; bytes: q, o once, k and v once for each query tile (cache). Goal: FlashAttention-2's rate.
// Elements: bf16, f16.
#include "attention_forward.cuh"

// Grid (M / rows of a tile rounded up, H), block 128 DS, dynamic shared memory (rows + 2 BN) (DP + 8) 2 bytes.
#define FORWARD(DP, MT, BN, DS) \
    extern "C" __global__ void __launch_bounds__(128 * DS) attention_forward_##DP(elem *o, float *lse, const elem *q, const elem *k, const elem *v, const int *cu, \
        int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window) { \
        forward<DP, MT, BN, false, OwnKeys, DS>(o, lse, q, k, v, OwnKeys{cu, B, M, window}, M, H, K, D, ldq, ldk, ldo, scale, 0.f); \
    } \
    extern "C" __global__ void __launch_bounds__(128 * DS) attention_forward_capped_##DP(elem *o, float *lse, const elem *q, const elem *k, const elem *v, const int *cu, \
        int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, int window, float cap) { \
        forward<DP, MT, BN, true, OwnKeys, DS>(o, lse, q, k, v, OwnKeys{cu, B, M, window}, M, H, K, D, ldq, ldk, ldo, scale, cap); \
    }
// attention_forward_prefixed_DP: sequences may continue others (PrefixKeys), prefix [B] int32; there is no window.
#define PREFIXED(DP, MT, BN) \
    extern "C" __global__ void __launch_bounds__(128) attention_forward_prefixed_##DP(elem *o, float *lse, const elem *q, const elem *k, const elem *v, const int *cu, \
        int M, int B, int H, int K, int D, int ldq, int ldk, int ldo, float scale, const int *prefix) { \
        forward<DP, MT, BN, false, PrefixKeys, 1>(o, lse, q, k, v, PrefixKeys{cu, prefix, B, M}, M, H, K, D, ldq, ldk, ldo, scale, 0.f); \
    }
FORWARD(32, 2, 64, 1)
FORWARD(64, 2, 64, 1)
FORWARD(80, 2, 64, 1)
FORWARD(96, 2, 64, 1)
FORWARD(128, 2, 64, 1)
FORWARD(256, 1, 32, 1)
FORWARD(512, 1, 16, 2)
PREFIXED(32, 2, 64)
PREFIXED(64, 2, 64)
PREFIXED(80, 2, 64)
PREFIXED(96, 2, 64)
PREFIXED(128, 1, 64)
PREFIXED(256, 1, 32)

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
