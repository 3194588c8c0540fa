// adafactor.cu: one step of Adafactor over trained tensors, of whose second moments a matrix keeps the means of rows and columns
// (kernel/adafactor.go has the formula).
// Layout: p, g fp32, m fp32 (not read with b1 = 0), copy elem (the operand of the next step's GEMMs) or 0; table [N][5] uint32: first element,
// rows, columns (0: a vector), place in rows, place in cols; hyper: fp32 rate and beta2. step: one int32, clip: one fp32 on the device.
// scaling: 0, or [3] fp32 whose last is the number of skipped steps, which t does not count.
// A clip factor that is not a number changes nothing: the host may learn of a loss gone bad after the step was queued.
// A block of 256 threads takes a tensor: means of rows (a warp each) and of columns (a thread each), the update's mean square, the update.
// Sums fp64 in a fixed order; other arithmetic fp32, each operation rounded by itself.
// mostBits, decayBits: the clip threshold and the weight decay as the bits of an fp64.
// Bytes: 32 a parameter (g read four times, p three times, p and copy written). Goal: 40 % of copy for 300 matrices of 16 by 2048.
// Elements: bf16, f16, f32.
#include "common.cuh"

__device__ __forceinline__ double sum_of_block(double v) {
    __shared__ double part[8];
#pragma unroll
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    v = 0;
#pragma unroll
    for (int w = 0; w < 8; w++) v += part[w];
    return v;
}

__device__ __forceinline__ double squared(float g, float c) {
    const double d = (double)__fmul_rn(g, c);
    return d * d + 1e-30;
}

__device__ __forceinline__ float moved(float old, double to, float b2, float to2) {
    return __fadd_rn(__fmul_rn(b2, old), __fmul_rn(to2, (float)to));
}

// Grid: a block for each tensor; block: 256.
extern "C" __global__ void __launch_bounds__(256) adafactor_step(float *p, float *rowsOf, float *colsOf, float *m, elem *copy, const float *g,
        const uint32_t *table, const float *hyper, const int *step, const float *clip, const float *scaling, float b1, float to1, int64_t mostBits,
        int64_t decayBits, int scale) {
    const float c = *clip;
    if (c != c) return;
    const double most = __longlong_as_double(mostBits), decay = __longlong_as_double(decayBits);
    const uint32_t *own = table + 5 * blockIdx.x;
    const int rows = (int)own[1], cols = (int)own[2];
    const int64_t from = own[0], elems = (int64_t)rows * (cols ? cols : 1);
    float *R = rowsOf + own[3], *C = colsOf + own[4];
    g += from, p += from;
    float b2 = hyper[1];
    if (scaling) b2 = (float)(1. - pow((double)(*step - (int)scaling[2]), -0.8));
    const float to2 = __fsub_rn(1.f, b2);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float mean = 1.f;
    if (cols) {
        for (int r = warp; r < rows; r += 8) {
            double sum = 0;
            for (int k = lane; k < cols; k += 32) sum += squared(g[(int64_t)r * cols + k], c);
#pragma unroll
            for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
            if (lane == 0) R[r] = moved(R[r], sum / cols, b2, to2);
        }
        for (int k = threadIdx.x; k < cols; k += 256) {
            double sum = 0;
            for (int r = 0; r < rows; r++) sum += squared(g[(int64_t)r * cols + k], c);
            C[k] = moved(C[k], sum / rows, b2, to2);
        }
        __syncthreads();
        double sum = 0;
        for (int r = threadIdx.x; r < rows; r += 256) sum += R[r];
        mean = (float)(sum_of_block(sum) / rows);
    } else {
        for (int64_t j = threadIdx.x; j < elems; j += 256) R[j] = moved(R[j], (double)(float)squared(g[j], c), b2, to2);
    }
    __syncthreads();
    auto update = [&](int64_t j) {
        const float d = __fmul_rn(g[j], c);
        if (!cols) return __fdiv_rn(d, __fsqrt_rn(R[j]));
        return __fdiv_rn(__fdiv_rn(d, __fsqrt_rn(__fdiv_rn(R[j / cols], mean))), __fsqrt_rn(C[j % cols]));
    };
    double sum = 0, squares = 0;
    for (int64_t j = threadIdx.x; j < elems; j += 256) {
        const double u = update(j), w = p[j];
        sum += u * u, squares += w * w;
    }
    sum = sum_of_block(sum), squares = sum_of_block(squares);
    float lr = hyper[0];
    if (scale) lr = (float)((double)lr * fmax(1e-3, sqrt(squares / elems)));
    const float size = (float)((double)lr / fmax(1., sqrt(sum / elems) / most)), keep = (float)((double)lr * decay);
    for (int64_t j = threadIdx.x; j < elems; j += 256) {
        float u = __fmul_rn(size, update(j));
        if (b1 > 0.f) m[from + j] = u = __fadd_rn(__fmul_rn(b1, m[from + j]), __fmul_rn(to1, u));
        const float w = p[j], P = __fsub_rn(__fsub_rn(w, __fmul_rn(keep, w)), u);
        p[j] = P;
        if (copy) copy[from + j] = narrow(P);
    }
}
