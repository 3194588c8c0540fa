// rmsnorm.cu: y = x rsqrt(mean(x^2) + eps) w over rows of C, its gradient for a frozen w, and the residual sum before it.
// The plusone forms have 1 + w, in fp32, in place of w.
// Layout: x, y, dy, dx, sum [M,C] elem packed rows; low bits [M,C] bytes (residual.cuh); w [C] elem; rstd [M] fp32.
// One block a row: blockDim.x = C/32 rounded up to whole warps, at most 512; a thread keeps up to 32 values in registers
// (C <= 32 blockDim.x), longer rows and rows that are no multiple of 8 are read again.
// rmsnorm_heads_*: many short rows, such as heads of 64 or 128: a power of two of threads, D/8 or more, holds a row, 8 values each.
// rmsnorm_heads_rope_*: the same with the rotation behind the norm (rope.cu), the other half's values from their lanes.
// Statistics and multiplications in fp32, one rounding at the store.
// Bytes: forward 4 a value (2 read, 2 written), 5 with low bits, with the residual 9 or 10 (11 or 12 where r is fp32), backward 6 (8 with add). Goal: 85 % of copy.
// Elements: bf16, f16, f32.
#include "residual.cuh"
#include "early.cuh"

// Values a thread holds: chunk j of 8 lies at 8 (threadIdx.x + j blockDim.x).
enum { HELD = 4 };

// Weights as they are multiplied with.
template <bool ONE>
__device__ __forceinline__ float weight(elem w) {
    return ONE ? 1.f + widen(w) : widen(w);
}
template <bool ONE>
__device__ __forceinline__ void load_weight(const elem *w, float (&f)[8]) {
    unpack(load8(w), f);
    if (ONE) {
#pragma unroll
        for (int k = 0; k < 8; k++) f[k] += 1.f;
    }
}

// R: the type of r.
template <bool ADD, bool ONE, typename R>
__device__ void forward(elem *y, elem *sum, uint8_t *sum_low, float *rstd, const elem *x, const uint8_t *low, const R *r, const elem *w, int C, float eps) {
    size_t row = blockIdx.x;
    x += row * C;
    y += row * C;
    if (low) low += row * C;
    if (ADD) r += row * C, sum += row * C;
    if (ADD && sum_low) sum_low += row * C;
    int step = blockDim.x * 8, c0 = threadIdx.x * 8;
    let_next_begin();
    for (int c = c0; c < C; c += step) prefetch(w + c);
    wait_for_earlier();
    if (C % 8 == 0 && C <= step * HELD) {
        Sum8 v[HELD];
        float s = 0;
#pragma unroll
        for (int j = 0; j < HELD; j++) {
            int c = c0 + j * step;
            if (c < C) {
                v[j] = load_sum8(x, low, c);
                float f[8];
                unpack(v[j], f);
                if (ADD) {
                    float g[8];
                    unpack(load8(r + c), g);
#pragma unroll
                    for (int k = 0; k < 8; k++) f[k] += g[k];
                    v[j] = pack_sum(f, sum_low);
                    store_sum8_near(sum, sum_low, c, v[j]);
                    unpack(v[j], f);   // the norm sees the sum as it is stored
                }
#pragma unroll
                for (int k = 0; k < 8; k++) s = fmaf(f[k], f[k], s);
            }
        }
        float q = rsqrtf(block_sum(s) / C + eps);
        if (threadIdx.x == 0) rstd[row] = q;
#pragma unroll
        for (int j = 0; j < HELD; j++) {
            int c = c0 + j * step;
            if (c < C) {
                float f[8], g[8];
                unpack(v[j], f);
                load_weight<ONE>(w + c, g);
#pragma unroll
                for (int k = 0; k < 8; k++) f[k] = f[k] * q * g[k];
                store8(y + c, pack(f));
            }
        }
        return;
    }
    float s = 0;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        float f = load_sum(x, low, c);
        if (ADD) f = store_sum_near(sum, sum_low, c, f + widen(r[c]));
        s = fmaf(f, f, s);
    }
    float q = rsqrtf(block_sum(s) / C + eps);
    if (threadIdx.x == 0) rstd[row] = q;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        float f = ADD ? load_sum(sum, sum_low, c) : load_sum(x, low, c);
        y[c] = narrow(f * q * weight<ONE>(w[c]));
    }
}

