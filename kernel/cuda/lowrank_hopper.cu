// lowrank_hopper.cu: both gradients of a low-rank GEMM y = alpha t b^T from one reading of dy, for compute capability 9.0:
// dt = alpha dy b, and db += alpha dy^T t.
// Layout: dy [M,C] elem comes as a tensor map with boxes of 64 columns and 64 rows, 128-byte swizzle; b [C,R], t and dt [M,R] elem, db [C,R]
// fp32, rows without gaps, C a multiple of 8, R 8, 16 or 32. Addresses are multiples of 16 bytes. dts fp32 [gridDim.x][M][R] and dbs fp32
// [gridDim.y][C][R] are the blocks' shares, which lowrank_hopper_finish adds in their order.
// A block has 64 CHUNKS columns and `per` tiles of 64 rows. The copy engine brings pieces of 64 rows and 128 columns, as far ahead as there is
// shared memory; one warpgroup multiplies each twice by wgmma: as it lies, by b's rows of these columns (dt), and turned, by t's rows (db).
//   warps 0 to 3   accumulators: 64 rows of dt, for one tile; 64 CHUNKS rows of db, to the end. b and t lie in shared memory, turned, so that
//                  the inner dimension is contiguous, swizzled as the boxes are
//   warp 4         thread 0: copy engine
// Accumulation fp32. Bytes 2 M C + 4 M R + 10 C R. FLOPs 4 M C R. Goal: 80 % of copy at M = 8192 and C = 4096, the shares' sums included.
// Elements: bf16, f16.
#include "hopper.cuh"

constexpr int CHUNKS = 8, PIECE = 16384;   // boxes of a block's columns; bytes of two boxes

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// d[64,R] += A[64,16] B[16,R], both from shared memory; TA = 1: A is read by row.
template <int TA>
__device__ __forceinline__ void multiply(float (&d)[4], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32." ELEM_PTX "." ELEM_PTX " {%0, %1, %2, %3}, %4, %5, 1, 1, 1, %6, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b), "n"(TA));
}
template <int TA>
__device__ __forceinline__ void multiply(float (&d)[8], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32." ELEM_PTX "." ELEM_PTX " {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, %10, 0;"
                 : ACC8(0) : "l"(a), "l"(b), "n"(TA));
}
template <int TA>
__device__ __forceinline__ void multiply(float (&d)[16], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32." ELEM_PTX "." ELEM_PTX " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, 1, 1, 1, %18, 0;"
                 : ACC8(0), ACC8(8) : "l"(a), "l"(b), "n"(TA));
}
// Eight neighbours of row k of [.,R], from column n on, become column k % 64 of R rows of 128 bytes, as a swizzled box has them; every 64
// rows k are such a box.
template <int R>
__device__ __forceinline__ void turn(uint8_t *box, int k, int n, uint4 v) {
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
    uint8_t *to = box + k / 64 * (R * 128) + (k & 7) * 2;
#pragma unroll
    for (int i = 0; i < 8; i++) *(uint16_t *)(to + (n + i) * 128 + ((k / 8 & 7) ^ i) * 16) = (uint16_t)(w[i / 2] >> (i % 2 * 16));
}
// This lane's values of 64 rows of [.,R], those before `end`, from the first on.
template <int R>
__device__ __forceinline__ void store_rows(float *to, const float (&acc)[R / 2], int first, int end) {
    int lane = threadIdx.x & 31, row = first + threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < R / 8; j++)
            if (row + 8 * h < end) *(float2 *)(to + (int64_t)(row + 8 * h) * R + j * 8 + lane % 4 * 2) = make_float2(acc[4 * j + 2 * h], acc[4 * j + 2 * h + 1]);
}
#endif

