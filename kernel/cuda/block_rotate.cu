// block_rotate.cu: blocks of B columns times a B x B matrix each, and the gradient of those matrices.
// Layout: x, y, a, b [M,C] elem packed; r, out [C,B] elem: the matrices one below the other; partial [slices,C,B] fp32.
// block_rotate: a thread block takes 128 rows and 32 columns of one block; a thread 4 rows and 4 columns.
// block_outer: a thread block takes 32 x 32 numbers of one matrix and a slice of the rows; block_sum adds the slices.
// Every sum has a fixed order. Accumulation fp32. Bytes: 4 a value forward. Goal: 60 % of copy at B 32.
// Elements: bf16, f16, f32.
#include "common.cuh"

enum { ROWS = 128, TILE = 32 };

// Grid ceil(M/128), C/B * ceil(B/32). The matrix is read as it lies, or transposed.
extern "C" __global__ void __launch_bounds__(256) block_rotate(elem *y, const elem *x, const elem *r, int M, int C, int B, int transposed) {
    __shared__ float xs[ROWS][TILE + 1], rs[TILE][TILE + 1];
    int tiles = (B + TILE - 1) / TILE, j = blockIdx.y / tiles, first = blockIdx.y % tiles * TILE, row = blockIdx.x * ROWS;
    int c = (threadIdx.x & 7) * 4, m = (threadIdx.x >> 3) * 4;
    const elem *own = r + (int64_t)j * B * B;
    float sum[4][4] = {};
    for (int from = 0; from < B; from += TILE) {
        for (int i = threadIdx.x; i < ROWS * TILE; i += 256) {
            int a = i / TILE, k = i % TILE;
            xs[a][k] = row + a < M && from + k < B ? widen(x[(int64_t)(row + a) * C + j * B + from + k]) : 0.f;
        }
        for (int i = threadIdx.x; i < TILE * TILE; i += 256) {
            int k = i / TILE, n = i % TILE;
            bool in = from + k < B && first + n < B;
            rs[k][n] = !in ? 0.f : widen(transposed ? own[(int64_t)(first + n) * B + from + k] : own[(int64_t)(from + k) * B + first + n]);
        }
        __syncthreads();
        for (int k = 0; k < TILE; k++) {
#pragma unroll
            for (int a = 0; a < 4; a++)
#pragma unroll
                for (int n = 0; n < 4; n++) sum[a][n] = fmaf(xs[m + a][k], rs[k][c + n], sum[a][n]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int a = 0; a < 4; a++)
#pragma unroll
        for (int n = 0; n < 4; n++)
            if (row + m + a < M && first + c + n < B) y[(int64_t)(row + m + a) * C + j * B + first + c + n] = narrow(sum[a][n]);
}

// partial[slice] <- the products of a slice's rows. Grid C/B * ceil(B/32)^2, slices.
extern "C" __global__ void __launch_bounds__(256) block_outer(float *partial, const elem *a, const elem *b, int M, int C, int B, int slice) {
    __shared__ float as[TILE][TILE + 1], bs[TILE][TILE + 1];
    int tiles = (B + TILE - 1) / TILE, j = blockIdx.x / (tiles * tiles), tile = blockIdx.x % (tiles * tiles);
    int top = tile / tiles * TILE, left = tile % tiles * TILE, k = threadIdx.x >> 3, c = (threadIdx.x & 7) * 4;
    int last = min(M, ((int)blockIdx.y + 1) * slice);
    float sum[4] = {};
    for (int row = blockIdx.y * slice; row < last; row += TILE) {
        for (int i = threadIdx.x; i < TILE * TILE; i += 256) {
            int m = i / TILE, n = i % TILE;
            int64_t at = (int64_t)(row + m) * C + j * B;
            as[m][n] = row + m < last && top + n < B ? widen(a[at + top + n]) : 0.f;
            bs[m][n] = row + m < last && left + n < B ? widen(b[at + left + n]) : 0.f;
        }
        __syncthreads();
        for (int m = 0; m < TILE; m++)
#pragma unroll
            for (int n = 0; n < 4; n++) sum[n] = fmaf(as[m][k], bs[m][c + n], sum[n]);
        __syncthreads();
    }
    float *to = partial + (int64_t)blockIdx.y * C * B + ((int64_t)j * B + top + k) * B + left + c;
#pragma unroll
    for (int n = 0; n < 4; n++)
        if (top + k < B && left + c + n < B) to[n] = sum[n];
}

// out <- the sum of the slices, in their order.
extern "C" __global__ void __launch_bounds__(256) block_sum(elem *out, const float *partial, int64_t total, int slices) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        float sum = 0.f;
        for (int s = 0; s < slices; s++) sum += partial[s * total + i];
        out[i] = narrow(sum);
    }
}
