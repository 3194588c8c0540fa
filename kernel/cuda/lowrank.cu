// lowrank.cu: the low-rank GEMMs of an adapter, one side of which is the rank R, a multiple of 8, at most 48.
// Layout, all elem rows without gaps unless said: X, Y, dY [M,C] wide; T, dT [M,R]; A [R,C], B [C,R] with C any wide size, a
// multiple of 8. Addresses are multiples of 16 bytes. n (1 to 4) GEMMs that share their wide operand run as one, n R <= 48.
//   down  T_i = alpha X A_i^T (nt) or dT = alpha dY B (nn)                        bytes 2 M C + 2 n M R: X is read once
//   up    Y = alpha T B^T (nt) or dX = alpha (dT_1 A_1 + ... + dT_n A_n) (nn), + beta Y    bytes 2 M C, 4 M C with beta
//   grad  dA_i [R,C] fp32 = alpha dT_i^T X + beta dA_i, or dB [C,R] = alpha dY^T T + beta dB     bytes 2 M C + 2 n M R + 4 n R C
//   one block   down: 16 or 32 rows of all T_i, its warps share C out in steps of 32; up: 256 columns of some tiles of 16 rows of Y,
//   a warp 32 of the columns; grad: 32 or 64 columns of dA, its warps and the blocks of a column share M out in steps of 16
// Nothing is staged in shared memory: a lane loads 16 bytes of a row, and the tensor cores' inner index is permuted alike in
// both operands, so that these are the values it must hold; columns that run against the grain are turned by movmatrix.
// Sums over warps and blocks go through shared memory and scratch in an order that depends on the launch shape alone.
// Accumulation fp32. FLOPs 2 n M C R. Goal: 80 % of copy at M = 8192, 3 us in a graph at M = 512.
// Elements: bf16, f16.
#include "common.cuh"

struct Four {   // of n GEMMs; the rest are not read
    const void *p[4];
};
#define ADDRESSES(T, X) T *X##0, T *X##1, T *X##2, T *X##3
#define FOUR(X) Four{{X##0, X##1, X##2, X##3}}

__device__ __forceinline__ uint32_t turned(uint32_t v) {   // an 8x8 matrix of 16-bit values, transposed across the warp
    uint32_t d;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(v));
    return d;
}
// d[16x8] += a[16x8] b[8x8]
__device__ __forceinline__ void mma8(float *d, uint32_t a0, uint32_t a1, uint32_t b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32." ELEM_PTX "." ELEM_PTX ".f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(b));
}
__device__ __forceinline__ void pick(uint32_t *d, const elem *p, bool valid) {
    uint4 v = valid ? *(const uint4 *)p : make_uint4(0, 0, 0, 0);
    d[0] = v.x, d[1] = v.y, d[2] = v.z, d[3] = v.w;
}
__device__ __forceinline__ uint32_t pick(const elem *p, bool valid) { return valid ? *(const uint32_t *)p : 0; }

// What one block makes: 16 MT rows of all T_i. The warps share C out in steps of 32, turn by turn; step j of 16 inside holds, for
// lane column t, the values 8 t + 4 j ... + 3 of the 32.
template <bool TB, int MT, int NT>
__device__ void down(const Four &out, const elem *x, const Four &a, int n, int M, int C, int R, float alpha) {
    extern __shared__ __align__(16) float2 part[];   // [warp][MT][NT][2][lane]
    int warp = threadIdx.x >> 5, warps = blockDim.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, row0 = blockIdx.x * 16 * MT;
    int rows = M - row0 - g;
    const elem *px = x + (int64_t)(row0 + g) * C + t * 8, *pw[NT];
#pragma unroll
    for (int j = 0; j < NT; j++) {
        int i = j * 8 / R, c = j * 8 - i * R;
        const elem *p = (const elem *)a.p[min(i, n - 1)];
        pw[j] = i >= n ? 0 : TB ? p + (int64_t)(c + g) * C + t * 8 : p + (g / 2 * 8 + g % 2) * R + c + 2 * t;
    }
    uint32_t xs[2][MT][2][4], w[NT][4];
    auto load = [&](int to, int k) {
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) pick(xs[to][i][h], px + (int64_t)(i * 16 + h * 8) * C + k, i * 16 + h * 8 < rows && k + t * 8 < C);
    };
    float acc[MT][NT][4] = {};
    auto add = [&](int from, int k) {
#pragma unroll
        for (int j = 0; j < NT; j++) {
            if (TB) {
                pick(w[j], pw[j] + k, pw[j] && k + t * 8 < C);
            } else {
#pragma unroll
                for (int q = 0; q < 4; q++) w[j][q] = pick(pw[j] + (k + 2 * q) * R, pw[j] && k + g / 2 * 8 < C);
            }
        }
        if (!TB)
#pragma unroll
            for (int j = 0; j < NT; j++)
#pragma unroll
                for (int q = 0; q < 4; q++) w[j][q] = turned(w[j][q]);
#pragma unroll
        for (int e = 0; e < 2; e++)
#pragma unroll
            for (int i = 0; i < MT; i++) {
                uint32_t f[4] = {xs[from][i][0][2 * e], xs[from][i][1][2 * e], xs[from][i][0][2 * e + 1], xs[from][i][1][2 * e + 1]};
#pragma unroll
                for (int j = 0; j < NT; j++) mma(acc[i][j], f, w[j][2 * e], w[j][2 * e + 1]);
            }
    };
    load(0, warp * 32);
