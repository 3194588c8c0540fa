// expert_hopper.cu: the GEMMs over rows of expert_gemm.cu for compute capability 9.0: y_e = alpha x_e op(w_e) + beta y_e for each of E
// experts over rows sorted by expert, and with a low-rank update of the same rows, y_e = x_e op(w_e) + scale u_e op(v_e) + beta y_e.
// Layout: y [S,N] elem; starts [E+1] as there. x [S,K] and w come as tensor maps of elem with boxes of 64 columns, 128-byte swizzle:
// x boxes of 64 x 128; w [E][N,K] (nt) boxes of 64 x BN, or [E][K,N] (nn) of 64 x 64, with the expert as third dimension, so that what
// a box has beyond an expert's matrix is zero. Rows of a box beyond the expert's are another expert's; they are not stored. u [S,R] and
// v [E][N,R] (nt) or [E][R,N] (nn) come in the same way; R is at most 64, 0 where there is no update.
// Tiles are counted by columns, then by the experts' tiles of 128 rows; block b makes the b-th, and every gridDim.x-th after it, as
// gemm_hopper.cu makes its own: the copy engine is ahead of the multiplications by as many stages as there are, over the end of a tile
// too, and brings a finished tile from shared memory to y while the next is multiplied; what is added to comes into the same memory
// while its tile is multiplied. A warpgroup without rows lets the other multiply alone. The update is a tile's first stage, and the
// accumulator is scaled behind it. The warps beside the one that copies make y's rows of no expert, from starts[E] on. No order of sums
// depends on the other experts, nor on the grid.
// Accumulation fp32. FLOPs 2 S N (K + R). Goal: 80 % of gemm_hopper.cu at as many rows.
// Elements: bf16, f16.
#include "experts.cuh"
#include "gemm_hopper.cuh"

