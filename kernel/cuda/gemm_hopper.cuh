// gemm_hopper.cuh: what a block of 3 warpgroups does for a tile of 128 x BN of a GEMM on compute capability 9.0, as gemm_hopper.cu and
// expert_hopper.cu say: stages of 64 inner values in shared memory, filled by one thread, multiplied by two warpgroups together, 64 rows
// each, or by one of them.
#pragma once
#include "gemm.cuh"
#include "hopper.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// SPACE bytes of shared memory are for stages; READERS warpgroups multiply each; A comes in boxes of BOX rows, where it is not transposed.
template <int TA, int TB, int BN, int READERS = 2, int SPACE = 204800, int BOX = 128>
struct Stages {
    static constexpr int BM = 128, BK = 64, SIZE_A = BM * BK * 2, SIZE_B = BN * BK * 2, STAGE = SIZE_A + SIZE_B, STAGES = SPACE / STAGE;
    uint32_t base, full, empty;

    // All threads call it; bars is the block's, of 2 STAGES.
    __device__ __forceinline__ Stages(uint8_t *shared, uint64_t *bars) : base((smem(shared) + 1023) & ~1023u), full(smem(bars)), empty(full + 8 * STAGES) {
        if (threadIdx.x == 0) {
            for (int s = 0; s < STAGES; s++) {
                barrier_init(full + 8 * s, 1);
                barrier_init(empty + 8 * s, READERS);
            }
            barrier_fence();
        }
        __syncthreads();
    }

    // Thread 0 of the first warpgroup fills `steps` stages from inner value 64 first on, with A's rows from row0 on and B's columns from
    // col0 on; copy_b(to, barrier, c0, c1) brings a box of B. `before` stages have been filled for other tiles. Of A's boxes as many come as
    // hold `rows`.
    template <class CopyB>
    __device__ __forceinline__ void fill(const TensorMap *ma, CopyB copy_b, int row0, int col0, int first, int steps, int before = 0, int rows = BM) {
        first -= before;
        int boxes = TA ? BM / 64 : (rows + BOX - 1) / BOX;
        for (int i = before; i < before + steps; i++) {
            int s = i % STAGES, k = (first + i) * BK;
            uint32_t a = base + s * STAGE, b = a + SIZE_A, bar = full + 8 * s;
            if (i >= STAGES) barrier_wait(empty + 8 * s, (i / STAGES - 1) & 1);
            barrier_expect(bar, TA ? STAGE : boxes * BOX * BK * 2 + SIZE_B);
            for (int j = 0; j < boxes; j++) {
                if (TA) copy_box(a + j * 8192, ma, bar, row0 + j * 64, k);
                else copy_box(a + j * BOX * 128, ma, bar, k, row0 + j * BOX);
            }
            if (TB) {
                for (int j = 0; j < BN / 64; j++) copy_b(b + j * 8192, bar, col0 + j * 64, k);
            } else {
                copy_b(b, bar, k, col0);
            }
        }
    }

    // Warpgroup wg of the two multiplies its 64 rows: element e of this lane's pair of the j-th eight columns of row(wg, h) is
    // acc[4 j + 2 h + e].
    __device__ __forceinline__ void multiply(float (&acc)[BN / 2], int wg, int steps) {
#pragma unroll
        for (int i = 0; i < BN / 2; i++) acc[i] = 0.f;
        for (int i = 0; i < steps; i++) {
            int s = i % STAGES;
            uint32_t a = base + s * STAGE + wg * 8192, b = base + s * STAGE + SIZE_A;
            barrier_wait(full + 8 * s, i / STAGES & 1);
            hold(acc);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++) Wgmma<BN, TA, TB, 0>::shared(acc, operand(a + k * (TA ? 2048 : 32), 8192), operand(b + k * (TB ? 2048 : 32), 8192));
            wgmma_commit();
            hold(acc);
            wgmma_wait<1>();   // the GEMMs of the stage before are done with it
            if (i > 0) release(i - 1);
        }
        wgmma_wait<0>();
        hold(acc);
    }

    // A warpgroup that has a tile to itself begins to multiply its first HALVES times 64 rows by the i-th stage, of which `depth` inner
    // values count; acc[h] as above for those from row 64 h on. ZERO: the sums begin here.
    template <int HALVES, bool ZERO = false>
    __device__ __forceinline__ void begin(float (&acc)[2][BN / 2], int i, int depth = BK) {
        int s = i % STAGES;
        uint32_t a = base + s * STAGE, b = a + SIZE_A;
        barrier_wait(full + 8 * s, i / STAGES & 1);
        if (!ZERO) keep<HALVES>(acc);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (k * 16 >= depth) continue;
#pragma unroll
            for (int h = 0; h < HALVES; h++) {
                uint64_t left = operand(a + h * 8192 + k * (TA ? 2048 : 32), 8192), right = operand(b + k * (TB ? 2048 : 32), 8192);
                if (ZERO && k == 0) Wgmma<BN, TA, TB, 1>::shared(acc[h], left, right);
                else Wgmma<BN, TA, TB, 0>::shared(acc[h], left, right);
            }
        }
        wgmma_commit();
        keep<HALVES>(acc);
    }
    // Waits for all that it has begun.
    template <int HALVES>
    __device__ __forceinline__ void finish(float (&acc)[2][BN / 2]) {
        wgmma_wait<0>();
        keep<HALVES>(acc);
    }
    template <int HALVES>
    static __device__ __forceinline__ void keep(float (&acc)[2][BN / 2]) {
#pragma unroll
        for (int h = 0; h < HALVES; h++) hold(acc[h]);
    }
    // This warpgroup is done with the i-th stage.
    __device__ __forceinline__ void release(int i) {
        if (threadIdx.x % 128 == 0) barrier_arrive(empty + 8 * (i % STAGES));
    }

    static __device__ __forceinline__ int row(int wg, int h) { return wg * 64 + threadIdx.x / 32 % 4 * 16 + h * 8 + (threadIdx.x & 31) / 4; }
};
#endif
