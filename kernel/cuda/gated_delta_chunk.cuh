// gated_delta_chunk.cuh: products of a chunk of the gated delta rule on tensor cores. A tile of 16 rows lies in a warp's registers as sums
// do: of each 8 columns a thread has rows lane/4 and 8 more, columns 2 (lane%4) and the next. Two such, of 16 columns, are a left operand
// of the next product as they are, so that a warp that holds columns of values as rows goes from product to product without shared memory.
// Where elem is bf16 an operand is two bf16, the number rounded and the rest, or one where it is exact or what comes of it is rounded as
// well; where it is f16 or f32 it is two of TF32's 11 bits. Sums are fp32.
#pragma once
#include "gated_delta.cuh"

// Blocks that a multiprocessor's shared memory has room for.
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
#define BLOCKS 2
#else
#define BLOCKS 1
#endif

enum {
    LDK = HEAD + 16 / sizeof(elem),   // numbers of a row of queries, keys or a state in shared memory
    LDC = CHUNK + 8,                  // of T, P and what else has tokens as columns
};

#ifdef OPERANDS_SPLIT
__device__ __forceinline__ float tf32(float x) {
    uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return __uint_as_float(r);
}
__device__ __forceinline__ void mma_tf32(float *d, const float *a, float b0, float b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)),
                   "r"(__float_as_uint(b1)));
}

// A left operand [16,16], and a right one [16,16] of which a thread has column lane/4 of each 8, rows 2 (lane%4), the next, and 8 behind them.
struct Left {
    float x[2][4];
    __device__ __forceinline__ Left() {}
    __device__ __forceinline__ Left(const float (*d)[4]) {
#pragma unroll
        for (int i = 0; i < 8; i++) (&x[0][0])[i] = (&d[0][0])[i];
    }
};
struct Right {
    float x[2][4];
};
// d[16, 16 N] += a b
template <int N>
__device__ __forceinline__ void times(float (*d)[4], const Left &a, const Right (&b)[N]) {
#pragma unroll
    for (int k = 0; k < 2; k++) {   // column 2 t stands as t, the next as t + 4
        float x[4] = {a.x[k][0], a.x[k][2], a.x[k][1], a.x[k][3]}, high[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; i++) high[i] = tf32(x[i]), low[i] = tf32(x[i] - high[i]);
#pragma unroll
        for (int n = 0; n < 2 * N; n++) {
            float y0 = b[n / 2].x[n % 2][2 * k], y1 = b[n / 2].x[n % 2][2 * k + 1], h0 = tf32(y0), h1 = tf32(y1);
            mma_tf32(d[n], low, h0, h1);
            mma_tf32(d[n], high, tf32(y0 - h0), tf32(y1 - h1));
            mma_tf32(d[n], high, h0, h1);
        }
    }
}
template <int N>
__device__ __forceinline__ void times_high(float (*d)[4], const Left &a, const Right (&b)[N]) { times(d, a, b); }
template <int N>
__device__ __forceinline__ void times_low(float (*)[4], const Left &, const Right (&)[N]) {}

// The left operand at rows m0 and columns k0 of a matrix in shared memory, of which TRANSPOSED has the other index first; and the right one.
template <bool TRANSPOSED, class X>
__device__ __forceinline__ Left left(const X *m, int ld, int m0, int k0) {
    Left a;
    int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int row = m0 + g + i / 2 % 2 * 8, k = k0 + i / 4 * 8 + 2 * t + i % 2;
        a.x[i / 4][i % 4] = widen(TRANSPOSED ? m[k * ld + row] : m[row * ld + k]);
    }
    return a;
}
template <bool TRANSPOSED, class X>
__device__ __forceinline__ Right right(const X *m, int ld, int k0, int n0) {
    Right b;
    int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int n = n0 + i / 4 * 8 + g, k = k0 + i / 2 % 2 * 8 + 2 * t + i % 2;
        b.x[i / 4][i % 4] = widen(TRANSPOSED ? m[k * ld + n] : m[n * ld + k]);
    }
    return b;
}
__device__ __forceinline__ void unpack(const Left &a, float (*d)[4]) {
#pragma unroll
    for (int i = 0; i < 8; i++) (&d[0][0])[i] = (&a.x[0][0])[i];
}
#else
// A left operand [16,16] and a right one, as mma has them.
struct Left {
    uint32_t high[4], low[4];
    __device__ __forceinline__ Left() {}
    __device__ __forceinline__ Left(const float (*d)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float x = d[i / 2][i % 2 * 2], y = d[i / 2][i % 2 * 2 + 1];
            high[i] = pack2(x, y);
            low[i] = pack2(x - __uint_as_float(high[i] << 16), y - __uint_as_float(high[i] & 0xffff0000));
        }
    }
};
struct Right {
    uint32_t x[4];
};
// d[16, 16 N] += a b; times_high without the low part of a, times_low with it alone.
template <int N>
__device__ __forceinline__ void times_high(float (*d)[4], const Left &a, const Right (&b)[N]) {
#pragma unroll
    for (int n = 0; n < 2 * N; n++) mma(d[n], a.high, b[n / 2].x[n % 2 * 2], b[n / 2].x[n % 2 * 2 + 1]);
}
template <int N>
__device__ __forceinline__ void times_low(float (*d)[4], const Left &a, const Right (&b)[N]) {
#pragma unroll
    for (int n = 0; n < 2 * N; n++) mma(d[n], a.low, b[n / 2].x[n % 2 * 2], b[n / 2].x[n % 2 * 2 + 1]);
}
template <int N>
__device__ __forceinline__ void times(float (*d)[4], const Left &a, const Right (&b)[N]) {
    times_low(d, a, b);
    times_high(d, a, b);
}

