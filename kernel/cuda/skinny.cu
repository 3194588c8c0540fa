// skinny.cu: D = alpha X W^T + beta D for few rows X, as in generation: W is read once, as it is stored, at the speed of memory.
// Layout: X [M,K] elem; W [N,K] elem, or 4-bit codes of W as in nf4.cu; D [M,N] elem or fp32. K a multiple of 8, of 64
// for codes; rows of X and W at multiples of 16 bytes.
// A block makes 16 columns of D: W's rows are the 16 rows of mma.m16n8k16, X's the 8 columns, NT times; grid.y has X's rows 8 NT at a time. Sixteen warps share K in pieces of
// 128, each thread 16 bytes of a row of W at a time; inner indices are permuted alike in both operands, so that these 16 bytes are what
// its fragments hold. A warp adds its pieces in ascending order, the warps' sums are added in theirs. So a row of D has the same bits
// whatever the other rows are, and how many there are.
// A weight from codes is code[c] * absmax rounded to elem: the numbers of nf4_dequantise.
// Bytes: 2 N K, codes 0.52 N K (M up to 8). Goal: 85 % of copy.
// Elements: bf16, f16.
#include "common.cuh"

constexpr int WARPS = 16, PIECE = 128;

// Eight inner values of the rows of X at x, a multiple of 8 elements, for each tile of eight rows.
template <int NT>
struct Rows {
    uint4 v[NT];
    __device__ __forceinline__ void load(const elem *x, int K, int M, bool there) {
        int g = (threadIdx.x & 31) >> 2;
#pragma unroll
        for (int i = 0; i < NT; i++) {
            v[i] = make_uint4(0, 0, 0, 0);
            if (there && (int)blockIdx.y * 8 * NT + i * 8 + g < M) v[i] = *(const uint4 *)(x + (int64_t)(i * 8 + g) * K);
        }
    }
};

// The sums of a warp's fragments: acc[nt][0,1] are row g of the 16, columns 2t and 2t+1 of eight; [2,3] row g + 8.
template <int NT>
struct Sums {
    float acc[NT][4];
    __device__ __forceinline__ Sums() {
#pragma unroll
        for (int i = 0; i < NT; i++) acc[i][0] = acc[i][1] = acc[i][2] = acc[i][3] = 0.f;
    }
    // Adds eight inner values of both rows of W times those of X.
    __device__ __forceinline__ void add(const uint4 &w0, const uint4 &w1, const Rows<NT> &x) {
        uint32_t first[4] = {w0.x, w1.x, w0.y, w1.y}, second[4] = {w0.z, w1.z, w0.w, w1.w};
#pragma unroll
        for (int i = 0; i < NT; i++) {
            mma(acc[i], first, x.v[i].x, x.v[i].y);
            mma(acc[i], second, x.v[i].z, x.v[i].w);
        }
    }
    __device__ __forceinline__ void write(void *d, int n0, int M, int N, float alpha, float beta, int f32) {
        __shared__ float part[WARPS][128];
        int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        float *own = part[threadIdx.x >> 5];
#pragma unroll
        for (int i = 0; i < NT; i++) {
            if (i > 0) __syncthreads();
#pragma unroll
            for (int e = 0; e < 4; e++) own[(2 * t + (e & 1)) * 16 + g + 8 * (e >> 1)] = acc[i][e];
            __syncthreads();
            int m = ((int)blockIdx.y * NT + i) * 8 + (threadIdx.x >> 4), n = n0 + (threadIdx.x & 15);
            if (threadIdx.x < 128 && m < M && n < N) {
                float v = 0;
#pragma unroll
                for (int w = 0; w < WARPS; w++) v += part[w][threadIdx.x];
                v *= alpha;
                int64_t at = (int64_t)m * N + n;
                if (f32) ((float *)d)[at] = beta == 0.f ? v : fmaf(beta, ((float *)d)[at], v);
                else ((elem *)d)[at] = narrow(beta == 0.f ? v : fmaf(beta, widen(((elem *)d)[at]), v));
            }
        }
    }
};

template <int NT>
__device__ __forceinline__ void skinny(void *d, const elem *x, const elem *w, int M, int N, int K, float alpha, float beta, int f32) {
    constexpr int AT_ONCE = 4, ROWS = NT <= 2 ? AT_ONCE : 1;   // loads in flight, as registers allow
    x += (int64_t)blockIdx.y * 8 * NT * K;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, at = (lane & 3) * 8, n0 = blockIdx.x * 16;
    const elem *w0 = w + (int64_t)min(n0 + g, N - 1) * K + at, *w1 = w + (int64_t)min(n0 + g + 8, N - 1) * K + at;
    Sums<NT> sums;
#pragma unroll 1
    for (int k = warp * PIECE; k < K; k += WARPS * PIECE) {
        uint4 a[AT_ONCE], b[AT_ONCE];
        Rows<NT> rows[ROWS];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            a[j] = b[j] = make_uint4(0, 0, 0, 0);
            if (k + j * 32 + at < K) a[j] = __ldcs((const uint4 *)(w0 + k + j * 32)), b[j] = __ldcs((const uint4 *)(w1 + k + j * 32));
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (ROWS > 1) rows[j % ROWS].load(x + k + j * 32 + at, K, M, k + j * 32 + at < K);
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            if (ROWS == 1) rows[0].load(x + k + j * 32 + at, K, M, k + j * 32 + at < K);
            sums.add(a[j], b[j], rows[j % ROWS]);
        }
    }
    sums.write(d, n0, M, N, alpha, beta, f32);
}