#pragma unroll 1
    for (int k = warp * 32; k < C; k += warps * 32) {   // the next step's rows are on their way while one is multiplied
        load(1, k + warps * 32);
        add(0, k);
#pragma unroll
        for (int i = 0; i < MT * 8; i++) (&xs[0][0][0][0])[i] = (&xs[1][0][0][0])[i];
    }
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int h = 0; h < 2; h++) part[(((warp * MT + i) * NT + j) * 2 + h) * 32 + lane] = make_float2(acc[i][j][2 * h], acc[i][j][2 * h + 1]);
    __syncthreads();
    for (int e = threadIdx.x; e < MT * NT * 64; e += blockDim.x) {
        float2 v = make_float2(0, 0);
        for (int w = 0; w < warps; w++) {
            float2 u = part[w * MT * NT * 64 + e];
            v.x += u.x, v.y += u.y;
        }
        int at = e >> 5, h = at & 1, j = at / 2 % NT, i = at / 2 / NT, row = row0 + i * 16 + h * 8 + (e & 31) / 4, c = j * 8 + (e & 3) * 2;
        if (row < M && c < n * R) store2((elem *)out.p[c / R] + (int64_t)row * R + c % R, alpha * v.x, alpha * v.y);
    }
}

// Grid (rows / 16 MT), block 32 times any number of warps W, dynamic shared memory 512 W MT NT bytes. t, a: n addresses each.
#define DOWN(NAME, TB, MT, NT) \
    extern "C" __global__ void __launch_bounds__(MT == 1 && NT < 6 ? 512 : 256, MT == 2 ? 2 : 1) lowrank_down_##NAME(ADDRESSES(elem, t), const elem *x, ADDRESSES(const elem, a), int n, int M, int C, int R, float alpha) { \
        down<TB, MT, NT>(FOUR(t), x, FOUR(a), n, M, C, R, alpha); \
    }
DOWN(nt_1_1, true, 1, 1)
DOWN(nt_1_2, true, 1, 2)
DOWN(nt_1_4, true, 1, 4)
DOWN(nt_1_6, true, 1, 6)
DOWN(nt_2_1, true, 2, 1)
DOWN(nt_2_2, true, 2, 2)
DOWN(nt_2_4, true, 2, 4)
DOWN(nt_2_6, true, 2, 6)
DOWN(nn_1_1, false, 1, 1)
DOWN(nn_1_2, false, 1, 2)
DOWN(nn_1_4, false, 1, 4)
DOWN(nn_1_6, false, 1, 6)
DOWN(nn_2_1, false, 2, 1)
DOWN(nn_2_2, false, 2, 2)
DOWN(nn_2_4, false, 2, 4)
DOWN(nn_2_6, false, 2, 6)

// A warp makes 32 columns of 16 `tiles` rows. Column 8 t + 2 j + e of the 32 is the tensor cores' column 2 t + e of tile j, so
// that a lane ends with 8 neighbours.
template <bool TB, int KT>
__device__ void up(elem *y, const Four &t_, const Four &b, int M, int C, int R, int tiles, float alpha, float beta) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, c0 = blockIdx.x * 256 + warp * 32;
    if (c0 >= C) return;
    uint32_t w[KT][4];
    const elem *pt[KT];
