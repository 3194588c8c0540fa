// expert_schedule.cuh: which tiles of experts' rows a block makes, where blocks stay and take one tile after the other.
// Tiles of 128 x BN are counted by columns, then by the experts' tiles of 128 rows. Block b makes the b-th, and every gridDim.x-th after it. Of an
// expert's last tile only 64 rows may be multiplied, so some blocks would be done before others: each tile of the last one or two rounds goes to the
// block that has least work so far, where that is a share of the whole to speak of. What a block makes follows from starts and the grid alone.
#pragma once
#include "experts.cuh"
#include "hopper.cuh"

// A tile: rows of an expert's from `row` of y on, none behind the last tile, and columns from BN col on.
struct WorkTile {
    int row, rows, col, expert;
};

constexpr int AHEAD = 4;   // tiles that the scheduler is ahead
// The last rounds are dealt by work where there are at most so many blocks, rounds in between, and an expert has so many tiles of rows in the
// mean: with fewer, reading weights takes longest. A block gets at most 9 tiles of these rounds.
constexpr int BALANCED_BLOCKS = 160, LEAST_ROUNDS = 3, MOST_ROUNDS = 31, LEAST_TILES = 3, LAST_TILES = 16;
constexpr int WORK_FULL = 3, WORK_SMALL = 2;   // of a tile of 128 rows and one of at most 64, as measured where N is 768

// A block's schedule, in shared memory but for starts [E+1]. Two warps make it; all lanes of each call its functions.
struct Scheduler {
    const int *starts;
    int E, cols;
    WorkTile *work;         // [AHEAD], the n-th of the block's tiles in the n%AHEAD-th
    uint32_t full, empty;   // barriers of each
    int *small, *last;      // [BALANCED_BLOCKS], [LAST_TILES+1]
    uint32_t balanced;      // barrier of `last`, of 32 arrivals

    // Where the search for a tile begins, and what it found.
    struct Place {
        int expert = 0, row = 0, first = 0, before = 0;
    };
    // All tiles, how many of them the block gets in turn, and whether the others are dealt by work.
    struct Deal {
        int all, turns;
        bool by_work;
    };

    // Warp 1: the tiles one after the other, and behind them one without rows for each warpgroup.
    __device__ __forceinline__ void run() const {
        Deal d = deal();
        Place at;
        int n = 0;
        for (int more = d.turns; n < more; n++) {
            int t = n < d.turns ? blockIdx.x + n * gridDim.x : last[n - d.turns], rows = find(at, t / cols);
            put(n, {starts[at.expert] + at.row, rows, t % cols, at.expert});
            if (d.by_work && n == d.turns - 1) {
                barrier_wait(balanced, 0);
                more += last[LAST_TILES];
            }
        }
        put(n, {});
        put(n + 1, {});
    }
    // Warp 2, meanwhile: the block's tiles of the last rounds, and behind them their number.
    __device__ __forceinline__ void balance() const {
        Deal d = deal();
        if (!d.by_work) return;
        int n = deal_last(d.turns * gridDim.x, d.all);
        if ((threadIdx.x & 31) == 0) last[LAST_TILES] = n;
        __syncwarp();
        barrier_arrive(balanced);   // all lanes
    }

    // The t-th tile of rows: how many it has.
    __device__ __forceinline__ int find(Place &at, int t) const {
        expert_tile<128>(starts, E, t, at.expert, at.row, at.first, at.before);
        return min(128, starts[at.expert + 1] - starts[at.expert] - at.row);
    }
    __device__ __forceinline__ void put(int n, WorkTile tile) const {
        if ((threadIdx.x & 31) == 0) {
            if (n >= AHEAD) barrier_wait(empty + 8 * (n % AHEAD), (n / AHEAD - 1) & 1);
            work[n % AHEAD] = tile;
            barrier_arrive(full + 8 * (n % AHEAD));
        }
        __syncwarp();
    }
    __device__ __forceinline__ Deal deal() const {
        int tiles = 0, blocks = gridDim.x;
        for (int e = threadIdx.x & 31; e < E; e += 32) tiles += (starts[e + 1] - starts[e] + 127) / 128;
        int all = __reduce_add_sync(~0u, tiles) * cols, rounds = all / blocks;
        bool by_work = blocks <= BALANCED_BLOCKS && rounds >= LEAST_ROUNDS && rounds <= MOST_ROUNDS && all >= LEAST_TILES * E * cols;
        return {all, by_work ? rounds - 1 : (all - (int)blockIdx.x + blocks - 1) / blocks, by_work};
    }
    // small[b] becomes how many of block b's tiles before `dealt` have at most 64 rows.
    __device__ __forceinline__ void count_small(int dealt) const {
        int lane = threadIdx.x & 31;
        for (int b = lane; b < BALANCED_BLOCKS; b += 32) small[b] = 0;
        __syncwarp();
        for (int from = 0, before = 0; from < E; from += 32) {
            int e = from + lane, rows = e < E ? starts[e + 1] - starts[e] : 0, sum = before + sum_so_far((rows + 127) / 128);
            if (rows % 128 > 0 && rows % 128 <= 64)
                for (int t = (sum - 1) * cols; t < min(sum * cols, dealt); t++) atomicAdd(small + t % gridDim.x, 1);
            before = __shfl_sync(~0u, sum, 31);
        }
        __syncwarp();
    }
    // Deals the tiles from `dealt` on, each to the block that has least work, and keeps this block's in last; returns their number. More
    // than 12 small tiles are not made up for, so that `last` has room.
    __device__ __forceinline__ int deal_last(int dealt, int all) const {
        count_small(dealt);
        int lane = threadIdx.x & 31, blocks = gridDim.x, n = 0, done[BALANCED_BLOCKS / 32];   // of block lane + 32 j, above the block's number
#pragma unroll
        for (int j = 0; j < BALANCED_BLOCKS / 32; j++) {
            int b = lane + 32 * j;
            done[j] = (b < blocks ? dealt / blocks * WORK_FULL - min(small[b], 12) * (WORK_FULL - WORK_SMALL) : 1 << 20) << 8 | b;
        }
        Place at;
        for (int r = dealt / cols, c = dealt % cols; r < all / cols; r++, c = 0) {
            int takes = find(at, r) > 64 ? WORK_FULL << 8 : WORK_SMALL << 8;
            for (; c < cols; c++) {
                int least = done[0];
#pragma unroll
                for (int j = 1; j < BALANCED_BLOCKS / 32; j++) least = min(least, done[j]);
                least = __reduce_min_sync(~0u, least);
#pragma unroll
                for (int j = 0; j < BALANCED_BLOCKS / 32; j++) done[j] += done[j] == least ? takes : 0;
                if ((least & 255) != blockIdx.x) continue;
                if (lane == 0) last[n] = r * cols + c;
                n++;
            }
        }
        __syncwarp();
        return n;
    }
};
