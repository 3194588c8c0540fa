// expert_up.cu: the GEMMs over rows of expert_gemm.cu of a small depth, such as those by LoRA's B: y_e = alpha x_e op(w_e) + beta y_e for
// each of E experts over rows sorted by expert.
// Layout: x [S,K], y [S,N], w [E][N,K] (nt) or [E][K,N] (nn), starts [E+1] as there; K up to 64 and N are multiples of 8, addresses of 16
// bytes.
// A block of 8 warps makes 128 rows of 256 columns: x and w come into shared memory at once, a warp keeps its 16 rows of x in registers
// and walks over the columns, 32 at a time; blocks of little shared memory, so that many are under way. Each element is summed as
// expert_gemm.cu does it. Bytes: x, w and y once, y twice where beta is not 0. Goal: 80 % of copy.
// Elements: bf16, f16.
#include "experts.cuh"

template <bool TB>
__device__ void up(elem *y, const elem *x, const elem *w, const int *starts, int S, int E, int N, int K, float alpha, float beta) {
    constexpr int BM = 128, BN = 256, THREADS = 256;
    int e, row0;
    if (!block_tile<BM>(y, starts, S, E, N, beta, e, row0)) return;
    extern __shared__ __align__(16) uint8_t shared[];
    int depth = (K + 15) & ~15, ldx = depth + 8, ldw = TB ? ldx : BN + 8, col0 = blockIdx.x * BN;
    int64_t first = starts[e] + row0;
    int count = starts[e + 1] - (int)first;   // rows from row0 on
    uint32_t sx = smem(shared), sw = sx + BM * ldx * 2;
    x += first * K, w += (int64_t)e * N * K;
    for (int i = threadIdx.x; i < BM * (depth / 8); i += THREADS) {
        int r = i / (depth / 8), c = i % (depth / 8) * 8;
        bool valid = r < count && c < K;
        cp16(sx + (r * ldx + c) * 2, x + (valid ? (int64_t)r * K + c : 0), valid);
    }
    if (TB) {
        for (int i = threadIdx.x; i < BN * (depth / 8); i += THREADS) {
            int n = i / (depth / 8), c = i % (depth / 8) * 8;
            bool valid = col0 + n < N && c < K;
            cp16(sw + (n * ldw + c) * 2, w + (valid ? (int64_t)(col0 + n) * K + c : 0), valid);
        }
    } else {
        for (int i = threadIdx.x; i < depth * (BN / 8); i += THREADS) {
            int k = i / (BN / 8), n = i % (BN / 8) * 8;
            bool valid = k < K && col0 + n < N;
            cp16(sw + (k * ldw + n) * 2, w + (valid ? (int64_t)k * N + col0 + n : 0), valid);
        }
    }
    cp_commit();
    cp_wait<0>();
    __syncthreads();
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31, row = warp * 16;
    if (row >= count) return;
    uint32_t fa[4][4];
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (k * 16 < depth) ldmatrix4(fa[k], sx + ((row + (lane & 15)) * ldx + (lane >> 4) * 8 + k * 16) * 2);
    uint32_t pw = TB ? sw + (((lane & 7) + (lane >> 4) * 8) * ldw + (lane >> 3 & 1) * 8) * 2 : sw + (((lane & 7) + (lane >> 3 & 1) * 8) * ldw + (lane >> 4) * 8) * 2;
    for (int c = 0; c < BN && col0 + c < N; c += 32) {
        float acc[4][4] = {};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (k * 16 >= depth) break;
#pragma unroll
            for (int j = 0; j < 4; j += 2) {
                uint32_t fb[4];
                if (TB) ldmatrix4(fb, pw + ((c + j * 8) * ldw + k * 16) * 2);
                else ldmatrix4t(fb, pw + (k * 16 * ldw + c + j * 8) * 2);
                mma(acc[j], fa[k], fb[0], fb[1]);
                mma(acc[j + 1], fa[k], fb[2], fb[3]);
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int r = row + h * 8 + lane / 4;
            if (r < count) store_row<4>(nullptr, y, false, beta, (first + r) * N, col0 + c, N, [&](int j, int e) { return alpha * acc[j][2 * h + e]; });
        }
    }
}

// Grid (N / 256 rounded up, tiles of 128 rows and more, 1), block 256, dynamic shared memory 2 (128 ldx + (nt ? 256 ldx : 264 depth))
// bytes with depth K rounded up to 16 and ldx depth + 8.
extern "C" __global__ void __launch_bounds__(256, 4) expert_up_nn(elem *y, const elem *x, const elem *w, const int *starts, int S, int E, int N, int K, float alpha, float beta) {
    up<false>(y, x, w, starts, S, E, N, K, alpha, beta);
}
extern "C" __global__ void __launch_bounds__(256, 4) expert_up_nt(elem *y, const elem *x, const elem *w, const int *starts, int S, int E, int N, int K, float alpha, float beta) {
    up<true>(y, x, w, starts, S, E, N, K, alpha, beta);
}
