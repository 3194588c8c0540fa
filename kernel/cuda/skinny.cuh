// skinny.cuh: what the skinny_* kernels share: a block's 16 rows of weights times the few rows of X, and the sums of its warps.
// The 16 rows are those of mma.m16n8k16, X's rows its 8 columns, NT times; grid.y has X's rows 8 NT at a time. Sixteen warps share K in
// pieces of 128, each thread 16 bytes of a row of W at a time; inner indices are permuted alike in both operands, so that these 16 bytes
// are what its fragments hold. A warp adds its pieces in ascending order; the sums of four warps are added in theirs, then the four sums of
// four. So a row of D has the same bits whatever the other rows are, and how many there are (skinny_tile.cuh keeps to this order).
// The first piece of the weights is read before the kernel waits for those that make X (early.cuh), and later ones are fetched by then.
#pragma once
#include "common.cuh"
#include "early.cuh"

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
    // Calls put(m, n, sum) in the first 128 threads, n of the 16 rows of W: in all of them, m may be M and more.
    template <typename Put>
    __device__ __forceinline__ void each(Put put) {
        __shared__ float part[WARPS][128];
        int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        float *own = part[threadIdx.x >> 5];
#pragma unroll
        for (int i = 0; i < NT; i++) {
            if (i > 0) __syncthreads();
#pragma unroll
            for (int e = 0; e < 4; e++) own[(2 * t + (e & 1)) * 16 + g + 8 * (e >> 1)] = acc[i][e];
            __syncthreads();
            if (threadIdx.x < 128) {
                float v = 0;
#pragma unroll
                for (int w = 0; w < WARPS; w += 4) {
                    float four = 0;
#pragma unroll
                    for (int i = 0; i < 4; i++) four += part[w + i][threadIdx.x];
                    v += four;
                }
                put(((int)blockIdx.y * NT + i) * 8 + (threadIdx.x >> 4), threadIdx.x & 15, v);
            }
        }
    }
    // D = alpha sums + beta D, from column n0 of D [M,N] on.
    __device__ __forceinline__ void write(void *d, int n0, int M, int N, float alpha, float beta, int f32) {
        each([=](int m, int n, float v) {
            if (m >= M || n0 + n >= N) return;
            v *= alpha;
            int64_t at = (int64_t)m * N + n0 + n;
            if (f32) ((float *)d)[at] = beta == 0.f ? v : fmaf(beta, ((float *)d)[at], v);
            else ((elem *)d)[at] = narrow(beta == 0.f ? v : fmaf(beta, widen(((elem *)d)[at]), v));
        });
    }
    // Columns n0 to n0 + 7 of H [M,N] = silu(gate) up, the first eight rows of W being the gate's; both are rounded to elem first.
    __device__ __forceinline__ void write_gated(elem *h, int n0, int M, int N) {
        each([=](int m, int n, float v) {
            v = widen(narrow(v));
            float up = __shfl_xor_sync(~0u, v, 8);
            if (n < 8 && m < M && n0 + n < N) h[(int64_t)m * N + n0 + n] = narrow(v * (1.f / (1.f + __expf(-v))) * up);
        });
    }
};

// A weight's rows as they are stored: [N,K] elem.
struct Dense {
    const elem *w;
};

// Two rows of a weight, or one of each of two.
struct DenseRows {
    const elem *w0, *w1;
    __device__ __forceinline__ DenseRows(const Dense &a, int row0, const Dense &b, int row1, int K) : w0(a.w + (int64_t)row0 * K), w1(b.w + (int64_t)row1 * K) {}
    template <int NT>
    __device__ __forceinline__ Sums<NT> times(const elem *x, int M, int K) const;
};

template <int NT>
__device__ __forceinline__ Sums<NT> DenseRows::times(const elem *x, int M, int K) const {
    constexpr int AT_ONCE = 4, ROWS = NT <= 2 ? AT_ONCE : 1;   // loads in flight, as registers allow
    constexpr bool AHEAD = NT != 2;                            // the first piece waits in registers, else in the cache
    x += (int64_t)blockIdx.y * 8 * NT * K;
    int lane = threadIdx.x & 31, at = (lane & 3) * 8, k = (threadIdx.x >> 5) * PIECE;
    uint4 a[AT_ONCE], b[AT_ONCE];
    auto load = [&]() {
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            int i = k + j * 32 + at;
            a[j] = b[j] = make_uint4(0, 0, 0, 0);
            if (i < K) a[j] = __ldcs((const uint4 *)(w0 + i)), b[j] = __ldcs((const uint4 *)(w1 + i));
        }
    };
    if (AHEAD) load();
    if ((lane & 1) == 0)
        for (int i = k + (AHEAD ? WARPS * PIECE : 0) + at * 4; i < K; i += WARPS * PIECE) prefetch(w0 + i), prefetch(w1 + i);   // of a piece's 256 bytes two threads fetch half each
    wait_for_earlier();
    Sums<NT> sums;