// Eight weights of a row from four bytes of codes, as elem.
__device__ __forceinline__ uint4 weights(uint32_t q, const float *table, float absmax) {
    float f[8];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t b = q >> (8 * i);
        f[2 * i] = table[b >> 4 & 15] * absmax;
        f[2 * i + 1] = table[b & 15] * absmax;
    }
    return make_uint4(pack2(f[0], f[1]), pack2(f[2], f[3]), pack2(f[4], f[5]), pack2(f[6], f[7]));
}

// Each thread takes 32 neighbours of a row, which have one absmax: 16 bytes of codes.
template <int NT, bool NESTED>
__device__ __forceinline__ void skinny_codes(void *d, const elem *x, const uint8_t *codes, const float *code, const float *absmax, const uint8_t *scale8, const float *map,
                                             const float *scale2, const float *offset, int M, int N, int K, float alpha, float beta, int f32) {
    __shared__ float table[16], nested[256];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, at = (lane & 3) * 32, n0 = blockIdx.x * 16;
    if (threadIdx.x < 16) table[threadIdx.x] = code[threadIdx.x];
    if (NESTED && threadIdx.x < 256) nested[threadIdx.x] = map[threadIdx.x];
    float shift = NESTED ? *offset : 0.f;
    __syncthreads();
    x += (int64_t)blockIdx.y * 8 * NT * K;
    int64_t row[2] = {(int64_t)min(n0 + g, N - 1) * K + at, (int64_t)min(n0 + g + 8, N - 1) * K + at};
    Sums<NT> sums;
#pragma unroll 1
    for (int k = warp * PIECE; k < K; k += WARPS * PIECE) {
        bool there = k + at < K;
        uint4 q[2];
        float a[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            q[r] = make_uint4(0, 0, 0, 0), a[r] = 0.f;
            if (there) {
                int64_t i = row[r] + k;
                q[r] = __ldcs((const uint4 *)(codes + (i >> 1)));
                a[r] = NESTED ? __fadd_rn(__fmul_rn(nested[scale8[i >> 6]], scale2[i >> 14]), shift) : absmax[i >> 6];
            }
        }
        uint32_t q0[4] = {q[0].x, q[0].y, q[0].z, q[0].w}, q1[4] = {q[1].x, q[1].y, q[1].z, q[1].w};
        constexpr bool AHEAD = NT <= 2;
        Rows<NT> rows[AHEAD ? 4 : 1];
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (AHEAD) rows[AHEAD ? j : 0].load(x + k + at + j * 8, K, M, there);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (!AHEAD) rows[0].load(x + k + at + j * 8, K, M, there);
            sums.add(weights(q0[j], table, a[0]), weights(q1[j], table, a[1]), rows[AHEAD ? j : 0]);
        }
    }
    sums.write(d, n0, M, N, alpha, beta, f32);
}

// Grid (N / 16, M / 8 NT), rounded up, block 512.
// Blocks a multiprocessor that the registers of the forms for up to 16 rows leave room for, where the compiler manages it without spills.
#if __CUDA_ARCH__ == 900
#define TWO 2
#else
#define TWO 1
#endif
#define SKINNY(NT, BLOCKS) \
    extern "C" __global__ void __launch_bounds__(512, BLOCKS) skinny_##NT(void *d, const elem *x, const elem *w, int M, int N, int K, float alpha, float beta, int f32) { \
        skinny<NT>(d, x, w, M, N, K, alpha, beta, f32); \
    } \
    extern "C" __global__ void __launch_bounds__(512, BLOCKS) skinny_nf4_##NT(void *d, const elem *x, const uint8_t *codes, const float *code, const float *absmax, \
        int M, int N, int K, float alpha, float beta, int f32) { \
        skinny_codes<NT, false>(d, x, codes, code, absmax, 0, 0, 0, 0, M, N, K, alpha, beta, f32); \
    } \
    extern "C" __global__ void __launch_bounds__(512, BLOCKS) skinny_nf4_nested_##NT(void *d, const elem *x, const uint8_t *codes, const float *code, const uint8_t *scale8, \
        const float *map, const float *scale2, const float *offset, int M, int N, int K, float alpha, float beta, int f32) { \
        skinny_codes<NT, true>(d, x, codes, code, 0, scale8, map, scale2, offset, M, N, K, alpha, beta, f32); \
    }
SKINNY(1, TWO)
SKINNY(2, TWO)
SKINNY(4, 1)