// The left operand at rows m0 and columns k0 of a matrix in shared memory, of which TRANSPOSED has the other index first; and the right one.
template <bool TRANSPOSED>
__device__ __forceinline__ Left left(const bf16 *m, int ld, int m0, int k0) {
    Left a;
    int lane = threadIdx.x & 31, up = lane >> 3 & 1, over = lane >> 4;
    if (TRANSPOSED)
        ldmatrix4t(a.high, smem(m + (k0 + (lane & 7) + 8 * over) * ld + m0 + 8 * up));
    else
        ldmatrix4(a.high, smem(m + (m0 + (lane & 7) + 8 * up) * ld + k0 + 8 * over));
    return a;
}
template <bool TRANSPOSED>
__device__ __forceinline__ Right right(const bf16 *m, int ld, int k0, int n0) {
    Right b;
    int lane = threadIdx.x & 31, up = lane >> 3 & 1, over = lane >> 4;
    if (TRANSPOSED)
        ldmatrix4t(b.x, smem(m + (k0 + (lane & 7) + 8 * up) * ld + n0 + 8 * over));
    else
        ldmatrix4(b.x, smem(m + (n0 + (lane & 7) + 8 * over) * ld + k0 + 8 * up));
    return b;
}
// The numbers of an operand of one part, as sums lie.
__device__ __forceinline__ void unpack(const Left &a, float (*d)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) d[i / 2][i % 2 * 2] = __uint_as_float(a.high[i] << 16), d[i / 2][i % 2 * 2 + 1] = __uint_as_float(a.high[i] & 0xffff0000);
}
#endif

// d += a T or P, d [16,CHUNK]; TRANSPOSED: T' or P', of which a has the index of their columns. Squares of zeros are left out.
template <bool TRANSPOSED, bool HIGH = false>
__device__ __forceinline__ void times_square(float (*d)[4], const float (*a)[4], const kept *m) {
    float low[4][4] = {};   // sums of the low parts of either
#pragma unroll
    for (int k = 0; k < 2; k++) {
        Left x(a + 2 * k);
#pragma unroll
        for (int n = 0; n < 2; n++)
            if (TRANSPOSED ? n <= k : k <= n) {
                Right b[1] = {right<TRANSPOSED>(m, LDC, 16 * k, 16 * n)};
                times_high(d + 2 * n, x, b);
                if (PARTS == 2) {
                    Right c[1] = {right<TRANSPOSED>(m + CHUNK * LDC, LDC, 16 * k, 16 * n)};
                    times_high(low + 2 * n, x, c);
                    if (!HIGH) times_low(low + 2 * n, x, b);
                }
            }
    }
    if (PARTS == 2)
#pragma unroll
        for (int i = 0; i < 16; i++) (&d[0][0])[i] += (&low[0][0])[i];
}

__device__ __forceinline__ void store_kept(float *p, const float *x) { *(float2 *)p = make_float2(x[0], x[1]); }
__device__ __forceinline__ void store_kept(bf16 *p, const float *x) { *(__nv_bfloat162 *)p = __floats2bfloat162_rn(x[0], x[1]); }

