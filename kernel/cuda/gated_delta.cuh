// gated_delta.cuh: what the kernels of the gated delta rule share. They go over a sequence in chunks of CHUNK tokens, counted from its
// first, so that a sequence's numbers do not depend on where it lies. In a chunk with the state S0 before it, gam_i the sum of the
// logarithms of the decays up to token i, and rows normed:
//   A_ij = beta_i exp(gam_i - gam_j) k_i k_j, j < i      P_ij = exp(gam_i - gam_j) q_i k_j, j <= i
//   X_i = beta_i (v_i - exp(gam_i) S0' k_i)              (1 + A) Y = X
//   o_i = exp(gam_i) S0' q_i + sum_j P_ij Y_j            S = exp(gam_last) S0 + sum_j exp(gam_last - gam_j) k_j Y_j'
// (Yang et al., "Parallelizing Linear Transformers with the Delta Rule over Sequence Length", 2024, with decays). Rows of Y are what the
// rule adds at each token. (1 + A)^-1 is made of blocks: 8 x 8 by substitution, then 16 and 32.
// Matrices lie in shared memory as fp32 and are multiplied as TF32. Where elem is bf16 operands are rounded to its 10 bits of mantissa,
// where it is f16 or f32 they are split in two, which leaves 21 bits.
#pragma once
#include "sigmoid.cuh"

enum {
    CHUNK = 32,
    HEAD = 128,        // columns of a query or key in shared memory: zeros from D on
    LDK = HEAD + 4,    // floats of its row
    LDC = CHUNK + 4,   // of a row of A and P
};

// Blocks that a multiprocessor's shared memory has room for.
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
#define BLOCKS 2
#else
#define BLOCKS 1
#endif

#if defined(ELEM_F16) || defined(ELEM_F32)
#define OPERANDS_SPLIT
typedef float kept;   // a state or its gradient in global memory, between kernels
#else
typedef bf16 kept;
#endif

// Inputs of the rule, as kernel.GatedDelta names them.
struct Rule {
    const elem *qkv, *b, *a;
    const float *log_a, *dt;
    const int *cu;
    int M, S, K, V, D, E;
    int from, to;   // the chunks that begin in these rows are gone through
    __device__ int64_t width() const { return (int64_t)2 * K * D + (int64_t)V * E; }
    __device__ const elem *row(int64_t m) const { return qkv + m * width(); }
    __device__ int value_at(int v) const { return 2 * K * D + v * E; }
    __device__ int first(int s) const { return min(cu[s], M); }
    __device__ float query_scale() const { return 1.f / sqrtf((float)D); }
    // The row where the first of a sequence's chunks begins that begin at or behind a row.
    __device__ int chunk_from(int first, int row) const { return first < row ? first + (row - first + CHUNK - 1) / CHUNK * CHUNK : first; }
    // Where the state of value head v lies that is kept at a row where a chunk begins; no two of them lie in one stretch of CHUNK rows.
    __device__ int64_t kept_at(int row, int v) const { return ((int64_t)((row - from) / CHUNK) * V + v) * D * E; }
};

__device__ __forceinline__ float tf32(float x) {
    uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return __uint_as_float(r);
}
// A number as it lies in shared memory as an operand.
__device__ __forceinline__ float operand(float x) {
#ifdef OPERANDS_SPLIT
    return x;
#else
    return tf32(x);
#endif
}

__device__ __forceinline__ void mma_tf32(float *d, const float *a, float b0, float b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)),
                   "r"(__float_as_uint(b1)));
}

// d[16, 8 NT] += a[16, 8 KS] b. a(i, k) is an operand; b(k, n) is that of column 8 n + lane/4. A thread holds, of each 8 columns, rows
// lane/4 and 8 more, columns 2 (lane%4) and the next.
template <int NT, int KS, int UNROLL = 2, class A, class B>
__device__ __forceinline__ void product(float (*d)[4], A a, B b) {
    int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
#pragma unroll UNROLL
    for (int k = 0; k < 8 * KS; k += 8) {
        float x[4] = {a(g, k + t), a(g + 8, k + t), a(g, k + t + 4), a(g + 8, k + t + 4)};
#ifdef OPERANDS_SPLIT
        float high[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; i++) high[i] = tf32(x[i]), low[i] = tf32(x[i] - high[i]);
#endif
#pragma unroll
        for (int n = 0; n < NT; n++) {
            float y0 = b(k + t, n), y1 = b(k + t + 4, n);
#ifdef OPERANDS_SPLIT
            float h0 = tf32(y0), h1 = tf32(y1);
            mma_tf32(d[n], low, h0, h1);
            mma_tf32(d[n], high, tf32(y0 - h0), tf32(y1 - h1));
            mma_tf32(d[n], high, h0, h1);
#else
            mma_tf32(d[n], x, y0, y1);
#endif
        }
    }
}

