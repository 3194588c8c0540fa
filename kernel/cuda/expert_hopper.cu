// expert_hopper.cu: the GEMMs over rows of expert_gemm.cu for compute capability 9.0: y_e = alpha x_e op(w_e) + beta y_e for each of E
// experts over rows sorted by expert.
// Layout: y [S,N] elem; starts [E+1] as there. x [S,K] and w come as tensor maps of elem with boxes of 64 columns, 128-byte swizzle:
// x boxes of 64 x 128; w [E][N,K] (nt) boxes of 64 x BN, or [E][K,N] (nn) of 64 x 64, with the expert as third dimension, so that what
// a box has beyond an expert's matrix is zero. Rows of a box beyond the expert's are another expert's; they are not stored.
// A block makes the tile gridDim.x has for its columns of the blockIdx.y-th tile of 128 rows, as gemm_hopper.cu makes its own; the grid
// has as many as any routing can need, and the blocks left over end at once. No order of sums depends on the other experts.
// Accumulation fp32. FLOPs 2 S N K. Goal: 80 % of gemm_hopper.cu at as many rows.
// Elements: bf16, f16.
#include "experts.cuh"
#include "gemm_hopper.cuh"

template <int TB, int BN>
__device__ void rows(elem *y, const TensorMap *mx, const TensorMap *mw, const int *starts, int E, int N, int K, float alpha, float beta) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    int e, row0;
    if (!expert_tile<128>(starts, E, blockIdx.y, e, row0)) return;
    if (threadIdx.x == 0) {
        prefetch_map(mx);
        prefetch_map(mw);
    }
    using Tile = Stages<0, TB, BN>;
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ __align__(8) uint64_t bars[2 * Tile::STAGES];
    int64_t first = starts[e];
    int count = starts[e + 1] - (int)first, col0 = blockIdx.x * BN, steps = (K + 63) / 64;
    Tile tile(shared, bars);
    if (threadIdx.x < 128) {
        registers_down<40>();
        if (threadIdx.x == 0) tile.fill(mx, [&](uint32_t to, uint32_t bar, int c0, int c1) { copy_box(to, mw, bar, c0, c1, e); }, (int)first + row0, col0, 0, steps);
        return;
    }
    registers_up<232>();
    int wg = threadIdx.x / 128 - 1;
    float acc[BN / 2];
    tile.multiply(acc, wg, steps);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int r = row0 + Tile::row(wg, h);
        if (r >= count) continue;
        store_row<BN / 8>(nullptr, y, false, beta, (first + r) * N, col0, N, [&](int j, int e) { return alpha * acc[4 * j + 2 * h + e]; });
    }
#endif
}

// Grid (tiles of N, tiles of rows, 1), block 384, dynamic shared memory as gemm_hopper.cu's.
#define EXPERT(NAME, TB, BN) \
    extern "C" __global__ void __launch_bounds__(384, 1) expert_hopper_##NAME(elem *y, const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w, \
        const int *starts, int E, int N, int K, float alpha, float beta) { \
        rows<TB, BN>(y, &x, &w, starts, E, N, K, alpha, beta); \
    }
EXPERT(nn_256, 1, 256)
EXPERT(nt_256, 0, 256)
EXPERT(nn_192, 1, 192)
EXPERT(nt_192, 0, 192)
EXPERT(nn_128, 1, 128)
EXPERT(nt_128, 0, 128)
