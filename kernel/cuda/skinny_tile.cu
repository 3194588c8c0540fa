// skinny_tile.cu: skinny.cu and skinny_several.cu for 17 to 256 rows X, to their bits: one, two or three weights [N_i,K] times the same rows,
// or a gate and what it gates. skinny_tile_R has R rows of X a tile; skinny_tile_cluster_R has four blocks a tile (compute capability 9.0
// and later), for results with few columns.
// Layout: as in skinny.cu; D_i [M,N_i] elem or fp32, N_i = 0 where there are fewer than three; gated: D_0 [M,N_0] elem.
// Bytes: 2 N K a weight and 2 M K for each tile of 64 columns. Goal: 70 % of copy at 64 rows.
// Elements: bf16, f16.
#include "skinny_tile.cuh"

#define THREADS_OF(BM, BN, MT, NT) (32 * (BN / (16 * MT)) * (BM / (8 * NT)))

template <int BN, int BM, int MT, int NT, bool CLUSTER>
__device__ __forceinline__ void dense(const Job &job, const elem *x, const elem *w0, const elem *w1, const elem *w2) {
    DenseTile<BN, THREADS_OF(BM, BN, MT, NT)> w;
    w.w[0] = w0, w.w[1] = w1, w.w[2] = w2;
    skinny_tile<BN, BM, MT, NT, CLUSTER>(job, x, w);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CLUSTERED __cluster_dims__(4, 1, 1)
#else
#define CLUSTERED
#endif

// Grid (tiles of columns, four times as many in clusters, M / BM rounded up), block 32 (BN / 16 MT) (BM / 8 NT), shared memory SkinnyTile's.
#define TILE(BM, BN, MT, NT, BLOCKS) \
    extern "C" __global__ void __launch_bounds__(THREADS_OF(BM, BN, MT, NT), BLOCKS) skinny_tile_##BM(void *d0, void *d1, void *d2, const elem *x, const elem *w0, const elem *w1, const elem *w2, \
        int M, int N0, int N1, int N2, int K, float alpha, float beta, int f32, int gated) { \
        dense<BN, BM, MT, NT, false>({{d0, d1, d2}, {N0, N1, N2}, M, K, f32, gated, alpha, beta}, x, w0, w1, w2); \
    } \
    extern "C" __global__ void __launch_bounds__(THREADS_OF(BM, BN, MT, NT), BLOCKS) CLUSTERED skinny_tile_cluster_##BM(void *d0, void *d1, void *d2, const elem *x, const elem *w0, const elem *w1, const elem *w2, \
        int M, int N0, int N1, int N2, int K, float alpha, float beta, int f32, int gated) { \
        dense<BN, BM, MT, NT, true>({{d0, d1, d2}, {N0, N1, N2}, M, K, f32, gated, alpha, beta}, x, w0, w1, w2); \
    }
TILE(32, 64, 1, 4, 2)
TILE(64, 64, 2, 4, 2)
TILE(128, 64, 2, 4, 1)
