// muon.cu: one step of Muon over trained matrices: momentum, five Newton-Schulz iterations in bf16, decay (kernel/muon.go has the formula).
// Layout: p, b, g fp32, copy elem (the operand of the next step's GEMMs) or 0; table [N][5] uint32: first element, rows, columns, place in x,
// place in gram. x: two arrays of nx bf16, gram: two of ngram bf16, scratch of the call. In x a matrix lies with its shorter side as rows.
// lr, clip: one fp32 on the device each. A clip factor that is not a number changes nothing.
// A block of 256 threads takes a matrix, from momentum to the update, so no block waits for another. Products are of tiles of 16 rows and
// 64 columns, a thread holding four sums, 32 of the inner side at a time in shared memory; bf16 operands, fp32 sums in ascending order,
// rounded once. Serves LoRA's matrices, whose shorter side is the rank; a matrix of thousands by thousands is right and slow.
// Arithmetic of momentum and update fp32, each operation rounded by itself (no fused multiply-add).
// Bytes: 22 a parameter and what the iterations move through L2. Goal: under 2 ms for 300 matrices of 16 by 2048.
// Elements: bf16, f16, f32.
#include "common.cuh"

typedef uint16_t bits;

__device__ __forceinline__ float wide(bits v) { return __uint_as_float((uint32_t)v << 16); }
__device__ __forceinline__ bits near_bf16(float v) {   // to nearest, ties to even; a NaN stays one
    const uint32_t u = __float_as_uint(v);
    if (v != v) return 0x7fc0;
    return (bits)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

struct Tile {
    float a[16][33], b[64][33];
};

// product computes to[i][j] = near(alpha * sum_k a[i][k] b(j, k) + beta * c[i][j]) for i < n, j < m: b(j, k) is b[j][k] of rows of `lb`
// numbers, or b[k][j] with ACROSS. All threads of the block take part; it ends with every number written.
template <bool ACROSS>
__device__ void product(Tile &t, bits *to, const bits *a, int la, const bits *b, int lb, const bits *c, int n, int m, int inner, float alpha,
                        float beta) {
    const int row = threadIdx.x >> 4, col = threadIdx.x & 15;   // and columns col + 16, col + 32, col + 48
    for (int i0 = 0; i0 < n; i0 += 16)
        for (int j0 = 0; j0 < m; j0 += 64) {
            float sum[4] = {0.f, 0.f, 0.f, 0.f};
            for (int k0 = 0; k0 < inner; k0 += 32) {
                __syncthreads();
                for (int e = threadIdx.x; e < 16 * 32; e += 256) {
                    const int i = i0 + (e >> 5), k = k0 + (e & 31);
                    t.a[e >> 5][e & 31] = i < n && k < inner ? wide(a[(int64_t)i * la + k]) : 0.f;
                }
                for (int e = threadIdx.x; e < 64 * 32; e += 256) {
                    const int je = ACROSS ? e & 63 : e >> 5, ke = ACROSS ? e >> 6 : e & 31, j = j0 + je, k = k0 + ke;
                    t.b[je][ke] = j < m && k < inner ? wide(ACROSS ? b[(int64_t)k * lb + j] : b[(int64_t)j * lb + k]) : 0.f;
                }
                __syncthreads();
#pragma unroll 8
                for (int k = 0; k < 32; k++) {
                    const float v = t.a[row][k];
#pragma unroll
                    for (int q = 0; q < 4; q++) sum[q] = fmaf(v, t.b[col + 16 * q][k], sum[q]);
                }
            }
#pragma unroll
            for (int q = 0; q < 4; q++) {
                const int i = i0 + row, j = j0 + col + 16 * q;
                if (i >= n || j >= m) continue;
                const float add = c ? __fmul_rn(beta, wide(c[(int64_t)i * m + j])) : 0.f;
                to[(int64_t)i * m + j] = near_bf16(__fadd_rn(add, __fmul_rn(alpha, sum[q])));
            }
        }
    __syncthreads();
}

// Grid: a block for each matrix; block: 256.
extern "C" __global__ void __launch_bounds__(256) muon_step(float *p, float *b, elem *copy, const float *g, const uint32_t *table, bits *x,
        bits *gram, int64_t nx, int64_t ngram, const float *lr, const float *clip, float mu, float toGrad, float decay, int flags) {
    __shared__ Tile tile;
    const float c = *clip;
    if (c != c) return;
    const uint32_t *own = table + 5 * blockIdx.x;
    const int rows = (int)own[1], cols = (int)own[2], n = min(rows, cols), m = max(rows, cols);
    const int64_t from = own[0], elems = (int64_t)rows * cols;
    bits *X = x + own[3], *Y = X + nx, *G = gram + own[4], *U = G + ngram;
    float sum = 0.f;
    for (int64_t j = threadIdx.x; j < elems; j += 256) {
        const float d = __fmul_rn(g[from + j], c), B = __fadd_rn(__fmul_rn(mu, b[from + j]), __fmul_rn(toGrad, d));
        b[from + j] = B;
        const bits u = near_bf16(flags & 1 ? __fadd_rn(__fmul_rn(toGrad, d), __fmul_rn(mu, B)) : B);
        X[rows <= cols ? j : j % cols * rows + j / cols] = u;
        sum = fmaf(wide(u), wide(u), sum);
    }
    sum = block_sum(sum);
    const float norm = wide(near_bf16(fmaxf(wide(near_bf16(__fsqrt_rn(sum))), 1e-7f)));
    __syncthreads();
    for (int64_t j = threadIdx.x; j < elems; j += 256) X[j] = near_bf16(__fdiv_rn(wide(X[j]), norm));
    __syncthreads();
    for (int step = 0; step < 5; step++) {
        product<false>(tile, G, X, m, X, m, nullptr, n, n, m, 1.f, 0.f);
        product<false>(tile, U, G, n, G, n, G, n, n, n, 2.0315f, -4.7750f);
        product<true>(tile, Y, U, n, X, m, X, n, m, n, 1.f, 3.4445f);
        bits *other = X;
        X = Y, Y = other;
    }
    const double rate = *lr;
    const double scale = flags & 2 ? 0.2 * sqrt((double)m) : sqrt(fmax(1., (double)rows / (double)cols));
    const float size = (float)(rate * scale), keep = (float)(1. - rate * (double)decay);
    for (int64_t j = threadIdx.x; j < elems; j += 256) {
        const float u = wide(X[rows <= cols ? j : j % cols * rows + j / cols]);
        const float P = __fsub_rn(__fmul_rn(p[from + j], keep), __fmul_rn(size, u));
        p[from + j] = P;
        if (copy) copy[from + j] = narrow(P);
    }
}