// y[M,C], rstd[M] <- x[M,C] with its low bits or 0, w[C]. Grid M.
extern "C" __global__ void __launch_bounds__(512, 1) rmsnorm_forward(elem *y, float *rstd, const elem *x, const uint8_t *low, const elem *w, int C, float eps) {
    forward<false, false>(y, 0, 0, rstd, x, low, (const elem *)0, w, C, eps);
}

// sum with its low bits or 0 (f32: 0) = x with its low bits or 0 + r, y = norm(sum). sum may be x or r itself, its low bits those of x. Grid M.
extern "C" __global__ void __launch_bounds__(512, 1) rmsnorm_add_forward(elem *y, elem *sum, uint8_t *sum_low, float *rstd, const elem *x, const uint8_t *low, const elem *r, const elem *w, int C, float eps) {
    forward<true, false>(y, sum, sum_low, rstd, x, low, r, w, C, eps);
}

// The same for r in fp32; sum may be x.
extern "C" __global__ void __launch_bounds__(512, 1) rmsnorm_add_wide_forward(elem *y, elem *sum, uint8_t *sum_low, float *rstd, const elem *x, const uint8_t *low, const float *r, const elem *w, int C, float eps) {
    forward<true, false>(y, sum, sum_low, rstd, x, low, r, w, C, eps);
}

// The same with 1 + w.
extern "C" __global__ void __launch_bounds__(512, 1) rmsnorm_plusone_forward(elem *y, float *rstd, const elem *x, const uint8_t *low, const elem *w, int C, float eps) {
    forward<false, true>(y, 0, 0, rstd, x, low, (const elem *)0, w, C, eps);
}
extern "C" __global__ void __launch_bounds__(512, 1) rmsnorm_plusone_add_forward(elem *y, elem *sum, uint8_t *sum_low, float *rstd, const elem *x, const uint8_t *low, const elem *r, const elem *w, int C, float eps) {
    forward<true, true>(y, sum, sum_low, rstd, x, low, r, w, C, eps);
}
extern "C" __global__ void __launch_bounds__(512, 1) rmsnorm_plusone_add_wide_forward(elem *y, elem *sum, uint8_t *sum_low, float *rstd, const elem *x, const uint8_t *low, const float *r, const elem *w, int C, float eps) {
    forward<true, true>(y, sum, sum_low, rstd, x, low, r, w, C, eps);
}

// dx = add + rstd (dy w - xhat mean(dy w xhat)), xhat = x rstd. add may be 0 (none) or dx itself; dx may be dy. Grid M.
template <bool ONE>
__device__ void backward(elem *dx, const elem *dy, const elem *x, const elem *w, const float *rstd, const elem *add, int C) {
    size_t row = blockIdx.x;
    dx += row * C;
    dy += row * C;
    x += row * C;
    if (add) add += row * C;
    float q = rstd[row];
    int step = blockDim.x * 8, c0 = threadIdx.x * 8;
    if (C % 8 == 0 && C <= step * HELD) {
        Eight<elem> vx[HELD], vg[HELD], va[HELD];   // x, dy and add as stored: half the registers of their fp32 values
        float s = 0;
#pragma unroll
        for (int j = 0; j < HELD; j++) {
            int c = c0 + j * step;
            if (c < C) {
                vx[j] = load8(x + c);
                vg[j] = load8(dy + c);
                if (add) va[j] = load8(add + c);
                float f[8], g[8], h[8];
                unpack(vx[j], f);
                unpack(vg[j], g);
                load_weight<ONE>(w + c, h);
#pragma unroll
                for (int k = 0; k < 8; k++) s = fmaf(g[k] * h[k], f[k] * q, s);
            }
        }
        float m = block_sum(s) / C;
#pragma unroll
        for (int j = 0; j < HELD; j++) {
            int c = c0 + j * step;
            if (c < C) {
                float f[8], g[8], h[8];
                unpack(vx[j], f);
                unpack(vg[j], g);
                load_weight<ONE>(w + c, h);
#pragma unroll
                for (int k = 0; k < 8; k++) g[k] = q * (g[k] * h[k] - f[k] * q * m);
                if (add) {
                    unpack(va[j], h);
#pragma unroll
                    for (int k = 0; k < 8; k++) g[k] += h[k];
                }
                store8(dx + c, pack(g));
            }
        }
        return;
    }
    float s = 0;
    for (int c = threadIdx.x; c < C; c += blockDim.x)
        s = fmaf(widen(dy[c]) * weight<ONE>(w[c]), widen(x[c]) * q, s);
    float m = block_sum(s) / C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        float g = q * (widen(dy[c]) * weight<ONE>(w[c]) - widen(x[c]) * q * m);
        if (add) g += widen(add[c]);
        dx[c] = narrow(g);
    }
}

