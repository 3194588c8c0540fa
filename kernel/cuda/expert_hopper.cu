// expert_hopper.cu: the GEMMs over rows of expert_gemm.cu for compute capability 9.0: y_e = alpha x_e op(w_e) + beta y_e for each of E
// experts over rows sorted by expert.
// Layout: y [S,N] elem; starts [E+1] as there. x [S,K] and w come as tensor maps of elem with boxes of 64 columns, 128-byte swizzle:
// x boxes of 64 x 128; w [E][N,K] (nt) boxes of 64 x BN, or [E][K,N] (nn) of 64 x 64, with the expert as third dimension, so that what
// a box has beyond an expert's matrix is zero. Rows of a box beyond the expert's are another expert's; they are not stored.
// Tiles are counted by columns, then by the experts' tiles of 128 rows; block b makes the b-th, and every gridDim.x-th after it, as
// gemm_hopper.cu makes its own: the copy engine is ahead of the multiplications by as many stages as there are, over the end of a tile
// too, and brings a finished tile from shared memory to y while the next is multiplied. A warpgroup without rows lets the other
// multiply alone. No order of sums depends on the other experts, nor on the grid.
// Accumulation fp32. FLOPs 2 S N K. Goal: 80 % of gemm_hopper.cu at as many rows.
// Elements: bf16, f16.
#include "experts.cuh"
#include "gemm_hopper.cuh"

template <int TB, int BN>
__device__ void rows(elem *y, const TensorMap *mx, const TensorMap *mw, const int *starts, int E, int N, int K, float alpha, float beta) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if (threadIdx.x == 0) {
        prefetch_map(mx);
        prefetch_map(mw);
    }
    constexpr int LD = 2 * BN + 16;   // bytes of a row of the finished tile, which lies behind the stages
    using Tile = Stages<0, TB, BN, 225280 - 128 * LD>;
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ __align__(8) uint64_t bars[2 * Tile::STAGES];
    int steps = (K + 63) / 64, cols = (N + BN - 1) / BN, e, row0, from = 0, before = 0;
    Tile tile(shared, bars);
    if (threadIdx.x < 128) {
        registers_down<40>();
        if (threadIdx.x >= 32) return;
        for (int t = blockIdx.x, i = 0; expert_tile<128>(starts, E, t / cols, e, row0, from, before); t += gridDim.x, i += steps) {
            if (threadIdx.x == 0)
                tile.fill(mx, [&](uint32_t to, uint32_t bar, int c0, int c1) { copy_box(to, mw, bar, c0, c1, e); }, starts[e] + row0, t % cols * BN, 0, steps, i);
            __syncwarp();
        }
        return;
    }
    registers_up<232>();
    int wg = threadIdx.x / 128 - 1, lane = threadIdx.x & 31;
    uint32_t done = tile.base + Tile::STAGES * Tile::STAGE + wg * 64 * LD;
    bool bulk = beta == 0.f && N % 8 == 0 && !((uint64_t)y & 15);
    for (int t = blockIdx.x, i = 0; expert_tile<128>(starts, E, t / cols, e, row0, from, before); t += gridDim.x, i += steps) {
        int64_t first = starts[e];
        int count = starts[e + 1] - (int)first - row0, col0 = t % cols * BN;   // rows from row0 on
        if (wg * 64 >= count) {
            tile.skip(1 + wg, steps, i);
            continue;
        }
        first += row0;
        float acc[BN / 2];
        tile.template multiply<true>(acc, wg, steps, i);
        if (!bulk) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int r = Tile::row(wg, h);
                if (r < count) store_row<BN / 8>(nullptr, y, false, beta, (first + r) * N, col0, N, [&](int j, int e) { return alpha * acc[4 * j + 2 * h + e]; });
            }
            continue;
        }
        bulk_wait_read();   // the tile before has left
        warpgroup_meet(1 + wg);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t to = done + (Tile::row(wg, h) - wg * 64) * LD + lane % 4 * 4;
#pragma unroll
            for (int j = 0; j < BN / 8; j++) store_shared(to + j * 16, pack2(alpha * acc[4 * j + 2 * h], alpha * acc[4 * j + 2 * h + 1]));
        }
        bulk_fence();
        warpgroup_meet(1 + wg);
        int r = threadIdx.x % 128;
        if (r < 64 && wg * 64 + r < count) bulk_store(y + (first + wg * 64 + r) * N + col0, done + r * LD, 2 * min(BN, N - col0));
        bulk_commit();
    }
    bulk_wait();
#endif
}

// Grid as many blocks as run at once, or the tiles where these are fewer; block 384, dynamic shared memory 226304 bytes.
#define EXPERT(NAME, TB, BN) \
    extern "C" __global__ void __launch_bounds__(384, 1) expert_hopper_##NAME(elem *y, const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w, \
        const int *starts, int E, int N, int K, float alpha, float beta) { \
        rows<TB, BN>(y, &x, &w, starts, E, N, K, alpha, beta); \
    }
EXPERT(nn_256, 1, 256)
EXPERT(nt_256, 0, 256)
EXPERT(nn_128, 1, 128)
EXPERT(nt_128, 0, 128)
