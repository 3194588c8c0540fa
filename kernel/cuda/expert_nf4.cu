// expert_nf4.cu: the 4-bit weights of E experts to elem, each dequantised as nf4.cu does it.
// Layout: an expert's matrix of n values as nf4.cu has it; packed [E][(n+1)/2], absmax [E][blocks] fp32 with blocks = (n+63)/64, or nested:
// scale8 [E][blocks] u8, map [256] fp32, scale2 [E][(blocks+255)/256] and offset [E] fp32; w [E][n].
// As nf4.cuh does it, value by value where n is no multiple of 8. Bytes: 2.52 a value nested (0.5 + 0.02 read, 2 written). Goal: 85 % of copy.
// Elements: bf16, f16, f32.
#include "nf4.cuh"

__device__ __forceinline__ void expert(elem *w, const uint8_t *packed, const float *code, Scale s, int64_t n) {
    int64_t e = blockIdx.y, blocks = (n + 63) >> 6;
    if (s.absmax) s.absmax += e * blocks;
    else s.scale8 += e * blocks, s.scale2 += e * ((blocks + 255) >> 8), s.offset += e;
    w += e * n, packed += e * ((n + 1) >> 1);
    dequantise(w, packed, code, s, n, n % 8 == 0);
}

// Grid (n / 8192 rounded up, E), block 256.
extern "C" __global__ void __launch_bounds__(256) expert_nf4_dequantise(elem *w, const uint8_t *packed, const float *code, const float *absmax, int64_t n) {
    expert(w, packed, code, Scale{absmax, 0, 0, 0, 0}, n);
}
extern "C" __global__ void __launch_bounds__(256) expert_nf4_dequantise_nested(elem *w, const uint8_t *packed, const float *code, const uint8_t *scale8, const float *map,
                                                                              const float *scale2, const float *offset, int64_t n) {
    expert(w, packed, code, Scale{0, scale8, map, scale2, offset}, n);
}
