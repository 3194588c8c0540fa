// gemm_hopper.cuh: what a block of 3 warpgroups does for a tile of 128 x BN of a GEMM on compute capability 9.0, as gemm_hopper.cu says:
// stages of 64 inner values in shared memory, filled by one thread, multiplied by two warpgroups.
#pragma once
#include "gemm.cuh"
#include "hopper.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// SPACE bytes of shared memory are for stages.
template <int TA, int TB, int BN, int SPACE = 204800>
struct Stages {
    static constexpr int BM = 128, BK = 64, SIZE_A = BM * BK * 2, SIZE_B = BN * BK * 2, STAGE = SIZE_A + SIZE_B, STAGES = SPACE / STAGE;
    uint32_t base, full, empty;

    // All threads call it; bars is the block's, of 2 STAGES.
    __device__ __forceinline__ Stages(uint8_t *shared, uint64_t *bars) : base((smem(shared) + 1023) & ~1023u), full(smem(bars)), empty(full + 8 * STAGES) {
        if (threadIdx.x == 0) {
            for (int s = 0; s < STAGES; s++) {
                barrier_init(full + 8 * s, 1);
                barrier_init(empty + 8 * s, 2);
            }
            barrier_fence();
        }
        __syncthreads();
    }

    // Thread 0 of the first warpgroup fills `steps` stages from inner value 64 first on, with A's rows from row0 on and B's columns from
    // col0 on; copy_b(to, barrier, c0, c1) brings a box of B. `before` stages have been filled for other tiles.
    template <class CopyB>
    __device__ __forceinline__ void fill(const TensorMap *ma, CopyB copy_b, int row0, int col0, int first, int steps, int before = 0) {
        first -= before;
        for (int i = before; i < before + steps; i++) {
            int s = i % STAGES, k = (first + i) * BK;
            uint32_t a = base + s * STAGE, b = a + SIZE_A, bar = full + 8 * s;
            if (i >= STAGES) barrier_wait(empty + 8 * s, (i / STAGES - 1) & 1);
            barrier_expect(bar, STAGE);
            if (TA) {
                for (int j = 0; j < BM / 64; j++) copy_box(a + j * 8192, ma, bar, row0 + j * 64, k);
            } else {
                copy_box(a, ma, bar, k, row0);
            }
            if (TB) {
                for (int j = 0; j < BN / 64; j++) copy_b(b + j * 8192, bar, col0 + j * 64, k);
            } else {
                copy_b(b, bar, k, col0);
            }
        }
    }

    // Warpgroup wg of the two multiplies its 64 rows: element e of this lane's pair of the j-th eight columns of row(wg, h) is
    // acc[4 j + 2 h + e]. `before` stages were other tiles'; MORE: another tile follows, which wants the last stage too; ONTO: adds to
    // what is in acc.
    template <bool MORE = false, bool ONTO = false>
    __device__ __forceinline__ void multiply(float (&acc)[BN / 2], int wg, int steps, int before = 0) {
        if (!ONTO) zero(acc);
        for (int i = before; i < before + steps; i++) {
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
            if (i > before && threadIdx.x % 128 == 0) barrier_arrive(empty + 8 * ((i - 1) % STAGES));
        }
        wgmma_wait<0>();
        hold(acc);
        if (MORE && threadIdx.x % 128 == 0) barrier_arrive(empty + 8 * ((before + steps - 1) % STAGES));
    }

    // The same of one stage, the i-th, of no more than `depth` inner values, which may be fewer than 64.
    __device__ __forceinline__ void multiply_one(float (&acc)[BN / 2], int wg, int depth, int i) {
        int s = i % STAGES;
        uint32_t a = base + s * STAGE + wg * 8192, b = base + s * STAGE + SIZE_A;
        zero(acc);
        barrier_wait(full + 8 * s, i / STAGES & 1);
        hold(acc);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (k * 16 < depth) Wgmma<BN, TA, TB, 0>::shared(acc, operand(a + k * (TA ? 2048 : 32), 8192), operand(b + k * (TB ? 2048 : 32), 8192));
        wgmma_commit();
        wgmma_wait<0>();
        hold(acc);
        if (threadIdx.x % 128 == 0) barrier_arrive(empty + 8 * s);
    }
    static __device__ __forceinline__ void zero(float (&acc)[BN / 2]) {
#pragma unroll
        for (int i = 0; i < BN / 2; i++) acc[i] = 0.f;
    }

    // The same for a warpgroup without rows: one thread says for all that the stages are empty. The others wait for it at a barrier of
    // their own: a stage's barrier tells two uses of it apart, not three.
    __device__ __forceinline__ void skip(int id, int steps, int before) {
        for (int i = before; i < before + steps && threadIdx.x % 128 == 0; i++) {
            barrier_wait(full + 8 * (i % STAGES), i / STAGES & 1);
            barrier_arrive(empty + 8 * (i % STAGES));
        }
        warpgroup_meet(id);
    }

    static __device__ __forceinline__ int row(int wg, int h) { return wg * 64 + threadIdx.x / 32 % 4 * 16 + h * 8 + (threadIdx.x & 31) / 4; }
};
#endif
