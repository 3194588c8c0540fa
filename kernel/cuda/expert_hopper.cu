// expert_hopper.cu: the GEMMs over rows of expert_gemm.cu for compute capability 9.0: y_e = alpha x_e op(w_e) + beta y_e for each of E
// experts over rows sorted by expert, and with a low-rank update of the same rows, y_e = x_e op(w_e) + scale u_e op(v_e) + beta y_e.
// Layout: y [S,N] elem, its address and rows multiples of 16 bytes; starts [E+1] as there. x [S,K] and w come as tensor maps of elem with
// boxes of 64 columns, 128-byte swizzle: x boxes of 64 x 64; w [E][N,K] (nt) boxes of 64 x BN, or [E][K,N] (nn) of 64 x 64, with the expert
// as third dimension, so that what a box has beyond an expert's matrix is zero. Rows of a box beyond the expert's are another expert's; they
// are not stored. u [S,R] and v [E][N,R] (nt) or [E][R,N] (nn) come in the same way; R is at most 64, 0 where there is no update.
// Tiles of 128 x BN are dealt to the blocks as expert_schedule.cuh says. A block's two warpgroups that multiply take them in turns, each a
// whole one, whose accumulators fill its registers: while one multiplies, the other brings its tile to shared memory, and from there to y by
// bulk copies, which also bring what is added to.
//   warpgroup 0   warp 0: copy engine -> stages of one tile after the other, as far ahead as there are stages
//                 warp 1: scheduler, finds the tiles, up to four ahead; warp 2: deals those of the last rounds by work
//                 warp 3: y's rows of no expert, from starts[E] on
//   warpgroup 1   multiplies tile 0 | stores it         | multiplies tile 2 | ...     The turn goes over when all but a tile's last stage
//   warpgroup 2                     | multiplies tile 1 | stores it         | ...     is begun.
// Of a tile with 64 rows or fewer only as many are read and multiplied. The update is a tile's first stage, and the accumulator is scaled behind it.
// No order of sums depends on the other experts, nor on the grid.
// Accumulation fp32. FLOPs 2 S N (K + R). Goal: at most 5 % over what cuBLASLt takes for one GEMM of as many rows.
// Elements: bf16, f16.
#include "expert_schedule.cuh"
#include "gemm_hopper.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <int HALVES, int BN>
__device__ __forceinline__ void scale(float (&acc)[2][BN / 2], float by) {
    if (by == 1.f) return;
#pragma unroll
    for (int h = 0; h < HALVES; h++)
#pragma unroll
        for (int j = 0; j < BN / 2; j++) acc[h][j] *= by;
}

// The sums of a tile's first HALVES times 64 rows, from the i-th stage on; the other warpgroup waits for its turn at barrier `next`.
template <int HALVES, class Tile, int BN>
__device__ __forceinline__ void sums(Tile &tile, float (&acc)[2][BN / 2], int R, int steps, float alpha, int i, int next) {
    if (R) {
        tile.template begin<HALVES, true>(acc, i, R);
        tile.template finish<HALVES>(acc);
        tile.release(i++);
        scale<HALVES, BN>(acc, alpha);
        tile.template begin<HALVES>(acc, i);
    } else {
        tile.template begin<HALVES, true>(acc, i);
    }
    int last = i + steps - 1, give = max(i, last - 1);
    if (give == i) turn_give(next);
    for (int k = i + 1; k <= last; k++) {
        tile.template begin<HALVES>(acc, k);
        if (give == k) turn_give(next);
        wgmma_wait<1>();
        tile.release(k - 1);
    }
    tile.template finish<HALVES>(acc);
    tile.release(last);
    if (!R) scale<HALVES, BN>(acc, alpha);
}

// A warp's 16 rows on their way between y and the sums: in shared memory, LD bytes a row, lane l < 16 copies the l-th. Of the rows and
// columns as many as given are there; y is the first.
template <int BN>
struct Rows {
    static constexpr int LD = 2 * BN + 16, SIZE = 16 * LD;
    uint32_t buf, bar;
    int phase = 0;

    // Begins to bring what is added to, when what was stored before has left.
    __device__ __forceinline__ void fetch(const elem *y, int rows, int cols, int N) {
        int lane = threadIdx.x & 31;
        bulk_wait_read();
        if (lane == 0) barrier_expect(bar, min(rows, 16) * cols * 2);
        __syncwarp();
        if (lane < min(rows, 16)) bulk_load(buf + lane * LD, y + (int64_t)lane * N, cols * 2, bar);
    }
    // Begins to store the sums, with beta times what was fetched.
    __device__ __forceinline__ void store(const float (&acc)[BN / 2], elem *y, int rows, int cols, int N, float beta) {
        int lane = threadIdx.x & 31;
        if (beta != 0.f) {
            barrier_wait(bar, phase);
            phase ^= 1;
        } else {
            bulk_wait_read();
            __syncwarp();
        }
        uint32_t at = buf + (lane & 15) * LD + lane / 16 * 16;
#pragma unroll
        for (int j = 0; j < BN / 16; j++) {
            uint32_t v[4];
            if (beta != 0.f) {
                ldmatrix4(v, at + j * 32);
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    float2 was = unpack2(v[k]);
                    v[k] = pack2(fmaf(beta, was.x, acc[8 * j + 2 * k]), fmaf(beta, was.y, acc[8 * j + 2 * k + 1]));
                }
            } else {
#pragma unroll
                for (int k = 0; k < 4; k++) v[k] = pack2(acc[8 * j + 2 * k], acc[8 * j + 2 * k + 1]);
            }
            stmatrix4(at + j * 32, v);
        }
        bulk_fence();
        __syncwarp();
        if (lane < min(rows, 16)) bulk_store(y + (int64_t)lane * N, buf + lane * LD, cols * 2);
        bulk_commit();
    }
};
#endif

