// residual.cuh: a residual sum is stored as its nearest elem and a byte of its own, the low bits: eight more bits of the significand.
// bf16: with t = bits of the fp32 sum + 0x8080, the upper half of t is the bf16 and byte 1 the low bits; what is read back,
// (bf16 << 16) + (low << 8) - 0x8000, are the bits of the sum rounded to 16 significant bits. f16: the low bits count the 32 fp32
// neighbours of the f16 that lie nearest to the sum: 18 bits, less where f16 is denormal. f32 has none.
// Low bits of 0x80 add nothing.
#pragma once
#include "common.cuh"

// Eight sums.
struct Sum8 {
    Eight<elem> near;
    uint2 low;
};

// The parts of a sum, and the sum of its parts.
#if defined(ELEM_F32)
__device__ __forceinline__ void split_sum(float x, elem &near, uint32_t &) { near = x; }
__device__ __forceinline__ float join_sum(elem near, uint32_t) { return near; }
#elif defined(ELEM_F16)
__device__ __forceinline__ void split_sum(float x, elem &near, uint32_t &low) {
    near = narrow(x);
    int bits = __float_as_int(widen(near)), beyond = (__float_as_int(x) - bits + 16) >> 5;
    bool finite = (bits & 0x7f800000) != 0x7f800000;
    low = finite ? min(max(beyond, -128), 127) + 0x80 : 0x80;
}
__device__ __forceinline__ float join_sum(elem near, uint32_t low) { return __int_as_float(__float_as_int(widen(near)) + (((int)low - 0x80) << 5)); }
#else
// A NaN's bits are not rounded: they would carry into the sign.
__device__ __forceinline__ uint32_t sum_bits(float x) { return x != x ? 0x7fc08000u : __float_as_uint(x) + 0x8080u; }
__device__ __forceinline__ void split_sum(float x, elem &near, uint32_t &low) {
    uint32_t t = sum_bits(x);
    near = __ushort_as_bfloat16((unsigned short)(t >> 16));
    low = t >> 8 & 0xff;
}
__device__ __forceinline__ float join_sum(elem near, uint32_t low) {
    return __uint_as_float(((uint32_t)__bfloat16_as_ushort(near) << 16 | low << 8) - 0x8000u);
}
#endif

// low may be 0: the values have none.
__device__ __forceinline__ Sum8 load_sum8(const elem *near, const uint8_t *low, int64_t i) {
    Sum8 s;
    s.near = load8(near + i);
    s.low = low ? *(const uint2 *)(low + i) : make_uint2(0x80808080u, 0x80808080u);
    return s;
}
__device__ __forceinline__ void store_sum8(elem *near, uint8_t *low, int64_t i, const Sum8 &s) {
    store8(near + i, s.near);
#ifndef ELEM_F32
    *(uint2 *)(low + i) = s.low;
#endif
}

#if defined(ELEM_F32)
__device__ __forceinline__ void unpack(const Sum8 &s, float *f) { unpack(s.near, f); }
__device__ __forceinline__ Sum8 pack_sum(const float *f) {
    Sum8 s;
    s.near = pack(f);
    return s;
}
#elif defined(ELEM_F16)
__device__ __forceinline__ void unpack(const Sum8 &s, float *f) {
    const uint8_t *t = (const uint8_t *)&s.low;
#pragma unroll
    for (int k = 0; k < 8; k++) f[k] = join_sum(((const elem *)&s.near)[k], t[k]);
}
__device__ __forceinline__ Sum8 pack_sum(const float *f) {
    Sum8 s;
    s.low = make_uint2(0, 0);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        uint32_t low;
        split_sum(f[k], ((elem *)&s.near)[k], low);
        (&s.low.x)[k / 4] |= low << 8 * (k % 4);
    }
    return s;
}
#else   // the same by permutations of bytes
__device__ __forceinline__ void unpack(const Sum8 &s, float *f) {
    const uint32_t *n = (const uint32_t *)&s.near, *t = (const uint32_t *)&s.low;
#pragma unroll
    for (int k = 0; k < 8; k++)   // bytes 3 and 2: bf16; byte 1: low bits
        f[k] = __uint_as_float((__byte_perm(n[k / 2], t[k / 4], (k % 2 ? 0x3200 : 0x1000) | (4 + k % 4) << 4) & ~0xffu) - 0x8000u);
}
__device__ __forceinline__ Sum8 pack_sum(const float *f) {
    Sum8 s;
    uint32_t *n = (uint32_t *)&s.near, *t = (uint32_t *)&s.low;
#pragma unroll
    for (int k = 0; k < 8; k += 4) {
        uint32_t a = sum_bits(f[k]), b = sum_bits(f[k + 1]), c = sum_bits(f[k + 2]), d = sum_bits(f[k + 3]);
        n[k / 2] = __byte_perm(a, b, 0x7632);
        n[k / 2 + 1] = __byte_perm(c, d, 0x7632);
        t[k / 4] = __byte_perm(__byte_perm(a, b, 0x0051), __byte_perm(c, d, 0x0051), 0x5410);
    }
    return s;
}
#endif

// The same where low may be 0: the sums are then stored as the nearest elem alone.
__device__ __forceinline__ Sum8 pack_sum(const float *f, const uint8_t *low) {
    if (low) return pack_sum(f);
    Sum8 s;
    s.near = pack(f);
    s.low = make_uint2(0x80808080u, 0x80808080u);
    return s;
}
__device__ __forceinline__ void store_sum8_near(elem *near, uint8_t *low, int64_t i, const Sum8 &s) {
    if (low) store_sum8(near, low, i, s);
    else store8(near + i, s.near);
}

// One value, for rows whose length is no multiple of eight.
__device__ __forceinline__ float load_sum(const elem *near, const uint8_t *low, int64_t i) { return join_sum(near[i], low ? low[i] : 0x80); }
// Stores a sum and returns it as stored.
__device__ __forceinline__ float store_sum(elem *near, uint8_t *low, int64_t i, float x) {
    elem n;
    uint32_t t = 0x80;
    split_sum(x, n, t);
    near[i] = n;
#ifndef ELEM_F32
    low[i] = (uint8_t)t;
#endif
    return join_sum(n, t);
}
__device__ __forceinline__ float store_sum_near(elem *near, uint8_t *low, int64_t i, float x) {
    if (low) return store_sum(near, low, i, x);
    return widen(near[i] = narrow(x));
}