extern "C" __global__ void __launch_bounds__(512, 1) rmsnorm_backward(elem *dx, const elem *dy, const elem *x, const elem *w, const float *rstd, const elem *add, int C) {
    backward<false>(dx, dy, x, w, rstd, add, C);
}
extern "C" __global__ void __launch_bounds__(512, 1) rmsnorm_plusone_backward(elem *dx, const elem *dy, const elem *x, const elem *w, const float *rstd, const elem *add, int C) {
    backward<true>(dx, dy, x, w, rstd, add, C);
}

// The sum over the lanes of a row, of which a warp holds 32/lanes: a fixed tree.
__device__ __forceinline__ float row_sum(float v, int lanes) {
    for (int o = lanes >> 1; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}

// y[rows,D], rstd[rows] <- x[rows,D], w[D]; D <= 256, a multiple of 8. Grid rows/(256/lanes), rounded up.
template <bool ONE>
__device__ void heads_forward(elem *y, float *rstd, const elem *x, const elem *w, int64_t rows, int D, int lanes, float eps) {
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
    int c = threadIdx.x % lanes * 8;
    bool held = row < rows && c < D;
    int64_t at = row * D + c;
    float f[8] = {}, s = 0;
    if (held) unpack(load8(x + at), f);
#pragma unroll
    for (int k = 0; k < 8; k++) s = fmaf(f[k], f[k], s);
    float q = rsqrtf(row_sum(s, lanes) / D + eps);
    if (held) {
        float g[8];
        load_weight<ONE>(w + c, g);
#pragma unroll
        for (int k = 0; k < 8; k++) f[k] = f[k] * q * g[k];
        store8(y + at, pack(f));
        if (c == 0) rstd[row] = q;
    }
}

// dx[rows,D] = add + rstd (dy w - xhat mean(dy w xhat)), xhat = x rstd. add may be 0 (none) or dx itself; dx may be dy. Grid as above.
template <bool ONE>
__device__ void heads_backward(elem *dx, const elem *dy, const elem *x, const elem *w, const float *rstd, const elem *add, int64_t rows, int D, int lanes) {
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
    int c = threadIdx.x % lanes * 8;
    bool held = row < rows && c < D;
    int64_t at = row * D + c;
    float f[8] = {}, g[8] = {}, q = 0, s = 0;
    if (held) {
        float h[8];
        unpack(load8(x + at), f);
        unpack(load8(dy + at), g);
        load_weight<ONE>(w + c, h);
        q = rstd[row];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            g[k] *= h[k];
            f[k] *= q;
            s = fmaf(g[k], f[k], s);
        }
    }
    float m = row_sum(s, lanes) / D;
    if (held) {
#pragma unroll
        for (int k = 0; k < 8; k++) g[k] = q * (g[k] - f[k] * m);
        if (add) {
            float h[8];
            unpack(load8(add + at), h);
#pragma unroll
            for (int k = 0; k < 8; k++) g[k] += h[k];
        }
        store8(dx + at, pack(g));
    }
}

extern "C" __global__ void __launch_bounds__(256) rmsnorm_heads_forward(elem *y, float *rstd, const elem *x, const elem *w, int64_t rows, int D, int lanes, float eps) {
    heads_forward<false>(y, rstd, x, w, rows, D, lanes, eps);
}
extern "C" __global__ void __launch_bounds__(256) rmsnorm_heads_backward(elem *dx, const elem *dy, const elem *x, const elem *w, const float *rstd, const elem *add, int64_t rows, int D, int lanes) {
    heads_backward<false>(dx, dy, x, w, rstd, add, rows, D, lanes);
}
extern "C" __global__ void __launch_bounds__(256) rmsnorm_plusone_heads_forward(elem *y, float *rstd, const elem *x, const elem *w, int64_t rows, int D, int lanes, float eps) {
    heads_forward<true>(y, rstd, x, w, rows, D, lanes, eps);
}
extern "C" __global__ void __launch_bounds__(256) rmsnorm_plusone_heads_backward(elem *dx, const elem *dy, const elem *x, const elem *w, const float *rstd, const elem *add, int64_t rows, int D, int lanes) {
    heads_backward<true>(dx, dy, x, w, rstd, add, rows, D, lanes);
}