#pragma unroll 1
    while (k < K) {
        if (!AHEAD) load();
#pragma unroll
        for (int first = 0; first < AT_ONCE; first += ROWS) {
            Rows<NT> rows[ROWS];
#pragma unroll
            for (int j = 0; j < ROWS; j++) rows[j].load(x + k + (first + j) * 32 + at, K, M, k + (first + j) * 32 + at < K);
#pragma unroll
            for (int j = 0; j < ROWS; j++) sums.add(a[first + j], b[first + j], rows[j]);
        }
        k += WARPS * PIECE;
        if (AHEAD && k < K) load();
    }
    return sums;
}

// A weight's 4-bit codes and scales as in nf4.cu. NESTED: absmax is scale8, scale2, offset.
template <bool NESTED>
struct Codes {
    const uint8_t *codes;
    const float *absmax;
    const uint8_t *scale8;
    const float *scale2, *offset;
};

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

// The tables of codes and of nested scales, in shared memory.
struct Tables {
    const float *code, *map;
};

// Two rows of codes. Each thread takes 32 neighbours of a row, which have one absmax: 16 bytes of codes.
template <bool NESTED>
struct CodeRows {
    Codes<NESTED> a, b;
    int64_t row0, row1;
    __device__ __forceinline__ CodeRows(const Codes<NESTED> &a, int row0, const Codes<NESTED> &b, int row1, int K) : a(a), b(b), row0((int64_t)row0 * K), row1((int64_t)row1 * K) {}
    template <int NT>
    __device__ __forceinline__ Sums<NT> times(const elem *x, const Tables &tables, int M, int K) const;
};

template <bool NESTED>
template <int NT>
__device__ __forceinline__ Sums<NT> CodeRows<NESTED>::times(const elem *x, const Tables &tables, int M, int K) const {
    constexpr bool AHEAD = NT <= 2;   // the first piece of codes waits in registers, rows of X are read together
    __shared__ float table[16], nested[256];
    int lane = threadIdx.x & 31, at = (lane & 3) * 32, k = (threadIdx.x >> 5) * PIECE;
    if (threadIdx.x < 16) table[threadIdx.x] = tables.code[threadIdx.x];
    if (NESTED && threadIdx.x < 256) nested[threadIdx.x] = tables.map[threadIdx.x];
    float shift[2] = {NESTED ? *a.offset : 0.f, NESTED ? *b.offset : 0.f};
    __syncthreads();
    x += (int64_t)blockIdx.y * 8 * NT * K;
    uint4 q[2];
    float scale[2];
    auto one = [&](const Codes<NESTED> &c, int64_t i, float shift, uint4 &q, float &scale) {
        q = __ldcs((const uint4 *)(c.codes + (i >> 1)));
        scale = NESTED ? __fadd_rn(__fmul_rn(nested[c.scale8[i >> 6]], c.scale2[i >> 14]), shift) : c.absmax[i >> 6];
    };
    auto load = [&]() {
        q[0] = q[1] = make_uint4(0, 0, 0, 0), scale[0] = scale[1] = 0.f;
        if (k + at < K) one(a, row0 + k + at, shift[0], q[0], scale[0]), one(b, row1 + k + at, shift[1], q[1], scale[1]);
    };
    if (AHEAD) load();
    if ((lane & 3) == 0)
        for (int i = k + (AHEAD ? WARPS * PIECE : 0); i < K; i += WARPS * PIECE) prefetch(a.codes + (row0 + i >> 1)), prefetch(b.codes + (row1 + i >> 1));
    wait_for_earlier();
    Sums<NT> sums;
#pragma unroll 1
    while (k < K) {
        if (!AHEAD) load();
        bool there = k + at < K;
        uint32_t q0[4] = {q[0].x, q[0].y, q[0].z, q[0].w}, q1[4] = {q[1].x, q[1].y, q[1].z, q[1].w};
        Rows<NT> rows[AHEAD ? 4 : 1];
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (AHEAD) rows[AHEAD ? j : 0].load(x + k + at + j * 8, K, M, there);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (!AHEAD) rows[0].load(x + k + at + j * 8, K, M, there);
            sums.add(weights(q0[j], table, scale[0]), weights(q1[j], table, scale[1]), rows[AHEAD ? j : 0]);
        }
        k += WARPS * PIECE;
        if (AHEAD && k < K) load();
    }
    return sums;
}

// Blocks a multiprocessor that the registers of the forms for up to 16 rows leave room for, where the compiler manages it without spills.
#if __CUDA_ARCH__ == 900
#define TWO 2
#else
#define TWO 1
#endif
