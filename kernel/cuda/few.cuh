// few.cuh: N neighbours of a row, 8, 4 or 1, for kernels that have a form for widths that are multiples of N and one for others.
#pragma once
#include "common.cuh"

template <int N>
struct few;

template <>
struct few<8> {
    Eight<elem> v;
    __device__ __forceinline__ void load(const elem *p) { v = load8(p); }
    __device__ __forceinline__ void zero() { v = fill8(0); }
    __device__ __forceinline__ void store(elem *p) const { store8(p, v); }
    __device__ __forceinline__ void widened(float *f) const { unpack(v, f); }
    __device__ __forceinline__ void narrowed(const float *f) { v = pack(f); }
};

template <>
struct few<4> {
#if defined(ELEM_F32)
    uint4 v;
    __device__ __forceinline__ void load(const elem *p) { v = *(const uint4 *)p; }
    __device__ __forceinline__ void zero() { v = make_uint4(0, 0, 0, 0); }
    __device__ __forceinline__ void store(elem *p) const { *(uint4 *)p = v; }
    __device__ __forceinline__ void widened(float *f) const {
        f[0] = __uint_as_float(v.x), f[1] = __uint_as_float(v.y), f[2] = __uint_as_float(v.z), f[3] = __uint_as_float(v.w);
    }
    __device__ __forceinline__ void narrowed(const float *f) {
        v = make_uint4(__float_as_uint(f[0]), __float_as_uint(f[1]), __float_as_uint(f[2]), __float_as_uint(f[3]));
    }
#else
    uint2 v;
    __device__ __forceinline__ void load(const elem *p) { v = *(const uint2 *)p; }
    __device__ __forceinline__ void zero() { v = make_uint2(0, 0); }
    __device__ __forceinline__ void store(elem *p) const { *(uint2 *)p = v; }
    __device__ __forceinline__ void widened(float *f) const {
        float2 a = unpack2(v.x), b = unpack2(v.y);
        f[0] = a.x, f[1] = a.y, f[2] = b.x, f[3] = b.y;
    }
    __device__ __forceinline__ void narrowed(const float *f) { v = make_uint2(pack2(f[0], f[1]), pack2(f[2], f[3])); }
#endif
};

template <>
struct few<1> {
    elem v;
    __device__ __forceinline__ void load(const elem *p) { v = *p; }
    __device__ __forceinline__ void zero() { v = narrow(0.f); }
    __device__ __forceinline__ void store(elem *p) const { *p = v; }
    __device__ __forceinline__ void widened(float *f) const { f[0] = widen(v); }
    __device__ __forceinline__ void narrowed(const float *f) { v = narrow(f[0]); }
};
