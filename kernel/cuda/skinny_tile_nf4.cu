// skinny_tile_nf4.cu: skinny_tile.cu with weights in 4-bit codes, as in nf4.cu, that are dequantised where they are multiplied, to the bits of
// skinny.cu's kernels for codes. Absmax is fp32, or nested (skinny_tile_nf4_nested_*).
// Layout: as in skinny_tile.cu; K a multiple of 64.
// Bytes: 0.52 N K a weight and 2 M K for each tile of 64 columns. Goal: 50 % of copy at 64 rows.
// Elements: bf16, f16.
#include "skinny_tile.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CLUSTERED __cluster_dims__(4, 1, 1)
#else
#define CLUSTERED
#endif

#define THREADS_OF(BM, BN, MT, NT) (32 * (BN / (16 * MT)) * (BM / (8 * NT)))

template <int BN, int BM, int MT, int NT, bool CLUSTER, bool NESTED>
__device__ __forceinline__ void of_codes(const Job &job, const elem *x, const Tables &tables, const Codes<NESTED> &w0, const Codes<NESTED> &w1, const Codes<NESTED> &w2) {
    CodesTile<BN, THREADS_OF(BM, BN, MT, NT), NESTED> w;
    w.w[0] = w0, w.w[1] = w1, w.w[2] = w2, w.tables = tables;
    skinny_tile<BN, BM, MT, NT, CLUSTER>(job, x, w);
}

#define FLAT_ARGS void *d0, void *d1, void *d2, const elem *x, const float *code, const uint8_t *c0, const float *a0, const uint8_t *c1, const float *a1, const uint8_t *c2, const float *a2, \
    int M, int N0, int N1, int N2, int K, float alpha, float beta, int f32, int gated
#define NESTED_ARGS void *d0, void *d1, void *d2, const elem *x, const float *code, const float *map, const uint8_t *c0, const uint8_t *e0, const float *s0, const float *o0, \
    const uint8_t *c1, const uint8_t *e1, const float *s1, const float *o1, const uint8_t *c2, const uint8_t *e2, const float *s2, const float *o2, \
    int M, int N0, int N1, int N2, int K, float alpha, float beta, int f32, int gated
#define JOB {{d0, d1, d2}, {N0, N1, N2}, M, K, f32, gated, alpha, beta}

// Grid, block and shared memory as in skinny_tile.cu.
#define TILE(BM, BN, MT, NT, BLOCKS) \
    extern "C" __global__ void __launch_bounds__(THREADS_OF(BM, BN, MT, NT), BLOCKS) skinny_tile_nf4_##BM(FLAT_ARGS) { \
        of_codes<BN, BM, MT, NT, false, false>(JOB, x, {code, 0}, {c0, a0, 0, 0, 0}, {c1, a1, 0, 0, 0}, {c2, a2, 0, 0, 0}); \
    } \
    extern "C" __global__ void __launch_bounds__(THREADS_OF(BM, BN, MT, NT), BLOCKS) CLUSTERED skinny_tile_nf4_cluster_##BM(FLAT_ARGS) { \
        of_codes<BN, BM, MT, NT, true, false>(JOB, x, {code, 0}, {c0, a0, 0, 0, 0}, {c1, a1, 0, 0, 0}, {c2, a2, 0, 0, 0}); \
    } \
    extern "C" __global__ void __launch_bounds__(THREADS_OF(BM, BN, MT, NT), BLOCKS) skinny_tile_nf4_nested_##BM(NESTED_ARGS) { \
        of_codes<BN, BM, MT, NT, false, true>(JOB, x, {code, map}, {c0, 0, e0, s0, o0}, {c1, 0, e1, s1, o1}, {c2, 0, e2, s2, o2}); \
    } \
    extern "C" __global__ void __launch_bounds__(THREADS_OF(BM, BN, MT, NT), BLOCKS) CLUSTERED skinny_tile_nf4_nested_cluster_##BM(NESTED_ARGS) { \
        of_codes<BN, BM, MT, NT, true, true>(JOB, x, {code, map}, {c0, 0, e0, s0, o0}, {c1, 0, e1, s1, o1}, {c2, 0, e2, s2, o2}); \
    }
TILE(32, 64, 1, 4, 3)
TILE(64, 64, 2, 4, 2)
TILE(128, 64, 2, 4, 1)