#pragma unroll
    for (int k = 0; k < KT; k++) {
        int i = k * 8 / R, r = k * 8 - i * R;
        const elem *p = (const elem *)b.p[i];
        pt[k] = p ? (const elem *)t_.p[i] + r + 2 * t : 0;
        if (TB) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int c = c0 + g / 2 * 8 + 2 * j + g % 2;
                w[k][j] = pick(p + (int64_t)c * R + r + 2 * t, p && c < C);
            }
        } else {
            pick(w[k], p + (int64_t)(r + g) * C + c0 + t * 8, p && c0 + t * 8 < C);
#pragma unroll
            for (int j = 0; j < 4; j++) w[k][j] = turned(w[k][j]);
        }
    }
    bool in = c0 + t * 8 < C;
    int row0 = blockIdx.y * 16 * tiles;
#pragma unroll 2
    for (int i = 0; i < tiles; i++) {
        int row = row0 + i * 16 + g;
        float acc[4][4] = {};
        uint32_t f[KT][2];
        Eight<elem> old[2];
#pragma unroll
        for (int k = 0; k < KT; k++)
#pragma unroll
            for (int h = 0; h < 2; h++) f[k][h] = pick(pt[k] + (int64_t)(row + h * 8) * R, pt[k] && row + h * 8 < M);
        if (beta != 0.f)
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (in && row + h * 8 < M) old[h] = load8(y + (int64_t)(row + h * 8) * C + c0 + t * 8);
#pragma unroll
        for (int k = 0; k < KT; k++)
#pragma unroll
            for (int j = 0; j < 4; j++) mma8(acc[j], f[k][0], f[k][1], w[k][j]);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (!in || row + h * 8 >= M) continue;
            float f[8];
            if (beta != 0.f) unpack(old[h], f);
#pragma unroll
            for (int e = 0; e < 8; e++) f[e] = fmaf(beta, beta != 0.f ? f[e] : 0.f, alpha * acc[e / 2][2 * h + e % 2]);
            store8(y + (int64_t)(row + h * 8) * C + c0 + t * 8, pack(f));
        }
    }
}

// Grid (C / 256, M / 16 tiles), block 256. t and b: n addresses each, the rest null; n R <= 8 KT.
#define UP(NAME, TB, KT) \
    extern "C" __global__ void __launch_bounds__(256, 2) lowrank_up_##NAME(elem *y, ADDRESSES(const elem, t), ADDRESSES(const elem, b), int M, int C, int R, int tiles, float alpha, float beta) { \
        up<TB, KT>(y, FOUR(t), FOUR(b), M, C, R, tiles, alpha, beta); \
    }
UP(nt_1, true, 1)
UP(nt_2, true, 2)
UP(nt_4, true, 4)
UP(nt_6, true, 6)
UP(nn_1, false, 1)
UP(nn_2, false, 2)
UP(nn_4, false, 4)
UP(nn_6, false, 6)