// Copies 8 numbers to shared memory, of which the first `left` are there, the rest zeros.
template <class X>
__device__ __forceinline__ void copy8(X *to, const X *from, int left, bool wide) {
    if (sizeof(X) == 2 && wide)
        cp16(smem(to), from, left > 0);
    else
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            if (sizeof(X) == 4)
                cp16(smem(to + i), from + i, left > i);
            else
                asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(smem(to + i)), "l"(from + i), "r"(left > i ? 8 : 0));
        }
}
// Copies ROWS rows of COLS numbers, of which rows and cols are there; thread is one of so many.
template <int ROWS, int COLS, int THREADS, class X>
__device__ __forceinline__ void copy_rows(X *to, int ld, const X *from, int64_t width, int rows, int cols, bool wide, int thread) {
    constexpr int UNITS = COLS / 8, HOP = THREADS / UNITS;
    int row = thread / UNITS, left = cols - thread % UNITS * 8;
    to += row * ld + thread % UNITS * 8, from += row * width + thread % UNITS * 8;
#pragma unroll
    for (int i = 0; i < ROWS; i += HOP, to += HOP * ld, from += HOP * width) copy8(to, from, row + i < rows ? left : 0, wide);
}
// Copies them from shared memory, those that are there.
template <int ROWS, int COLS, int THREADS, class X>
__device__ __forceinline__ void copy_back(X *to, int64_t width, const X *from, int ld, int rows, int cols, bool wide, int thread) {
    constexpr int UNITS = COLS / 8, HOP = THREADS / UNITS;
    int row = thread / UNITS, left = cols - thread % UNITS * 8;
    to += row * width + thread % UNITS * 8, from += row * ld + thread % UNITS * 8;
#pragma unroll
    for (int i = 0; i < ROWS; i += HOP, to += HOP * width, from += HOP * ld) {
        if (row + i >= rows || left <= 0) continue;
        if (sizeof(X) == 2 && wide)
            *(uint4 *)to = *(const uint4 *)from;
        else
#pragma unroll
            for (int c = 0; c < 8; c += 4) {
                typedef typename Bytes<4 * sizeof(X)>::type Unit;
                if (c < left) *(Unit *)(to + c) = *(const Unit *)(from + c);
            }
    }
}
// Copies what is prepared of a chunk's value head: t [PARTS,CHUNK,LDC], with WITH_P behind it p, and the gates.
template <bool WITH_P, int THREADS>
__device__ __forceinline__ void copy_prepared(kept *t, float (*gate)[GATES], const Prepared *from, int V, int rows, int thread) {
    constexpr int UNIT = 16 / sizeof(kept), UNITS = (WITH_P ? 2 : 1) * PARTS * CHUNK / UNIT, HOP = THREADS / UNITS;
    int row = thread / UNITS, c = thread % UNITS * UNIT;
    const char *own = (const char *)(from[(int64_t)row * V].t[0] + c);
#pragma unroll
    for (int i = 0; i < CHUNK; i += HOP, own += (int64_t)HOP * V * sizeof(Prepared)) cp16(smem(t + (c / CHUNK * CHUNK + row + i) * LDC + c % CHUNK), own, row + i < rows);
#pragma unroll
    for (int i = thread; i < 2 * CHUNK; i += THREADS) cp16(smem(gate[i / 2] + i % 2 * 4), from[(int64_t)(i / 2) * V].gate + i % 2 * 4, i / 2 < rows);
}

enum { STAGES = sizeof(elem) == 2 ? 3 : 1 };

