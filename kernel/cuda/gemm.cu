// gemm.cu: D[M,N] = alpha op(A)[M,K] op(B)[K,N] + beta D on bf16 tensor cores, for where cuBLASLt is absent and for thin shapes.
// Layout, all row-major with leading dimensions in values: nn: A [M,K], B [K,N] (dX = dY W); nt: A [M,K], B [N,K] (Y = X W^T);
// tn: A [K,M], B [K,N] (dA = dT^T X). D bf16, or fp32 with f32 != 0.
// Tiles: large 128x128 (4 warps of 64x64), small 64x64 (4 warps of 32x32), thin 128x32 (4 warps of 32x32); inner step 32,
// four stages of cp.async, mma.sync (compute capability 8.0 and later). Blocks walk the tiles in columns of 8 for the cache.
// gridDim.z > 1 divides K: D is then fp32 [z][M,N] packed, each part alpha A B; reduce_splits adds them in order.
// Rows or addresses that are no multiple of 16 bytes are read value by value: right, and slow.
// Accumulation fp32. FLOPs 2 M N K. Goal: 60 % of cuBLASLt at M >= 2048.
#include "gemm.cuh"

// A stage's tile of one operand: ROWS x COLS values as stored, rows padded by 8 so that ldmatrix has no bank conflict. A thread
// always loads the same column of every HOP-th row, so an address is one addition away from the one before.
template <int ROWS, int COLS, int THREADS>
struct Operand {
    static constexpr int UNITS = COLS / 8, LD = COLS + 8, HOP = THREADS / UNITS;
    const bf16 *from;
    int64_t hop;
    int r, c;
    __device__ __forceinline__ Operand(const bf16 *src, int64_t ld, int row, int col) {
        r = threadIdx.x / UNITS;
        c = threadIdx.x % UNITS * 8;
        from = src + (row + r) * ld + col + c;
        hop = HOP * ld;
    }
    // rows, cols: how many of the tile's are inside the matrix; ahead: values to add to the first tile's address.
    __device__ __forceinline__ void load(uint8_t *dst, int64_t ahead, int rows, int cols, bool aligned) const {
        const bf16 *p = from + ahead;
#pragma unroll
        for (int j = 0; j < ROWS / HOP; j++, p += hop) {
            uint8_t *to = dst + ((r + j * HOP) * LD + c) * 2;
            bool valid = r + j * HOP < rows && c < cols;
            if (aligned) {
                cp16(smem(to), valid ? p : from, valid);
            } else {
                uint4 u = make_uint4(0, 0, 0, 0);
#pragma unroll
                for (int k = 0; k < 8; k++)
                    if (valid && c + k < cols) ((bf16 *)&u)[k] = p[k];
                *(uint4 *)to = u;
            }
        }
    }
};