// Four neighbours as they lie in global memory, and two.
#ifdef ELEM_F32
typedef float4 Four;
typedef float2 Two;
__device__ __forceinline__ float4 widen4(Four u) { return u; }
__device__ __forceinline__ float2 widen_two(Two u) { return u; }
#else
typedef uint2 Four;
typedef uint32_t Two;
__device__ __forceinline__ float2 widen_two(Two u) { return unpack2(u); }
__device__ __forceinline__ float4 widen4(Four u) {
    float2 x = unpack2(u.x), y = unpack2(u.y);
    return make_float4(x.x, x.y, y.x, y.y);
}
#endif
__device__ __forceinline__ Four four(const elem *p, bool inside) { return inside ? *(const Four *)p : Four{}; }
__device__ __forceinline__ Two two(const elem *p, bool inside) { return inside ? *(const Two *)p : Two{}; }
__device__ __forceinline__ float4 load4(const elem *p, bool inside) { return widen4(four(p, inside)); }
__device__ __forceinline__ float4 load_kept(const float *p, bool inside) { return inside ? *(const float4 *)p : make_float4(0.f, 0.f, 0.f, 0.f); }
__device__ __forceinline__ float4 load_kept(const bf16 *p, bool inside) {
    uint2 u = inside ? *(const uint2 *)p : make_uint2(0, 0);
    float2 x = widen2(*(__nv_bfloat162 *)&u.x), y = widen2(*(__nv_bfloat162 *)&u.y);
    return make_float4(x.x, x.y, y.x, y.y);
}
__device__ __forceinline__ void store_kept(float *p, float x, float y) { *(float2 *)p = make_float2(x, y); }
__device__ __forceinline__ void store_kept(bf16 *p, float x, float y) { *(__nv_bfloat162 *)p = __floats2bfloat162_rn(x, y); }
__device__ __forceinline__ void store_operands(float *p, float4 x) { *(float4 *)p = make_float4(operand(x.x), operand(x.y), operand(x.z), operand(x.w)); }

__device__ __forceinline__ float square(float4 x) { return (x.x * x.x + x.y * x.y) + (x.z * x.z + x.w * x.w); }
// 1/norm of n rows whose squares a warp's lanes hold parts of.
template <int N>
__device__ __forceinline__ void norm_factors(float (&f)[N]) {
#pragma unroll
    for (int w = 16; w; w /= 2)
#pragma unroll
        for (int i = 0; i < N; i++) f[i] += __shfl_xor_sync(~0u, f[i], w);
#pragma unroll
    for (int i = 0; i < N; i++) f[i] = rsqrtf(f[i] + 1e-6f);
}

// A chunk of queries or keys on its way from global to shared memory, in the registers of 8 warps.
struct Rows {
    Four x[CHUNK / 8];
    __device__ __forceinline__ void fetch(const elem *from, int64_t width, int count, int D) {
        int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < CHUNK / 8; i++) x[i] = four(from + (warp + 8 * i) * width + 4 * lane, warp + 8 * i < count && 4 * lane < D);
    }
    // Each row over its norm and times by. inverse gets 1/norm, if it is not 0.
    __device__ __forceinline__ void store(float *to, float *inverse, float by) const {
        int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
        float n[CHUNK / 8];
#pragma unroll
        for (int i = 0; i < CHUNK / 8; i++) n[i] = square(widen4(x[i]));
        norm_factors(n);
#pragma unroll
        for (int i = 0; i < CHUNK / 8; i++) {
            float4 v = widen4(x[i]);
            float f = n[i] * by;
            store_operands(to + (warp + 8 * i) * LDK + 4 * lane, make_float4(v.x * f, v.y * f, v.z * f, v.w * f));
            if (inverse && lane == 0) inverse[warp + 8 * i] = n[i];
        }
    }
};

// The logarithm of a decay whose gate is a.
__device__ __forceinline__ float log_decay(float a, float log_a, float dt) {
    float x = a + dt;
    return -expf(log_a) * (fmaxf(x, 0.f) + log1pf(expf(-fabsf(x))));
}

