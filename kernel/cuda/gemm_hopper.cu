// gemm_hopper.cu: the GEMMs of gemm.cu for compute capability 9.0: D[M,N] = alpha op(A) op(B) + beta D.
// Layout: as gemm.cu (nn, nt, tn); A and B come as tensor maps of elem with boxes of 64 columns, 128-byte swizzle:
// by column (inner dimension K contiguous: A of nn and nt, B of nt) boxes of 64 x 128 (A) or 64 x BN (B);
// by row (A of tn, B of nn and tn) boxes of 64 x 64. Addresses and rows are multiples of 16 bytes; edges are filled with zeros.
// One block of 3 warpgroups makes a tile of 128 x BN: one thread of the first feeds stages of 64 inner values, as many as 200 KB hold, through the
// copy engine, the other two multiply 64 rows each with wgmma. gridDim.z > 1 divides K as in gemm.cu.
//   warpgroup 0   thread 0: copy engine -> [A 128 x 64, B 64 x BN] of stage 0, 1, ...   (full and empty barriers)
//   warpgroup 1   rows 0-63 of D;   warpgroup 2   rows 64-127: warp w of it 16 rows from 16 w on, lane l rows l/4 and l/4 + 8 of
//                 them, and of each 8 columns 2 (l%4) and the next: BN/2 fp32 accumulators a thread
// Accumulation fp32. FLOPs 2 M N K. Goal: 80 % of cuBLASLt at M >= 2048.
// Elements: bf16, f16.
#include "gemm_hopper.cuh"

template <int TA, int TB, int BN>
__device__ void gemm(void *out, const TensorMap *ma, const TensorMap *mb, int M, int N, int K, int64_t ldd, float alpha, float beta, int f32) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if (threadIdx.x == 0) {
        prefetch_map(ma);
        prefetch_map(mb);
    }
    using Tile = Stages<TA, TB, BN>;
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ __align__(8) uint64_t bars[2 * Tile::STAGES];
    int row0, col0;
    tile_of<128, BN>(blockIdx.x, M, N, row0, col0);
    int all = (K + 63) / 64, per = (all + gridDim.z - 1) / gridDim.z, t0 = blockIdx.z * per, steps = max(0, min(all - t0, per));
    Tile tile(shared, bars);
    if (threadIdx.x < 128) {
        registers_down<40>();
        if (threadIdx.x == 0) tile.fill(ma, [&](uint32_t to, uint32_t bar, int c0, int c1) { copy_box(to, mb, bar, c0, c1); }, row0, col0, t0, steps);
        return;
    }
    registers_up<232>();
    int wg = threadIdx.x / 128 - 1;
    float acc[BN / 2];
    tile.multiply(acc, wg, steps);
    bool parts = gridDim.z > 1;
    float *o32 = (float *)out + (parts ? (int64_t)blockIdx.z * M * N : 0);
    if (parts) ldd = N, beta = 0.f;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int r = row0 + Tile::row(wg, h);
        if (r >= M) continue;
        store_row<BN / 8>(o32, (elem *)out, parts || f32, beta, r * ldd, col0, N, [&](int j, int e) { return alpha * acc[4 * j + 2 * h + e]; });
    }
#endif
}

// Grid (tiles of M times tiles of N, 1, parts of K), block 384, dynamic shared memory STAGES (128 + BN) 128 + 1024 bytes.
#define GEMM(NAME, TA, TB, BN) \
    extern "C" __global__ void __launch_bounds__(384, 1) gemm_hopper_##NAME(void *d, const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, \
        int M, int N, int K, int ldd, float alpha, float beta, int f32) { \
        gemm<TA, TB, BN>(d, &a, &b, M, N, K, ldd, alpha, beta, f32); \
    }
GEMM(nn_256, 0, 1, 256)
GEMM(nt_256, 0, 0, 256)
GEMM(tn_256, 1, 1, 256)
GEMM(nn_192, 0, 1, 192)
GEMM(nt_192, 0, 0, 192)
GEMM(tn_192, 1, 1, 192)
GEMM(nn_128, 0, 1, 128)
GEMM(nt_128, 0, 0, 128)
GEMM(tn_128, 1, 1, 128)
GEMM(nn_64, 0, 1, 64)
GEMM(nt_64, 0, 0, 64)
GEMM(tn_64, 1, 1, 64)