template <bool TA, bool TB, int BM, int BN, int WARPS_M, int WARPS_N>
__device__ void gemm(void *out, const bf16 *a, const bf16 *b, int M, int N, int K, int64_t lda, int64_t ldb, int64_t ldd, float alpha, float beta, int f32) {
    constexpr int BK = 32, STAGES = 4, THREADS = 32 * WARPS_M * WARPS_N, MT = BM / WARPS_M / 16, NT = BN / WARPS_N / 8;
    constexpr int LDA = (TA ? BM : BK) + 8, LDB = (TB ? BK : BN) + 8, SIZE_A = (TA ? BK : BM) * LDA * 2, SIZE_B = (TB ? BN : BK) * LDB * 2;
    extern __shared__ __align__(128) uint8_t shared[];
    int row0, col0;
    tile_of<BM, BN>(blockIdx.x, M, N, row0, col0);
    int per = ((K + BK - 1) / BK + gridDim.z - 1) / gridDim.z * BK, k0 = blockIdx.z * per, k1 = min(K, k0 + per);
    int steps = max(0, (k1 - k0 + BK - 1) / BK);
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, wm = warp % WARPS_M * 16 * MT, wn = warp / WARPS_M * 8 * NT;
    bool fa = (((uint64_t)a & 15) | (lda & 7) | ((TA ? M : k1) & 7)) == 0, fb = (((uint64_t)b & 15) | (ldb & 7) | ((TB ? k1 : N) & 7)) == 0;
    Operand<TA ? BK : BM, TA ? BM : BK, THREADS> oa(a, lda, TA ? k0 : row0, TA ? row0 : k0);
    Operand<TB ? BN : BK, TB ? BK : BN, THREADS> ob(b, ldb, TB ? col0 : k0, TB ? k0 : col0);
    auto load = [&](int s) {
        uint8_t *at = shared + s % STAGES * (SIZE_A + SIZE_B);
        int left = k1 - k0 - s * BK;
        oa.load(at, TA ? s * BK * lda : s * BK, TA ? left : M - row0, TA ? M - row0 : left, fa);
        ob.load(at + SIZE_A, TB ? s * BK : s * BK * ldb, TB ? N - col0 : left, TB ? left : N - col0, fb);
    };
    // ldmatrix addresses inside a stage for k = 0
    uint32_t pa = TA ? ((((lane & 7) + (lane >> 4) * 8) * LDA + wm + (lane >> 3 & 1) * 8) * 2) : (((wm + (lane & 15)) * LDA + (lane >> 4) * 8) * 2);
    uint32_t pb = TB ? (((wn + (lane & 7) + (lane >> 4) * 8) * LDB + (lane >> 3 & 1) * 8) * 2)
                     : ((((lane & 7) + (lane >> 3 & 1) * 8) * LDB + wn + (lane >> 4) * 8) * 2);
    float acc[MT][NT][4];
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++) acc[i][j][0] = acc[i][j][1] = acc[i][j][2] = acc[i][j][3] = 0.f;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) load(s);
        cp_commit();
    }
    for (int s = 0; s < steps; s++) {
        cp_wait<STAGES - 2>();
        __syncthreads();
        if (s + STAGES - 1 < steps) load(s + STAGES - 1);
        cp_commit();
        uint32_t sa = smem(shared) + s % STAGES * (SIZE_A + SIZE_B), sb = sa + SIZE_A;
#pragma unroll
        for (int k = 0; k < BK; k += 16) {
            uint32_t ra[MT][4], rb[NT / 2][4];
#pragma unroll
            for (int i = 0; i < MT; i++) {
                if (TA) ldmatrix4t(ra[i], sa + pa + (k * LDA + i * 16) * 2);
                else ldmatrix4(ra[i], sa + pa + (i * 16 * LDA + k) * 2);
            }
#pragma unroll
            for (int j = 0; j < NT / 2; j++) {
                if (TB) ldmatrix4(rb[j], sb + pb + (j * 16 * LDB + k) * 2);
                else ldmatrix4t(rb[j], sb + pb + (k * LDB + j * 16) * 2);
            }
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < NT; j++) mma(acc[i][j], ra[i], rb[j / 2][j % 2 * 2], rb[j / 2][j % 2 * 2 + 1]);
        }
    }
    cp_wait<0>();
    bool parts = gridDim.z > 1;
    float *o32 = (float *)out + (parts ? (int64_t)blockIdx.z * M * N : 0);
    bf16 *o16 = (bf16 *)out;
    if (parts) ldd = N, beta = 0.f;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int r = row0 + wm + i * 16 + h * 8 + lane / 4;
            if (r >= M) continue;
#pragma unroll
            for (int j = 0; j < NT; j++) {
                int c = col0 + wn + j * 8 + lane % 4 * 2;
                store_pair(o32, o16, parts || f32, beta, r * ldd + c, c, N, alpha * acc[i][j][2 * h], alpha * acc[i][j][2 * h + 1]);
            }
        }
}

// Grid (tiles of M times tiles of N, 1, parts of K), block 128, dynamic shared memory 4 stages, SIZE_A + SIZE_B each.
#define GEMM(NAME, TA, TB, BM, BN, WM, WN) \
    extern "C" __global__ void __launch_bounds__(128) gemm_##NAME(void *d, const bf16 *a, const bf16 *b, int M, int N, int K, int lda, int ldb, int ldd, float alpha, float beta, int f32) { \
        gemm<TA, TB, BM, BN, WM, WN>(d, a, b, M, N, K, lda, ldb, ldd, alpha, beta, f32); \
    }
GEMM(nn_large, false, false, 128, 128, 2, 2)
GEMM(nt_large, false, true, 128, 128, 2, 2)
GEMM(tn_large, true, false, 128, 128, 2, 2)
GEMM(nn_small, false, false, 64, 64, 2, 2)
GEMM(nt_small, false, true, 64, 64, 2, 2)
GEMM(tn_small, true, false, 64, 64, 2, 2)
GEMM(nn_thin, false, false, 128, 32, 4, 1)
GEMM(nt_thin, false, true, 128, 32, 4, 1)
GEMM(tn_thin, true, false, 128, 32, 4, 1)
