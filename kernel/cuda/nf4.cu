// nf4.cu: 4-bit weights in bitsandbytes' layout, to elem or fp32 and from bf16, fp16 or fp32, in NF4's table or FP4's.
// Layout: a matrix of n values flattened row-major, blocks of 64; packed [(n+1)/2], first value in the high nibble;
// absmax [(n+63)/64] fp32, or nested: scale8 u8 with map [256] fp32, scale2 [blocks/256] fp32 and offset (one fp32 on the device).
// value = code[c] * absmax; nested absmax = map[scale8] * scale2 (rounded) + offset (rounded, no fused multiply-add).
// Dequantise: nf4.cuh. Quantise: 8 threads a block of 64 values.
// Bytes: dequantise 2.52 a value nested (0.5 + 0.02 read, 2 written), goal 85 % of copy; quantise 2.56 from bf16.
// Elements: bf16, f16, f32.
#include "nf4.cuh"

// Grid: n / 8192 rounded up, at least 1; block 256. code [16]: NF4's or another 4-bit table.
extern "C" __global__ void __launch_bounds__(256) nf4_dequantise(elem *w, const uint8_t *packed, const float *code, const float *absmax, int64_t n) {
    dequantise(w, packed, code, Scale{absmax, 0, 0, 0, 0}, n, true);
}
extern "C" __global__ void __launch_bounds__(256) nf4_dequantise_nested(elem *w, const uint8_t *packed, const float *code, const uint8_t *scale8, const float *map,
                                                                       const float *scale2, const float *offset, int64_t n) {
    dequantise(w, packed, code, Scale{0, scale8, map, scale2, offset}, n, true);
}
extern "C" __global__ void __launch_bounds__(256) nf4_dequantise_f32(float *w, const uint8_t *packed, const float *code, const float *absmax, int64_t n) {
    dequantise(w, packed, code, Scale{absmax, 0, 0, 0, 0}, n, true);
}
extern "C" __global__ void __launch_bounds__(256) nf4_dequantise_nested_f32(float *w, const uint8_t *packed, const float *code, const uint8_t *scale8, const float *map,
                                                                           const float *scale2, const float *offset, int64_t n) {
    dequantise(w, packed, code, Scale{0, scale8, map, scale2, offset}, n, true);
}

// Midpoints between NF4's codes as bitsandbytes' CUDA kernels have them: the code is the number of midpoints below x.
__constant__ float threshold[15] = {
    -0.8480963706970215f, -0.6106328964233398f, -0.4599952697753906f, -0.33967941999435425f, -0.23460739850997925f, -0.13791173696517944f,
    -0.045525018125772476f, 0.03979014977812767f, 0.120255246758461f, 0.2035212516784668f, 0.2920137643814087f, 0.3893125355243683f,
    0.5016634464263916f, 0.6427869200706482f, 0.8614784479141235f};

struct NF4 {
    static __device__ __forceinline__ uint32_t code(float x) {
        uint32_t c = 0;
#pragma unroll
        for (int j = 0; j < 15; j++) c += x > threshold[j];
        return c;
    }
};

// Least magnitudes, as bits, that have each code of FP4 but the first, and the codes by their magnitudes, a nibble each, as
// package quant has them. NaN is code 0, zero has no sign.
__constant__ uint32_t least[7] = {0x3b2a64c4, 0x3db0068f, 0x3e5559b5, 0x3e955326, 0x3ed55327, 0x3f15566d, 0x3f55566e};
struct FP4 {
    static __device__ __forceinline__ uint32_t code(float x) {
        uint32_t b = __float_as_uint(x), m = b & 0x7fffffffu, i = 0;
#pragma unroll
        for (int j = 0; j < 7; j++) i += m >= least[j];
        if (i == 0 || m > 0x7f800000u) return 0;
        return (0x32547610u >> (4 * i) & 15) | (b >> 31 << 3);
    }
};

