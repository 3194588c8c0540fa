// expert_up.cu: the GEMMs over rows of expert_gemm.cu of a small depth, such as those by LoRA's B: y_e = alpha x_e op(w_e) + beta y_e for
// each of E experts over rows sorted by expert.
// Layout: x [S,K], y [S,N], w [E][N,K] (nt) or [E][K,N] (nn), starts [E+1] as there; K up to 64 and N are multiples of 8, addresses of 16
// bytes.
// A block of 4 warps makes 64 rows of 128 columns: x, w and, where beta is not 0, y come into shared memory at once. A warp keeps its 16
// rows of x in registers, walks over the columns, 16 at a time, and leaves the sums in shared memory, from where rows go out in pieces of 256
// bytes. Each element is summed as expert_gemm.cu does it. So that instructions do not bound it, one warp searches the block's tile, and a
// lane's addresses are found once. Bytes: x, w and y once, y twice where beta is not 0. Goal: 80 % of copy.
// Elements: bf16, f16.
#include "experts.cuh"

constexpr int BM = 64, BN = 128, THREADS = 128, LDY = BN + 8;

// STEPS of 16 are K's, ONTO: beta is not 0.
template <bool TB, int STEPS, bool ONTO>
__device__ __forceinline__ void tile(elem *y, const elem *x, const elem *w, int count, int N, int K, int columns, float alpha, float beta) {
    constexpr int DEPTH = 16 * STEPS, LDX = DEPTH + 8, LDW = TB ? LDX : BN + 8, PIECES = DEPTH / 8;   // 16-byte pieces of a row of x
    extern __shared__ __align__(16) uint8_t shared[];
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31, row = warp * 16, r0 = lane / 16, c0 = lane % 16 * 8;
    elem *sx = (elem *)shared, *sw = sx + BM * LDX, *sy = sw + (TB ? BN : DEPTH) * LDW + row * LDY;   // sy: the warp's
    int left = c0 < columns ? count - row - r0 : 0;   // rows from the lane's first on, of which it moves every other, 8 columns
    y += (int64_t)(row + r0) * N + c0;
    elem *own = sy + r0 * LDY + c0;
    if (ONTO) {
#pragma unroll
        for (int r = 0; r < 16; r += 2)
            if (r < left) cp16(smem(own + r * LDY), y + (int64_t)r * N, true);
    }
#pragma unroll
    for (int i = threadIdx.x; i < BM * PIECES; i += THREADS) {
        int r = i / PIECES, c = i % PIECES * 8;
        bool valid = r < count && c < K;
        cp16(smem(sx + r * LDX + c), x + (valid ? r * K + c : 0), valid);
    }
#pragma unroll
    for (int i = threadIdx.x; i < BN * PIECES; i += THREADS) {
        int r = TB ? i / PIECES : i / (BN / 8), c = TB ? i % PIECES * 8 : i % (BN / 8) * 8;
        bool valid = TB ? r < columns && c < K : r < K && c < columns;
        cp16(smem(sw + r * LDW + c), w + (valid ? (int64_t)r * (TB ? K : N) + c : 0), valid);
    }
    cp_commit();
    cp_wait<0>();
    __syncthreads();
    if (row >= count) return;
    uint32_t fa[STEPS][4];
#pragma unroll
    for (int k = 0; k < STEPS; k++) ldmatrix4(fa[k], smem(sx + (row + (lane & 15)) * LDX + (lane >> 4) * 8 + k * 16));
    uint32_t pw = smem(TB ? sw + ((lane & 7) + (lane >> 4) * 8) * LDW + (lane >> 3 & 1) * 8 : sw + ((lane & 7) + (lane >> 3 & 1) * 8) * LDW + (lane >> 4) * 8);
    elem *pair = sy + lane / 4 * LDY + (lane & 3) * 2;   // the lane's first
#pragma unroll
    for (int c = 0; c < BN; c += 16) {
        float acc[2][4] = {};
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            uint32_t fb[4];
            if (TB) ldmatrix4(fb, pw + (c * LDW + k * 16) * 2);
            else ldmatrix4t(fb, pw + (k * 16 * LDW + c) * 2);
            mma(acc[0], fa[k], fb[0], fb[1]);
            mma(acc[1], fa[k], fb[2], fb[3]);
        }
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                elem *at = pair + h * 8 * LDY + c + j * 8;
                float s = alpha * acc[j][2 * h], t = alpha * acc[j][2 * h + 1];
                if (ONTO) {
                    float2 old = load2(at);
                    s = fmaf(beta, old.x, s), t = fmaf(beta, old.y, t);
                }
                store2(at, s, t);
            }
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < 16; r += 2)
        if (r < left) store8_whole(y + (int64_t)r * N, load8(own + r * LDY));
}

// The tile, added to y or not.
template <bool TB, int STEPS>
__device__ __forceinline__ void tile_by_beta(elem *y, const elem *x, const elem *w, int count, int N, int K, int columns, float alpha, float beta) {
    if (beta != 0.f) tile<TB, STEPS, true>(y, x, w, count, N, K, columns, alpha, beta);
    else tile<TB, STEPS, false>(y, x, w, count, N, K, columns, alpha, beta);
}

template <bool TB>
__device__ void up(elem *y, const elem *x, const elem *w, const int *starts, int S, int E, int N, int K, float alpha, float beta) {
    __shared__ int found[3];
    if (threadIdx.x < 32) {
        int e = E, row = 0, first = 0, before = 0;
        expert_tile<BM, 4>(starts, E, blockIdx.y, e, row, first, before);
        if (threadIdx.x == 0) found[0] = e, found[1] = row, found[2] = before;
    }
    __syncthreads();
    int e = found[0], row = found[1], before = found[2];   // e is E where there is none
    if (e == E) {
        behind_tiles(y, starts, S, E, N, beta, before);
        return;
    }
    int64_t first = starts[e] + row;
    int count = min(starts[e + 1] - (int)first, BM), col0 = blockIdx.x * BN, columns = min(N - col0, BN);
    y += first * N + col0, x += first * K, w += (int64_t)e * N * K + (int64_t)col0 * (TB ? K : 1);
    if (K <= 16) tile_by_beta<TB, 1>(y, x, w, count, N, K, columns, alpha, beta);
    else if (K <= 32) tile_by_beta<TB, 2>(y, x, w, count, N, K, columns, alpha, beta);
    else if (K <= 48) tile_by_beta<TB, 3>(y, x, w, count, N, K, columns, alpha, beta);
    else tile_by_beta<TB, 4>(y, x, w, count, N, K, columns, alpha, beta);
}

// Grid (N / 128 rounded up, tiles of 64 rows and more, 1), block 128, dynamic shared memory 2 (64 (ldx + 136) + (nt ? 128 ldx : 136 depth))
// bytes with depth K rounded up to 16 and ldx depth + 8.
extern "C" __global__ void __launch_bounds__(128, 8) expert_up_nn(elem *y, const elem *x, const elem *w, const int *starts, int S, int E, int N, int K, float alpha, float beta) {
    up<false>(y, x, w, starts, S, E, N, K, alpha, beta);
}
extern "C" __global__ void __launch_bounds__(128, 8) expert_up_nt(elem *y, const elem *x, const elem *w, const int *starts, int S, int E, int N, int K, float alpha, float beta) {
    up<true>(y, x, w, starts, S, E, N, K, alpha, beta);
}