// Turns the eight values from column c on of a row by its position, sign = 1, or back, -1. The lanes of a row have each other's halves.
// Four values at a time: with all cosines and sines at once the registers would let fewer rows be under way.
__device__ __forceinline__ void turn(float *f, bool held, int c, int D, const float *angles, float sign) {
    int half = D / 2, lane = threadIdx.x & 31, other = c < half ? lane + half / 8 : lane - half / 8;
    angles += c < half ? c : c - half;
    sign = c < half ? -sign : sign;
#pragma unroll
    for (int j = 0; j < 8; j += 4) {
        float p[4], cs[4], sn[4];
#pragma unroll
        for (int k = 0; k < 4; k++) p[k] = __shfl_sync(~0u, f[j + k], other & 31);
        if (!held) continue;
        *(float4 *)cs = *(const float4 *)(angles + j), *(float4 *)sn = *(const float4 *)(angles + half + j);
#pragma unroll
        for (int k = 0; k < 4; k++) f[j + k] = f[j + k] * cs[k] + sign * p[k] * sn[k];
    }
}

// y = rmsnorm_heads_forward's, turned; row r is a head of token r/H. D a multiple of 16, table [P,D]: D/2 cosines, D/2 sines. Grid as above.
extern "C" __global__ void __launch_bounds__(256, 8) rmsnorm_heads_rope_forward(elem *y, float *rstd, const elem *x, const elem *w, const int *positions, const float *table,
                                                                            int64_t rows, int D, int lanes, int H, float eps) {
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
    int c = threadIdx.x % lanes * 8;
    bool held = row < rows && c < D;
    int64_t at = row * D + c;
    float f[8] = {}, s = 0;
    if (held) unpack(load8(x + at), f);
#pragma unroll
    for (int k = 0; k < 8; k++) s = fmaf(f[k], f[k], s);
    float q = rsqrtf(row_sum(s, lanes) / D + eps);
    const float *angles = table;
    if (held) {
        float g[8];
        unpack(load8(w + c), g);
        angles += (int64_t)positions[(unsigned)row / (unsigned)H] * D;
#pragma unroll
        for (int k = 0; k < 8; k++) f[k] = f[k] * q * g[k];
        if (c == 0) rstd[row] = q;
    }
    turn(f, held, c, D, angles, 1);
    if (held) store8(y + at, pack(f));
}

// dx = rmsnorm_heads_backward's of dy turned back. dx may be dy. Grid as above.
extern "C" __global__ void __launch_bounds__(256, 5) rmsnorm_heads_rope_backward(elem *dx, const elem *dy, const elem *x, const elem *w, const float *rstd, const int *positions,
                                                                             const float *table, int64_t rows, int D, int lanes, int H) {
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
    int c = threadIdx.x % lanes * 8;
    bool held = row < rows && c < D;
    int64_t at = row * D + c;
    float f[8] = {}, g[8] = {}, q = 0, s = 0;
    const float *angles = table;
    Eight<elem> v;   // x as stored: half the registers of its fp32 values
    if (held) {
        v = load8(x + at);
        unpack(load8(dy + at), g);
        q = rstd[row];
        angles += (int64_t)positions[(unsigned)row / (unsigned)H] * D;
    }
    turn(g, held, c, D, angles, -1);
    if (held) {
        float h[8];
        unpack(v, f);
        unpack(load8(w + c), h);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            g[k] *= h[k];
            f[k] *= q;
            s = fmaf(g[k], f[k], s);
        }
    }
    float m = row_sum(s, lanes) / D;
    if (held) {
#pragma unroll
        for (int k = 0; k < 8; k++) g[k] = q * (g[k] - f[k] * m);
        store8(dx + at, pack(g));
    }
}