template <int TB, int BN>
__device__ void rows(elem *y, const TensorMap *mx, const TensorMap *mw, const int *starts, int S, int E, int N, int K, float alpha, float beta, const TensorMap *mu, const TensorMap *mv, int R) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int LD = 2 * BN + 16;   // bytes of a row of the finished tile, which lies behind the stages
    using Tile = Stages<0, TB, BN, 225280 - 128 * LD>;
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ __align__(8) uint64_t bars[2 * Tile::STAGES], olds[2];
    if (threadIdx.x == 0) {
        prefetch_map(mx);
        prefetch_map(mw);
        if (R) {
            prefetch_map(mu);
            prefetch_map(mv);
        }
        barrier_init(smem(olds), 64);
        barrier_init(smem(olds) + 8, 64);
    }
    int update = R > 0, steps = (K + 63) / 64, all = steps + update, cols = (N + BN - 1) / BN, e, row0, from = 0, before = 0;
    Tile tile(shared, bars);
    if (threadIdx.x < 128) {
        registers_down<40>();
        if (threadIdx.x >= 32) {
            if (beta == 0.f) no_expert(y, starts[E], S, N, blockIdx.x * 96 + threadIdx.x - 32, gridDim.x * 96);
            return;
        }
        for (int t = blockIdx.x, i = 0; expert_tile<128>(starts, E, t / cols, e, row0, from, before); t += gridDim.x, i += all) {
            if (threadIdx.x == 0) {
                int row = starts[e] + row0, col = t % cols * BN;
                if (R) tile.fill(mu, [&](uint32_t to, uint32_t bar, int c0, int c1) { copy_box(to, mv, bar, c0, c1, e); }, row, col, 0, 1, i);
                tile.fill(mx, [&](uint32_t to, uint32_t bar, int c0, int c1) { copy_box(to, mw, bar, c0, c1, e); }, row, col, 0, steps, i + update);
            }
            __syncwarp();
        }
        return;
    }
    registers_up<232>();
    int wg = threadIdx.x / 128 - 1, lane = threadIdx.x & 31, r = threadIdx.x % 128, added = 0;
    uint32_t done = tile.base + Tile::STAGES * Tile::STAGE + wg * 64 * LD, old = smem(olds) + 8 * wg;
    bool bulk = N % 8 == 0 && !((uint64_t)y & 15);
    for (int t = blockIdx.x, i = 0; expert_tile<128>(starts, E, t / cols, e, row0, from, before); t += gridDim.x, i += all) {
        int64_t first = starts[e];
        int count = starts[e + 1] - (int)first - row0, col0 = t % cols * BN, width = 2 * min(BN, N - col0);   // rows from row0 on; bytes of a row
        if (wg * 64 >= count) {
            tile.skip(1 + wg, all, i);
            continue;
        }
        first += row0;
        elem *to = y + (first + wg * 64 + r) * N + col0;
        bool mine = r < 64 && wg * 64 + r < count;   // a row that this thread copies
        if (bulk && beta != 0.f) {
            bulk_wait_read();   // the tile before has left
            warpgroup_meet(1 + wg);
            if (mine) {
                barrier_expect(old, width);
                bulk_load(done + r * LD, to, width, old);
            } else if (r < 64) {
                barrier_arrive(old);
            }
        }
        float acc[BN / 2];
        if (R) {
            tile.multiply_one(acc, wg, R, i);
            if (alpha != 1.f) {
#pragma unroll
                for (int j = 0; j < BN / 2; j++) acc[j] *= alpha;
            }
            tile.template multiply<true, true>(acc, wg, steps, i + 1);
        } else {
            tile.template multiply<true>(acc, wg, steps, i);
            if (alpha != 1.f) {
#pragma unroll
                for (int j = 0; j < BN / 2; j++) acc[j] *= alpha;
            }
        }
        if (!bulk) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int r = Tile::row(wg, h);
                if (r < count) store_row<BN / 8>(nullptr, y, false, beta, (first + r) * N, col0, N, [&](int j, int e) { return acc[4 * j + 2 * h + e]; });
            }
            continue;
        }
        if (beta != 0.f) {
            barrier_wait(old, added++ & 1);
        } else {
            bulk_wait_read();   // the tile before has left
            warpgroup_meet(1 + wg);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t at = done + (Tile::row(wg, h) - wg * 64) * LD + lane % 4 * 4;
#pragma unroll
            for (int j = 0; j < BN / 8; j++) {
                float a = acc[4 * j + 2 * h], b = acc[4 * j + 2 * h + 1];
                if (beta != 0.f) {
                    float2 was = unpack2(load_shared(at + j * 16));
                    a = fmaf(beta, was.x, a), b = fmaf(beta, was.y, b);
                }
                store_shared(at + j * 16, pack2(a, b));
            }
        }
        bulk_fence();
        warpgroup_meet(1 + wg);
        if (mine) bulk_store(to, done + r * LD, width);
        bulk_commit();
    }
    bulk_wait();
#endif
}

// Grid as many blocks as run at once, or the tiles where these are fewer; block 384, dynamic shared memory 226304 bytes. alpha is the
// update's scale where there is one, the GEMM's else.
#define EXPERT(NAME, TB, BN) \
    extern "C" __global__ void __launch_bounds__(384, 1) expert_hopper_##NAME(elem *y, const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w, \
        const int *starts, int S, int E, int N, int K, float alpha, float beta) { \
        rows<TB, BN>(y, &x, &w, starts, S, E, N, K, alpha, beta, nullptr, nullptr, 0); \
    } \
    extern "C" __global__ void __launch_bounds__(384, 1) expert_hopper_update_##NAME(elem *y, const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w, \
        const int *starts, int S, int E, int N, int K, float scale, float beta, const __grid_constant__ TensorMap u, const __grid_constant__ TensorMap v, int R) { \
        rows<TB, BN>(y, &x, &w, starts, S, E, N, K, scale, beta, &u, &v, R); \
    }
EXPERT(nn_256, 1, 256)
EXPERT(nt_256, 0, 256)
EXPERT(nn_128, 1, 128)
EXPERT(nt_128, 0, 128)
