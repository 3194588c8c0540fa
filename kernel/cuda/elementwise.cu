// elementwise.cu: sums and scaling of flat buffers.
// Layout: flat buffers.
// Eight values a thread and round where n and the addresses allow, a rest one by one. Grid-stride. Arithmetic fp32.
// Bytes: add 6 (7 or 8 with low bits, 2 more where b is fp32), axpy 6, scale 4. Goal: 85 % of copy.
// Elements: bf16, f16, f32.
#include "residual.cuh"

#define EACH8(n) \
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 8; i < (n); i += (int64_t)gridDim.x * blockDim.x * 8)

// y elem <- a + b; y may be a or b.
extern "C" __global__ void __launch_bounds__(256) elementwise_add(elem *y, const elem *a, const elem *b, int64_t n) {
    EACH8(n) {
        if (i + 8 <= n) {
            float f[8], g[8];
            unpack(load8(a + i), f);
            unpack(load8(b + i), g);
#pragma unroll
            for (int k = 0; k < 8; k++) f[k] += g[k];
            store8(y + i, pack(f));
        } else {
            for (int64_t k = i; k < n; k++) y[k] = narrow(widen(a[k]) + widen(b[k]));
        }
    }
}

template <typename B>
__device__ void add_tail(elem *y, uint8_t *y_tail, const elem *a, const uint8_t *a_tail, const B *b, int64_t n) {
    EACH8(n) {
        if (i + 8 <= n) {
            float f[8], g[8];
            unpack(load_sum8(a, a_tail, i), f);
            unpack(load8(b + i), g);
#pragma unroll
            for (int k = 0; k < 8; k++) f[k] += g[k];
            store_sum8(y, y_tail, i, pack_sum(f));
        } else {
            for (int64_t k = i; k < n; k++) store_sum(y, y_tail, k, load_sum(a, a_tail, k) + widen(b[k]));
        }
    }
}

// y with its low bits <- a with its low bits or 0 + b; y may be a or b, its low bits those of a.
extern "C" __global__ void __launch_bounds__(256) elementwise_add_tail(elem *y, uint8_t *y_tail, const elem *a, const uint8_t *a_tail, const elem *b, int64_t n) {
    add_tail(y, y_tail, a, a_tail, b, n);
}

// The same for b in fp32; y may be a.
extern "C" __global__ void __launch_bounds__(256) elementwise_add_wide_tail(elem *y, uint8_t *y_tail, const elem *a, const uint8_t *a_tail, const float *b, int64_t n) {
    add_tail(y, y_tail, a, a_tail, b, n);
}

// y elem <- y + alpha x.
extern "C" __global__ void __launch_bounds__(256) elementwise_axpy(elem *y, const elem *x, float alpha, int64_t n) {
    EACH8(n) {
        if (i + 8 <= n) {
            float f[8], g[8];
            unpack(load8(y + i), f);
            unpack(load8(x + i), g);
#pragma unroll
            for (int k = 0; k < 8; k++) f[k] = fmaf(alpha, g[k], f[k]);
            store8(y + i, pack(f));
        } else {
            for (int64_t k = i; k < n; k++) y[k] = narrow(fmaf(alpha, widen(x[k]), widen(y[k])));
        }
    }
}

// y fp32 <- y + alpha x.
extern "C" __global__ void __launch_bounds__(256) elementwise_axpy_f32(float *y, const float *x, float alpha, int64_t n) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) y[i] = fmaf(alpha, x[i], y[i]);
}

// y elem <- alpha x; y may be x.
extern "C" __global__ void __launch_bounds__(256) elementwise_scale(elem *y, const elem *x, float alpha, int64_t n) {
    EACH8(n) {
        if (i + 8 <= n) {
            float f[8];
            unpack(load8(x + i), f);
#pragma unroll
            for (int k = 0; k < 8; k++) f[k] *= alpha;
            store8(y + i, pack(f));
        } else {
            for (int64_t k = i; k < n; k++) y[k] = narrow(alpha * widen(x[k]));
        }
    }
}

// y elem <- alpha[0] x; y may be x.
extern "C" __global__ void __launch_bounds__(256) elementwise_scale_by(elem *y, const elem *x, const float *alpha, int64_t n) {
    float by = alpha[0];
    EACH8(n) {
        if (i + 8 <= n) {
            float f[8];
            unpack(load8(x + i), f);
#pragma unroll
            for (int k = 0; k < 8; k++) f[k] *= by;
            store8(y + i, pack(f));
        } else {
            for (int64_t k = i; k < n; k++) y[k] = narrow(by * widen(x[k]));
        }
    }
}