// A block makes 32 CW columns of all results from its share of the rows, which its warps take in turns of 16. The tensor cores'
// rows are the columns: row g of tile j of a unit of 32 is column g/2 8 + 2 j + g%2. The last block of a column adds the shares.
template <int CW, int NT>
__device__ void grad(const Four &out, const elem *v, const Four &u, int n, int M, int C, int R, int flip, float alpha, float beta, float2 *shares, unsigned *counters) {
    constexpr int UNROLL = CW * NT <= 4 ? 4 : 2, PAIRS = CW * 4 * NT * 32;
    extern __shared__ __align__(16) float2 part[];   // [warp][CW][tile][NT][lane]
    __shared__ bool last;
    int warp = threadIdx.x >> 5, warps = blockDim.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, c0 = blockIdx.x * 32 * CW;
    int per = (M + 16 * gridDim.y - 1) / (16 * gridDim.y) * 16, end = min(M, (int)(blockIdx.y + 1) * per);
    const elem *pu[NT];
#pragma unroll
    for (int j = 0; j < NT; j++) {
        int i = j * 8 / R;
        pu[j] = i < n ? (const elem *)u.p[i] + j * 8 - i * R + 2 * t : 0;
    }
    float acc[CW][4][NT][2] = {};
    for (int m = blockIdx.y * per + warp * 16; m < end; m += UNROLL * warps * 16) {
        uint32_t a[UNROLL][CW][2][4], b[UNROLL][NT][2];
#pragma unroll
        for (int s = 0; s < UNROLL; s++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int64_t row = m + s * warps * 16 + h * 8 + g;
                bool in = row < end;
#pragma unroll
                for (int w = 0; w < CW; w++) pick(a[s][w][h], v + row * C + c0 + w * 32 + t * 8, in && c0 + w * 32 + t * 8 < C);
#pragma unroll
                for (int j = 0; j < NT; j++) b[s][j][h] = pick(pu[j] + row * R, in && pu[j]);
            }
#pragma unroll
        for (int s = 0; s < UNROLL; s++) {
#pragma unroll
            for (int j = 0; j < NT; j++)
#pragma unroll
                for (int h = 0; h < 2; h++) b[s][j][h] = turned(b[s][j][h]);
#pragma unroll
            for (int w = 0; w < CW; w++)
#pragma unroll
                for (int q = 0; q < 4; q += 2) {
                    uint32_t f[4] = {turned(a[s][w][0][q]), turned(a[s][w][0][q + 1]), turned(a[s][w][1][q]), turned(a[s][w][1][q + 1])};
#pragma unroll
                    for (int j = 0; j < NT; j++) {
                        float d[4] = {acc[w][q][j][0], acc[w][q][j][1], acc[w][q + 1][j][0], acc[w][q + 1][j][1]};
                        mma(d, f, b[s][j][0], b[s][j][1]);
                        acc[w][q][j][0] = d[0], acc[w][q][j][1] = d[1], acc[w][q + 1][j][0] = d[2], acc[w][q + 1][j][1] = d[3];
                    }
                }
        }
    }
#pragma unroll
    for (int w = 0; w < CW; w++)
#pragma unroll
        for (int q = 0; q < 4; q++)
#pragma unroll
            for (int j = 0; j < NT; j++) part[warp * PAIRS + ((w * 4 + q) * NT + j) * 32 + lane] = make_float2(acc[w][q][j][0], acc[w][q][j][1]);
    __syncthreads();
    bool split = gridDim.y > 1;
    float2 *mine = shares + ((int64_t)blockIdx.x * gridDim.y + blockIdx.y) * PAIRS;
    if (split) {
        for (int e = threadIdx.x; e < PAIRS; e += blockDim.x) {
            float2 s = part[e];
            for (int w = 1; w < warps; w++) s.x += part[w * PAIRS + e].x, s.y += part[w * PAIRS + e].y;
            mine[e] = s;
        }
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) last = atomicInc(counters + blockIdx.x, gridDim.y - 1) == gridDim.y - 1;   // back to 0 with the last
        __syncthreads();
        if (!last) return;
        __threadfence();
    }
    for (int e = threadIdx.x; e < PAIRS; e += blockDim.x) {
        float2 s = make_float2(0, 0);
        if (split) {
            for (int z = 0; z < gridDim.y; z++) {
                float2 o = __ldcg(shares + ((int64_t)blockIdx.x * gridDim.y + z) * PAIRS + e);
                s.x += o.x, s.y += o.y;
            }
        } else {
            for (int w = 0; w < warps; w++) s.x += part[w * PAIRS + e].x, s.y += part[w * PAIRS + e].y;
        }
        int at = e >> 5, j = at % NT, q = at / NT % 4, w = at / NT / 4, row = (e & 31) >> 2, c = c0 + w * 32 + row / 2 * 8 + 2 * q + row % 2, r = j * 8 + (e & 3) * 2;
        if (c >= C || r >= n * R) continue;
        float *to = (float *)out.p[r / R];
        r %= R;
        if (flip) {
            float2 *p = (float2 *)(to + (int64_t)c * R + r);
            float2 x = beta != 0.f ? *p : make_float2(0, 0);
            *p = make_float2(fmaf(beta, x.x, alpha * s.x), fmaf(beta, x.y, alpha * s.y));
        } else {
            float *p = to + (int64_t)r * C + c;
            p[0] = fmaf(beta, beta != 0.f ? p[0] : 0.f, alpha * s.x);
            p[C] = fmaf(beta, beta != 0.f ? p[C] : 0.f, alpha * s.y);
        }
    }
}

// Grid (C / 32 CW, shares of the rows Z), block 32 W, dynamic shared memory W CW NT 1024 bytes. u, out: n addresses each; flip: the
// result is [C,R]. With Z > 1: shares [C / 32 CW][Z][CW NT 1024 bytes], counters [C / 32 CW] zero, as they are left.
#define GRAD(NAME, CW, NT) \
    extern "C" __global__ void __launch_bounds__(256, CW * NT <= 4 ? 2 : 1) lowrank_grad_##NAME(ADDRESSES(float, out), const elem *v, ADDRESSES(const elem, u), int n, int M, int C, int R, int flip, float alpha, float beta, \
        float2 *shares, unsigned *counters) { \
        grad<CW, NT>(FOUR(out), v, FOUR(u), n, M, C, R, flip, alpha, beta, shares, counters); \
    }
GRAD(1, 1, 1)
GRAD(2, 1, 2)
GRAD(4, 2, 4)
GRAD(6, 2, 6)
