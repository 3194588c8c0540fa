// dropout.cu: y = x * keep * scale, where keep of element e is: word e%4 of Philox4x32-10(counter = (e/4 low, e/4 high, step, 0),
// key = seed + stream) is at least the threshold. A dropped element is x * 0. The mask is that of the CPU, bit for bit.
// Layout: x, y flat elem buffers of elements first, a multiple of 8, and on, y may be x; counter int32 [2] = (seed, step).
// dropout_slots: rows [S,C] in the order of their experts; row r has the mask of row source[r], first / C rows further on; without a slot,
// source[r] < 0, it is zero.
// Eight values, two draws of the generator, a thread and round. Grid-stride. Arithmetic fp32.
// Bytes: 4 a value. Goal: 60 % of copy; the generator takes 20 wide multiplications for 4 values.
// Elements: bf16, f16, f32.
#include "common.cuh"

__device__ __forceinline__ uint4 philox(uint64_t group, uint32_t step, uint64_t key) {
    uint32_t a = (uint32_t)group, b = (uint32_t)(group >> 32), c = step, d = 0, k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#pragma unroll
    for (int i = 0; i < 10; i++) {
        uint64_t p = (uint64_t)0xd2511f53u * a, q = (uint64_t)0xcd9e8d57u * c;
        a = (uint32_t)(q >> 32) ^ b ^ k0;
        b = (uint32_t)q;
        c = (uint32_t)(p >> 32) ^ d ^ k1;
        d = (uint32_t)p;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return make_uint4(a, b, c, d);
}

// Grid: any.
extern "C" __global__ void __launch_bounds__(256) dropout_apply(elem *y, const elem *x, const int *counter, uint64_t stream, uint32_t threshold,
                                                               float scale, int64_t n, int64_t first) {
    uint64_t key = (uint64_t)(uint32_t)counter[0] + stream;
    uint32_t step = (uint32_t)counter[1];
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 8; i < n; i += (int64_t)gridDim.x * blockDim.x * 8) {
        uint4 r = philox((first + i) / 4, step, key), s = philox((first + i) / 4 + 1, step, key);
        float keep[8] = {r.x >= threshold ? scale : 0.f, r.y >= threshold ? scale : 0.f, r.z >= threshold ? scale : 0.f, r.w >= threshold ? scale : 0.f,
                         s.x >= threshold ? scale : 0.f, s.y >= threshold ? scale : 0.f, s.z >= threshold ? scale : 0.f, s.w >= threshold ? scale : 0.f};
        if (i + 8 <= n) {
            float f[8];
            unpack(load8(x + i), f);
#pragma unroll
            for (int k = 0; k < 8; k++) f[k] *= keep[k];
            store8(y + i, pack(f));
        } else {
#pragma unroll
            for (int k = 0; k < 8; k++)
                if (i + k < n) y[i + k] = narrow(widen(x[i + k]) * keep[k]);
        }
    }
}

// y[r] <- x[r] masked as row source[r], S rows of C; y may be x. Flat over groups of 8 where C allows it, else over values. Grid: any.
extern "C" __global__ void __launch_bounds__(256) dropout_slots(elem *y, const elem *x, const int *counter, const int *source, uint64_t stream, uint32_t threshold,
                                                               float scale, int S, int C, int64_t first) {
    uint64_t key = (uint64_t)(uint32_t)counter[0] + stream;
    uint32_t step = (uint32_t)counter[1];
    int wide = C % 8 == 0 ? 8 : 1, per = C / wide;
    int64_t total = (int64_t)S * per;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        int s = source[i / per];
        if (s < 0) {
            if (wide == 8) store8(y + i * 8, fill8(0));
            else y[i] = narrow(0.f);
            continue;
        }
        uint64_t at = (uint64_t)(first + (int64_t)s * C + i % per * wide);
        uint4 r = philox(at / 4, step, key);
        if (wide == 8) {
            uint4 q = philox(at / 4 + 1, step, key);
            uint32_t word[8] = {r.x, r.y, r.z, r.w, q.x, q.y, q.z, q.w};
            float f[8];
            unpack(load8(x + i * 8), f);
#pragma unroll
            for (int k = 0; k < 8; k++) f[k] *= word[k] >= threshold ? scale : 0.f;
            store8(y + i * 8, pack<elem>(f));
        } else {
            uint32_t word = at % 4 == 0 ? r.x : at % 4 == 1 ? r.y : at % 4 == 2 ? r.z : r.w;
            y[i] = narrow(widen(x[i]) * (word >= threshold ? scale : 0.f));
        }
    }
}
