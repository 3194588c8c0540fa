// convert.cu: numbers of one element type as another: weights on their way from a file to where the step reads them.
// Layout: flat buffers, addresses multiples of 16 bytes.
// Eight values a thread and round, a rest one by one. Grid-stride. To nearest, ties to even; to a wider type exact.
// Bytes: the sizes of both types a value. Goal: 85 % of copy; the copy from the host before it is 60 times slower.
#include "common.cuh"

template <typename To, typename From>
__device__ __forceinline__ void convert(To *y, const From *x, int64_t n) {
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 8; i < n; i += (int64_t)gridDim.x * blockDim.x * 8) {
        if (i + 8 <= n) {
            float f[8];
            unpack(load8_stream(x + i), f);
            store8(y + i, pack<To>(f));
        } else {
            for (int64_t k = i; k < n; k++) y[k] = narrow<To>(widen(x[k]));
        }
    }
}

// Grid: n / 8 threads at most, in blocks of 256.
#define CONVERT(types, To, From) \
    extern "C" __global__ void __launch_bounds__(256) convert_##types(To *y, const From *x, int64_t n) { convert(y, x, n); }
CONVERT(f32_to_bf16, bf16, float)
CONVERT(f16_to_bf16, bf16, __half)
CONVERT(f32_to_f16, __half, float)
CONVERT(bf16_to_f16, __half, bf16)
CONVERT(bf16_to_f32, float, bf16)
CONVERT(f16_to_f32, float, __half)