template <int TB, int BN>
__device__ void rows(elem *y, const TensorMap *mx, const TensorMap *mw, const int *starts, int S, int E, int N, int K, float alpha, float beta, const TensorMap *mu, const TensorMap *mv, int R) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using Tile = Stages<0, TB, BN, 1, 215040 - 8 * Rows<BN>::SIZE, 64>;
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ __align__(8) uint64_t bars[2 * Tile::STAGES], olds[8], work_bars[2 * AHEAD + 1];
    __shared__ WorkTile work[AHEAD];
    __shared__ int small[BALANCED_BLOCKS], last[LAST_TILES + 1];
    int update = R > 0, steps = (K + 63) / 64, all = steps + update;
    uint32_t work_full = smem(work_bars), work_empty = work_full + 8 * AHEAD, balanced = work_empty + 8 * AHEAD;
    if (threadIdx.x == 0) {
        prefetch_map(mx);
        prefetch_map(mw);
        if (R) {
            prefetch_map(mu);
            prefetch_map(mv);
        }
        for (int i = 0; i < 8; i++) barrier_init(smem(olds + i), 1);
        barrier_init(balanced, 32);
        for (int i = 0; i < AHEAD; i++) {
            barrier_init(work_full + 8 * i, 1);
            barrier_init(work_empty + 8 * i, 129);   // the copying thread and a warpgroup
        }
    }
    Tile tile(shared, bars);
    // Waits till the n-th tile is known.
    auto await_work = [&](int n) -> const WorkTile & {
        barrier_wait(work_full + 8 * (n % AHEAD), n / AHEAD & 1);
        return work[n % AHEAD];
    };
    if (threadIdx.x < 128) {
        registers_down<40>();
        if (threadIdx.x >= 32) {
            Scheduler scheduler{starts, E, (N + BN - 1) / BN, work, work_full, work_empty, small, last, balanced};
            if (threadIdx.x < 64) scheduler.run();
            else if (threadIdx.x < 96) scheduler.balance();
            else if (beta == 0.f) no_expert(y, starts[E], S, N, blockIdx.x * 32 + threadIdx.x - 96, gridDim.x * 32);
            return;
        }
        if (threadIdx.x == 0) {
            for (int n = 0, i = 0; await_work(n).rows; n++, i += all) {
                WorkTile t = work[n % AHEAD];
                barrier_arrive(work_empty + 8 * (n % AHEAD));
                if (R) tile.fill(mu, [&](uint32_t to, uint32_t bar, int c0, int c1) { copy_box(to, mv, bar, c0, c1, t.expert); }, t.row, t.col * BN, 0, 1, i, t.rows);
                tile.fill(mx, [&](uint32_t to, uint32_t bar, int c0, int c1) { copy_box(to, mw, bar, c0, c1, t.expert); }, t.row, t.col * BN, 0, steps, i + update, t.rows);
            }
        }
        return;
    }
    registers_up<232>();
    int wg = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 - 4, r = warp % 4 * 16;
    Rows<BN> mine{tile.base + Tile::STAGES * Tile::STAGE + warp * Rows<BN>::SIZE, smem(olds + warp)};
    if (wg == 1) turn_give(1);
    for (int n = wg; await_work(n).rows; n += 2) {
        const WorkTile &t = work[n % AHEAD];
        auto count = [&] { return t.rows; };   // read again, not kept: registers are few
        auto at = [&](int r) { return y + (int64_t)(t.row + r) * N + t.col * BN; };
        auto width = [&] { return min(BN, N - t.col * BN); };
        if (beta != 0.f && r < count()) mine.fetch(at(r), count() - r, width(), N);
        float acc[2][BN / 2];
        turn_wait(1 + wg);
        if (count() > 64) sums<2, Tile, BN>(tile, acc, R, steps, alpha, n * all, 2 - wg);
        else sums<1, Tile, BN>(tile, acc, R, steps, alpha, n * all, 2 - wg);
        if (r < count()) mine.store(acc[0], at(r), count() - r, width(), N, beta);
        if (64 + r < count()) {
            if (beta != 0.f) mine.fetch(at(64 + r), count() - 64 - r, width(), N);
            mine.store(acc[1], at(64 + r), count() - 64 - r, width(), N, beta);
        }
        barrier_arrive(work_empty + 8 * (n % AHEAD));
    }
    bulk_wait();
#endif
}

// Grid as many blocks as run at once, or the tiles where these are fewer; block 384, dynamic shared memory 216064 bytes. alpha is the
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
EXPERT(nn_192, 1, 192)
EXPERT(nt_192, 0, 192)
EXPERT(nn_128, 1, 128)
EXPERT(nt_128, 0, 128)
