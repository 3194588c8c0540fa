// dora.cu: the norms of the rows of W + s B A, and the scaling of columns by a magnitude over that norm, with its gradients.
// Layout: u, y, dy, du [M,N] elem packed; m, inv, dm, squares [N] fp32; wa [R,N], gram [R,R], b [N,R] fp32; partial [slices,N] fp32.
// dora_norm: a warp a row, 8 rows a block, lanes over the columns of B. dora_scale: a thread takes 8 values, grid-stride.
// dora_scale_grad: a block takes 64 columns of a slice of rows, 8 columns a thread, and leaves their sums; dora_magnitude adds the slices.
// Every sum has a fixed order. Accumulation fp32. Bytes: 4 a value forward, 6 backward. Goal: 80 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

enum { WARPS = 8, COLUMNS = 64, LANES = 32 };

extern "C" __global__ void __launch_bounds__(256) dora_norm(float *inv, const float *squares, const float *wa, const float *gram, const float *b,
                                                             int N, int R, float s) {
    int n = blockIdx.x * WARPS + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (n >= N) return;
    const float *own = b + (int64_t)n * R;
    float sum = 0.f;
    for (int r = lane; r < R; r += 32) {
        float product = 0.f;
        for (int k = 0; k < R; k++) product = fmaf(gram[(int64_t)k * R + r], own[k], product);   // gram is symmetric
        sum = fmaf(own[r], fmaf(s, product, 2.f * wa[(int64_t)r * N + n]), sum);
    }
    sum = fmaf(s, warp_sum(sum), squares[n]);
    if (lane == 0) inv[n] = sum > 0.f || sum != sum ? rsqrtf(sum) : 0.f;
}

// y <- u m inv. y may be u.
extern "C" __global__ void __launch_bounds__(256) dora_scale(elem *y, const elem *u, const float *m, const float *inv, int64_t M, int N) {
    int64_t total = M * N;
    if (N % 8) {
        for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x)
            y[i] = narrow(widen(u[i]) * (m[i % N] * inv[i % N]));
        return;
    }
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 8; i < total; i += (int64_t)gridDim.x * blockDim.x * 8) {
        Eight<elem> v = load8(u + i);
        elem *x = (elem *)&v;
        int n = i % N;
#pragma unroll
        for (int j = 0; j < 8; j++) x[j] = narrow(widen(x[j]) * (m[n + j] * inv[n + j]));
        store8(y + i, v);
    }
}

// du <- dy m inv, partial[slice] <- the sums of dy u over the slice's rows. du may be dy.
// Grid ceil(N/64), slices.
extern "C" __global__ void __launch_bounds__(256) dora_scale_grad(elem *du, float *partial, const elem *u, const float *m, const float *inv, const elem *dy,
                                                                   int M, int N, int slice) {
    __shared__ float part[LANES][COLUMNS];
    int column = (threadIdx.x & 7) * 8, lane = threadIdx.x >> 3, n = blockIdx.x * COLUMNS + column;
    int last = min(M, ((int)blockIdx.y + 1) * slice), count = min(8, N - n);
    float by[8], sum[8];
#pragma unroll
    for (int j = 0; j < 8; j++) sum[j] = 0.f, by[j] = j < count ? m[n + j] * inv[n + j] : 0.f;
    for (int row = blockIdx.y * slice + lane; row < last; row += LANES) {
        int64_t at = (int64_t)row * N + n;
        if (N % 8 == 0) {
            if (count <= 0) continue;
            Eight<elem> d = load8(dy + at), v = load8(u + at);
            elem *dp = (elem *)&d, *vp = (elem *)&v;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                float g = widen(dp[j]);
                sum[j] = fmaf(g, widen(vp[j]), sum[j]);
                dp[j] = narrow(g * by[j]);
            }
            store8(du + at, d);
        } else {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                if (j >= count) continue;
                float g = widen(dy[at + j]);
                sum[j] = fmaf(g, widen(u[at + j]), sum[j]);
                du[at + j] = narrow(g * by[j]);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < 8; j++) part[lane][column + j] = sum[j];
    __syncthreads();
    if (threadIdx.x < COLUMNS && blockIdx.x * COLUMNS + threadIdx.x < N) {
        float total = 0.f;
        for (int l = 0; l < LANES; l++) total += part[l][threadIdx.x];
        partial[(int64_t)blockIdx.y * N + blockIdx.x * COLUMNS + threadIdx.x] = total;
    }
}

// dm <- inv times the sums of all slices.
extern "C" __global__ void __launch_bounds__(256) dora_magnitude(float *dm, const float *partial, const float *inv, int slices, int N) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= N) return;
    float sum = 0.f;
    for (int i = 0; i < slices; i++) sum += partial[(int64_t)i * N + n];
    dm[n] = sum * inv[n];
}