// The gates of a chunk's tokens. Tokens beyond its last change nothing. Sums of logarithms are kept as two floats: their differences are
// as exact as those of neighbours.
struct Gates {
    float gam[CHUNK], low[CHUNK], decay[CHUNK], rest[CHUNK], beta[CHUNK];   // decay = exp(gam), rest = exp(gam_last - gam)
    float whole;                                                            // exp(gam_last)
    __device__ __forceinline__ float between(int i, int j) const { return expf((gam[i] - gam[j]) + (low[i] - low[j])); }
    // A warp's work, of the inputs of its lane's token.
    __device__ __forceinline__ void store(float a, float b, float log_a, float dt, int count) {
        int lane = threadIdx.x & 31;
        double sum = lane < count ? log_decay(a, log_a, dt) : 0.f;
#pragma unroll
        for (int o = 1; o < 32; o *= 2) {
            double before = __shfl_up_sync(~0u, sum, o);
            if (lane >= o) sum += before;
        }
        double last = __shfl_sync(~0u, sum, 31);
        gam[lane] = (float)sum;
        low[lane] = (float)(sum - (float)sum);
        decay[lane] = expf((float)sum) * (1.f + low[lane]);
        rest[lane] = expf((float)(last - sum));
        beta[lane] = lane < count ? sigmoid(b) : 0.f;
        if (lane == 31) whole = decay[31];
    }
};

// A warp makes (1 + A)^-1 of A, which is strictly lower, in its place. All are operands. scratch: INVERT floats.
enum { LDM = 24, INVERT = 16 * LDM };
__device__ __forceinline__ void invert(float *A, float *scratch) {
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    float *square = A + 8 * (lane >> 3) * (LDC + 1), x[8];   // column lane % 8 of one of the four squares of 8 on the diagonal
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x[i] = i == (lane & 7) ? 1.f : 0.f;
#pragma unroll
        for (int j = 0; j < i; j++) x[i] -= square[i * LDC + j] * x[j];
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; i++) square[i * LDC + (lane & 7)] = operand(x[i]);
    __syncwarp();
#pragma unroll
    for (int half = 0; half < 2; half++) {   // the square below the first of two, of each half
        float *own = A + 16 * half * (LDC + 1), *low = own + 8 * LDC, u = 0.f, v = 0.f;
#pragma unroll
        for (int l = 0; l < 8; l++) u += low[g * LDC + l] * own[l * LDC + 2 * t], v += low[g * LDC + l] * own[l * LDC + 2 * t + 1];
        *(float2 *)(scratch + 64 * half + 8 * g + 2 * t) = make_float2(u, v);
    }
    __syncwarp();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float *low = A + 16 * half * (LDC + 1) + 8 * LDC, *m = scratch + 64 * half, u = 0.f, v = 0.f;
#pragma unroll
        for (int l = 0; l < 8; l++) u -= low[g * LDC + 8 + l] * m[8 * l + 2 * t], v -= low[g * LDC + 8 + l] * m[8 * l + 2 * t + 1];
        *(float2 *)(low + g * LDC + 2 * t) = make_float2(operand(u), operand(v));
    }
    __syncwarp();
    float c[2][4] = {}, d[2][4] = {};   // the lower left 16 x 16
    product<2, 2>(c, [&](int i, int l) { return A[(16 + i) * LDC + l]; }, [&](int l, int n) { return A[l * LDC + 8 * n + g]; });
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) *(float2 *)(scratch + (g + 8 * i) * LDM + 8 * n + 2 * t) = make_float2(operand(c[n][2 * i]), operand(c[n][2 * i + 1]));
    __syncwarp();
    product<2, 2>(d, [&](int i, int l) { return A[(16 + i) * LDC + 16 + l]; }, [&](int l, int n) { return scratch[l * LDM + 8 * n + g]; });
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            *(float2 *)(A + (16 + g + 8 * i) * LDC + 8 * n + 2 * t) = make_float2(operand(-d[n][2 * i]), operand(-d[n][2 * i + 1]));
}

// Calls f(n, i, at, own) for the pairs of a state's numbers that a thread holds, in columns e0 on, of rows 16 warp + lane/4 + 8 i and columns
// 8 n + 2 (lane%4): at is a pair's place in [D,E], own that in shared memory.
template <int COLS, class F>
__device__ __forceinline__ void each_pair(const Rule &r, int e0, F f, float *s) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int d = 16 * warp + (lane >> 2) + 8 * i, e = 8 * n + 2 * (lane & 3);
            if (d < r.D && e0 + e < r.E) f(n, i, (int64_t)d * r.E + e0 + e, s + d * (COLS + 8) + e);
        }
}

// Zeros in n columns of a row of which a thread of so many writes its share, for the rows that no sequence has: those before the first
// and behind the last.
__device__ __forceinline__ void clear_rows(elem *m, int64_t width, int n, int from, int to, int thread, int threads) {
    for (int64_t i = thread; i < (int64_t)(to - from) * n; i += threads) m[(from + i / n) * width + i % n] = narrow(0.f);
}
