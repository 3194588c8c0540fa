// gated_delta.cuh: what the kernels of the gated delta rule share. They go over a sequence in chunks of CHUNK tokens, counted from its
// first, so that a sequence's numbers do not depend on where it lies. In a chunk with the state S0 before it, gam_i the sum of the
// logarithms of the decays up to token i, and rows normed:
//   A_ij = beta_i exp(gam_i - gam_j) k_i k_j, j < i      P_ij = exp(gam_i - gam_j) q_i k_j, j <= i      T = (1 + A)^-1
//   X_i = beta_i (v_i - exp(gam_i) S0' k_i)              Y = T X
//   o_i = exp(gam_i) S0' q_i + sum_j P_ij Y_j            S = exp(gam_last) S0 + sum_j exp(gam_last - gam_j) k_j Y_j'
// (Yang et al., "Parallelizing Linear Transformers with the Delta Rule over Sequence Length", 2024, with decays). Rows of Y are what the
// rule adds at each token. T, P and the gates do not depend on the state: gated_delta_prepare makes them for all chunks of a window of
// rows at once, a Prepared for each row and value head.
#pragma once
#include "sigmoid.cuh"

enum { CHUNK = 32, HEAD = 128 };   // columns of a query or key in shared memory: zeros from D on

#if defined(ELEM_F16) || defined(ELEM_F32)
#define OPERANDS_SPLIT
enum { PARTS = 1 };
typedef float kept;   // a state or its gradient in global memory, between kernels, and a part of a number of T and P
#else
enum { PARTS = 2 };   // the number rounded, and the rest rounded
typedef bf16 kept;
#endif

// What a token's value head has of its chunk.
enum Gate { OF_KEY, OF_QUERY, OF_REST, BETA, DECAY, GAM, LOW, GATES = 8 };   // see gated_delta_prepare.cu
struct __align__(16) Prepared {
    kept t[PARTS][CHUNK], p[PARTS][CHUNK];   // its rows of T and P
    float gate[GATES];
};

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
    // Whether rows of heads are whole units of 16 bytes.
    __device__ bool wide() const { return (D | E) % 8 == 0; }
    // Where a row's value head v is prepared.
    __device__ int64_t prepared_at(int row, int v) const { return (int64_t)(row - from) * V + v; }
    // Where the state of value head v lies that is kept at a row where a chunk begins; no two of them lie in one stretch of CHUNK rows.
    __device__ int64_t kept_at(int row, int v) const { return ((int64_t)((row - from) / CHUNK) * V + v) * D * E; }
};

// Four neighbours as they lie in global memory.
#ifdef ELEM_F32
typedef float4 Four;
__device__ __forceinline__ float4 widen4(Four u) { return u; }
#else
typedef uint2 Four;
__device__ __forceinline__ float4 widen4(Four u) {
    float2 x = unpack2(u.x), y = unpack2(u.y);
    return make_float4(x.x, x.y, y.x, y.y);
}
#endif
template <int N>
struct Bytes;   // an unsigned type of so many
template <>
struct Bytes<8> {
    typedef uint2 type;
};
template <>
struct Bytes<16> {
    typedef uint4 type;
};
__device__ __forceinline__ Four four(const elem *p, bool inside) { return inside ? *(const Four *)p : Four{}; }
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

// The logarithm of a decay whose gate is a.
__device__ __forceinline__ float log_decay(float a, float log_a, float dt) {
    float x = a + dt;
    return -expf(log_a) * (fmaxf(x, 0.f) + log1pf(expf(-fabsf(x))));
}

// Zeros in n columns of a row of which a thread of so many writes its share, for the rows that no sequence has: those before the first
// and behind the last.
__device__ __forceinline__ void clear_rows(elem *m, int64_t width, int n, int from, int to, int thread, int threads) {
    for (int64_t i = thread; i < (int64_t)(to - from) * n; i += threads) m[(from + i / n) * width + i % n] = narrow(0.f);
}

// Calls f(first, end, row) for the chunks that begin in rows from..to, of sequences first..end.
template <class F>
__device__ __forceinline__ void each_chunk(const Rule &r, int from, int to, F f) {
    int lo = 0, hi = r.S;   // the first sequence that ends behind from
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (r.cu[mid + 1] > from)
            hi = mid;
        else
            lo = mid + 1;
    }
    for (int s = lo; s < r.S && r.first(s) < to; s++) {
        int first = r.first(s), end = r.first(s + 1), row = r.chunk_from(first, from);
        if (row < min(to, end)) f(first, end, row);
    }
}

#define RULE const elem *qkv, const elem *b, const elem *a, const float *log_a, const float *dt, const int *cu, int M, int S, int K, int V, int D, int E
#define RULE_OF(from, to) Rule{qkv, b, a, log_a, dt, cu, M, S, K, V, D, E, from, to}