// A chunk of a value head as the kernels hold it that go from chunk to chunk, COLS columns of its values or of the gradients of what it
// gives. What comes of these columns takes their place, and a state that of keys and queries. WORKERS compute, FEEDERS copy.
template <int COLS>
struct Stage {
    enum { LDV = COLS + 8, WORKERS = 2 * COLS, FEEDERS = 64 };
    elem k[CHUNK * LDK], q[CHUNK * LDK];
    kept t[PARTS * CHUNK * LDC], p[PARTS * CHUNK * LDC];
    elem value[CHUNK * LDV];
    float gate[CHUNK][GATES];
    static __device__ __forceinline__ int feeder() { return (int)threadIdx.x - WORKERS; }
    template <bool QUERIES>
    __device__ __forceinline__ void load(const Rule &r, const Prepared *prepared, int v, int row, int count, const elem *values, int64_t width, int e0) {
        bool wide = r.wide();
        const elem *key = r.row(row) + v / (r.V / r.K) * r.D;
        copy_rows<CHUNK, HEAD, FEEDERS>(k, LDK, key + r.K * r.D, r.width(), count, r.D, wide, feeder());
        if (QUERIES) copy_rows<CHUNK, HEAD, FEEDERS>(q, LDK, key, r.width(), count, r.D, wide, feeder());
        copy_prepared<QUERIES, FEEDERS>(t, gate, prepared + r.prepared_at(row, v), r.V, count, feeder());
        copy_rows<CHUNK, COLS, FEEDERS>(value, LDV, values + row * width + e0, width, count, r.E - e0, wide, feeder());
    }
    // A warp's columns of values, as rows.
    __device__ __forceinline__ void values(float (*d)[4]) const {
        unpack(left<true>(value, LDV, threadIdx.x / 32 * 16, 0), d);
        unpack(left<true>(value, LDV, threadIdx.x / 32 * 16, 16), d + 2);
    }
    // The place of a state, [COLS,LDK]; a worker's share of one, and a feeder's way with it to global memory.
    enum { STATE_FITS = sizeof(kept) == sizeof(elem) };
    __device__ __forceinline__ kept *state() { return (kept *)k; }
    __device__ __forceinline__ void put_state(const float (*d)[4]) {
        workers_wait();
        kept *to = state() + (threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) * LDK + 2 * (threadIdx.x & 3);
#pragma unroll
        for (int n = 0; n < HEAD / 8; n++) store_kept(to + 8 * n, d[n]), store_kept(to + 8 * LDK + 8 * n, d[n] + 2);
    }
    __device__ __forceinline__ void take_state(kept *to, const Rule &r, int e0) {
        copy_back<COLS, HEAD, FEEDERS>(to + (int64_t)e0 * r.D, r.D, state(), LDK, r.E - e0, r.D, r.wide(), feeder());
    }
    // Until all other workers, or feeders, have come here.
    static __device__ __forceinline__ void workers_wait() { asm volatile("bar.sync 1, %0;" ::"n"((int)WORKERS) : "memory"); }
    static __device__ __forceinline__ void feeders_wait() { asm volatile("bar.sync 2, %0;" ::"n"((int)FEEDERS) : "memory"); }
};

// Goes through n chunks, at row from and each `step` rows on: workers compute one while feeders take what the one before gave and load one
// in its stage.
template <int COLS, class L, class C, class T>
__device__ __forceinline__ void through(Stage<COLS> *stages, int from, int step, int n, L load, C compute, T take) {
    constexpr int AHEAD = STAGES == 1 ? 1 : STAGES - 1;
    bool feeds = Stage<COLS>::feeder() >= 0;
    auto feed = [&](int next) {
        if (next >= 0 && next < n) load(stages + next % STAGES, from + next * step);
        cp_commit();
    };
    auto replace = [&](int done) {
        if (done >= 0) take(stages + done % STAGES, from + done * step);
        Stage<COLS>::feeders_wait();
        feed(done + STAGES);
    };
    if (feeds)
        for (int i = 0; i < AHEAD; i++) feed(i);
    for (int i = 0; i < n; i++) {
        if (feeds) cp_wait<AHEAD - 1>();
        __syncthreads();
        if (!feeds)
            compute(stages + i % STAGES, from + i * step);
        else if (STAGES > 1)
            replace(i - 1);
        if (STAGES == 1) {
            __syncthreads();
            if (feeds) replace(i);
        }
    }
    __syncthreads();
    if (STAGES > 1 && feeds) take(stages + (n - 1) % STAGES, from + (n - 1) * step);
}

// Calls f(n, i, at) for the pairs of a state's numbers that a warp holds in columns e0 on as rows, sums of 16 x HEAD: at is a pair's place
// in [E,D].
template <class F>
__device__ __forceinline__ void each_pair(const Rule &r, int e0, F f) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < HEAD / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int d = 8 * n + 2 * (lane & 3), e = e0 + (lane >> 2) + 8 * i;
            if (d < r.D && e < r.E) f(n, 2 * i, (int64_t)e * r.D + d);
        }
}

// Calls f(i, token, row) for the 16 numbers that a thread has of a warp's 16 x CHUNK.
template <class F>
__device__ __forceinline__ void each_token(F f) {
    int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
#pragma unroll
    for (int i = 0; i < 16; i++) f(i, i / 4 * 8 + 2 * t + i % 2, g + i / 2 % 2 * 8);
}

// 1/|x| for a chunk's rows of queries or keys, of so many warps.
template <int WARPS>
__device__ __forceinline__ void inverse_norms(float *to, const elem *m) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    float n[CHUNK / WARPS];
#pragma unroll
    for (int i = 0; i < CHUNK / WARPS; i++) n[i] = square(widen4(*(const Four *)(m + (warp + WARPS * i) * LDK + 4 * lane)));
    norm_factors(n);
#pragma unroll
    for (int i = 0; i < CHUNK / WARPS; i++)
        if (lane == 0) to[warp + WARPS * i] = n[i];
}