template <int R>
__device__ void grads(const TensorMap *dy, const elem *b, const elem *t, float *dts, float *dbs, int M, int C, int per) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int BOX = R * 128, RING = (228352 - (CHUNKS + 2) * BOX) / PIECE, PIECES = CHUNKS / 2;   // BOX: bytes of 64 values of R rows
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ __align__(8) uint64_t bars[2 * RING];
    uint8_t *pieces = shared + (-smem(shared) & 1023), *bs = pieces + RING * PIECE, *ts = bs + CHUNKS * BOX;
    uint32_t full = smem(bars), empty = full + 8 * RING;
    if (threadIdx.x == 0) {
        prefetch_map(dy);
        for (int s = 0; s < RING; s++) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, 1);
        }
        barrier_fence();
    }
    __syncthreads();
    int c0 = blockIdx.x * CHUNKS * 64, row0 = blockIdx.y * per * 64, tiles = min(per, (M - row0 + 63) / 64), pieces_there = min(PIECES, (C - c0 + 127) / 128);
    if (threadIdx.x >= 128) {
        if (threadIdx.x > 128) return;
        for (int tile = 0, i = 0; tile < tiles; tile++)
            for (int s = 0; s < pieces_there; s++, i++) {
                uint32_t bar = full + 8 * (i % RING), to = smem(pieces) + i % RING * PIECE;
                if (i >= RING) barrier_wait(empty + 8 * (i % RING), (i / RING - 1) & 1);
                barrier_expect(bar, PIECE);
                copy_box(to, dy, bar, c0 + s * 128, row0 + tile * 64);
                copy_box(to + PIECE / 2, dy, bar, c0 + s * 128 + 64, row0 + tile * 64);
            }
        return;
    }
    const uint4 none = make_uint4(0, 0, 0, 0);
    for (int e = threadIdx.x; e < CHUNKS * 8 * R; e += 128) {
        int k = e / (R / 8), n = e % (R / 8) * 8;
        turn<R>(bs, k, n, c0 + k < C ? *(const uint4 *)(b + (int64_t)(c0 + k) * R + n) : none);
    }
    constexpr int EACH = (8 * R + 127) / 128;   // of a tile's rows of t, a thread's parts of 16 bytes
    uint4 next[EACH];
    auto fetch = [&](int tile) {
#pragma unroll
        for (int q = 0; q < EACH; q++) {
            int e = threadIdx.x + q * 128, row = tile * 64 + e / (R / 8);
            next[q] = e < 8 * R && tile < tiles && row0 + row < M ? *(const uint4 *)(t + (int64_t)(row0 + row) * R + e % (R / 8) * 8) : none;
        }
    };
    fetch(0);
    float db[CHUNKS][R / 2] = {};
    int i = 0;
    for (int tile = 0; tile < tiles; tile++) {
        uint8_t *mine = ts + (tile & 1) * BOX;   // what the tile before last has read
#pragma unroll
        for (int q = 0; q < EACH; q++) {
            int e = threadIdx.x + q * 128;
            if (e < 8 * R) turn<R>(mine, e / (R / 8), e % (R / 8) * 8, next[q]);
        }
        bulk_fence();
        asm volatile("bar.sync 1, 128;" ::: "memory");
        fetch(tile + 1);
        float dt[R / 2] = {};
#pragma unroll
        for (int s = 0; s < PIECES; s++) {
            if (s >= pieces_there) break;
            uint32_t a = smem(pieces) + i % RING * PIECE;
            barrier_wait(full + 8 * (i % RING), i / RING & 1);
            hold(dt);
            hold(db[2 * s]);
            hold(db[2 * s + 1]);
            wgmma_fence();
#pragma unroll
            for (int j = 0; j < 2; j++)
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    multiply<0>(dt, operand(a + j * 8192 + k * 32), operand(smem(bs) + (2 * s + j) * BOX + k * 32));
                    multiply<1>(db[2 * s + j], operand(a + j * 8192 + k * 2048, 8192), operand(smem(mine) + k * 32));
                }
            wgmma_commit();
            hold(dt);
            hold(db[2 * s]);
            hold(db[2 * s + 1]);
            wgmma_wait<1>();
            if (s > 0 && threadIdx.x == 0) barrier_arrive(empty + 8 * ((i - 1) % RING));
            i++;
        }
        wgmma_wait<0>();
        hold(dt);
        if (threadIdx.x == 0) barrier_arrive(empty + 8 * ((i - 1) % RING));
        store_rows<R>(dts + (int64_t)blockIdx.x * M * R, dt, row0 + tile * 64, M);
    }
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
        hold(db[j]);
        store_rows<R>(dbs + (int64_t)blockIdx.y * C * R, db[j], c0 + j * 64, C);
    }
#endif
}

// Grid (C / 512, bands of 64 `per` rows), block 160, dynamic shared memory RING PIECE + 10 BOX + 1024 bytes.
#define GRADS(R) \
    extern "C" __global__ void __launch_bounds__(160, 1) lowrank_hopper_grads_##R(const __grid_constant__ TensorMap dy, const elem *b, const elem *t, float *dts, float *dbs, int M, int C, int per) { \
        grads<R>(&dy, b, t, dts, dbs, M, C, per); \
    }
GRADS(8)
GRADS(16)
GRADS(32)

// Four values a thread: the first nt of dt, then nb of db. gdts and gdbs are the shares' numbers.
extern "C" __global__ void __launch_bounds__(256) lowrank_hopper_finish(elem *dt, float *db, const float *dts, const float *dbs, int64_t nt, int64_t nb, int gdts, int gdbs, float alpha) {
    int64_t e = (blockIdx.x * 256ll + threadIdx.x) * 4;
    bool first = e < nt;
    if (!first) e -= nt;
    int64_t all = first ? nt : nb;
    if (e >= all) return;
    const float *from = (first ? dts : dbs) + e;
    int shares = first ? gdts : gdbs;
    float4 s = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int z = 0; z < shares; z++) {
        float4 v = __ldcg((const float4 *)(from + z * all));
        s.x += v.x, s.y += v.y, s.z += v.z, s.w += v.w;
    }
    if (first) {
        store4(dt + e, alpha * s.x, alpha * s.y, alpha * s.z, alpha * s.w);
    } else {
        float4 *p = (float4 *)(db + e), o = *p;
        *p = make_float4(fmaf(alpha, s.x, o.x), fmaf(alpha, s.y, o.y), fmaf(alpha, s.z, o.z), fmaf(alpha, s.w, o.w));
    }
}