// A missing last value counts as 0. The absmax of a block is finite if and only if its values are. A block of zeros has
// 1/absmax = inf, 0 inf = NaN, and NaN is above no midpoint: code 0.
template <typename Code, typename T>
__device__ void quantise(uint8_t *packed, float *absmax, const T *w, int64_t n) {
    int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    float f[8];
    uint32_t m = 0;   // magnitudes as bits, which are in their order, NaN above all: fmaxf would lose it
#pragma unroll
    for (int k = 0; k < 8; k++) {
        f[k] = at + k < n ? widen(w[at + k]) : 0.f;
        m = max(m, __float_as_uint(f[k]) & 0x7fffffffu);
    }
#pragma unroll
    for (int o = 1; o < 8; o <<= 1) m = max(m, __shfl_xor_sync(~0u, m, o));
    if (at >= n) return;
    if ((threadIdx.x & 7) == 0) absmax[at >> 6] = __uint_as_float(m);
    float inv = __frcp_rn(__uint_as_float(m));
    uint32_t out = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        out |= Code::code(__fmul_rn(f[k], inv)) << (8 * (k >> 1) + (k & 1 ? 0 : 4));
    }
    if (at + 8 <= n) {
        *(uint32_t *)(packed + (at >> 1)) = out;
    } else {
        for (int64_t k = at; k < n; k += 2) packed[k >> 1] = out >> (8 * ((k - at) >> 1)) & 255;
    }
}

// Grid: n / (8 blockDim.x) rounded up.
extern "C" __global__ void __launch_bounds__(256) nf4_quantise_bf16(uint8_t *packed, float *absmax, const bf16 *w, int64_t n) { quantise<NF4>(packed, absmax, w, n); }
extern "C" __global__ void __launch_bounds__(256) nf4_quantise_f16(uint8_t *packed, float *absmax, const __half *w, int64_t n) { quantise<NF4>(packed, absmax, w, n); }
extern "C" __global__ void __launch_bounds__(256) nf4_quantise_f32(uint8_t *packed, float *absmax, const float *w, int64_t n) { quantise<NF4>(packed, absmax, w, n); }
extern "C" __global__ void __launch_bounds__(256) nf4_quantise_fp4_bf16(uint8_t *packed, float *absmax, const bf16 *w, int64_t n) { quantise<FP4>(packed, absmax, w, n); }
extern "C" __global__ void __launch_bounds__(256) nf4_quantise_fp4_f16(uint8_t *packed, float *absmax, const __half *w, int64_t n) { quantise<FP4>(packed, absmax, w, n); }
extern "C" __global__ void __launch_bounds__(256) nf4_quantise_fp4_f32(uint8_t *packed, float *absmax, const float *w, int64_t n) { quantise<FP4>(packed, absmax, w, n); }

// offset = mean of x[n] in a fixed order (fp64, rounded once), that of package quant's mean; not finite if and only if one of x is not.
// Grid 1, block 1024.
extern "C" __global__ void __launch_bounds__(1024) nf4_offset(float *offset, const float *x, int n) {
    __shared__ double part[32];
    double s = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += x[i];
#pragma unroll
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = s;
    __syncthreads();
    if (threadIdx.x < 32) {
        s = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
#pragma unroll
        for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
        if (threadIdx.x == 0) *offset = (float)(s / n);
    }
}

// scale8, scale2 <- absmax[blocks] - offset, in blocks of 256, nearest entry of map; halfway between two the even entry.
// Grid: blocks / 256 rounded up, block 256.
extern "C" __global__ void __launch_bounds__(256) nf4_nest(uint8_t *scale8, float *scale2, const float *absmax, const float *map, const float *offset, int blocks) {
    __shared__ float table[256];
    table[threadIdx.x] = map[threadIdx.x];
    int i = blockIdx.x * 256 + threadIdx.x;
    float x = i < blocks ? __fsub_rn(absmax[i], *offset) : 0.f;
    float m = block_max(fabsf(x));
    if (threadIdx.x == 0) scale2[blockIdx.x] = m;
    if (i >= blocks) return;
    x = __fmul_rn(x, __frcp_rn(m));
    int below = 0;   // entries below x: the table rises
    for (int step = 128; step; step >>= 1)
        if (x > table[below + step - 1]) below += step;
    int lo = below > 0 ? below - 1 : 0, hi = below < 256 ? below : 255;
    if (x > table[255]) lo = hi = 255;
    float mid = __fmul_rn(__fadd_rn(table[lo], table[hi]), 0.5f);
    scale8[i] = x > mid || (x == mid && !(hi & 1)) ? hi : lo;
}
