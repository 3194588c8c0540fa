// few.cuh: N neighbours of a row, 1 or 8, for kernels that have a form for widths that are multiples of 8 and one for others.
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
struct few<1> {
    elem v;
    __device__ __forceinline__ void load(const elem *p) { v = *p; }
    __device__ __forceinline__ void zero() { v = narrow(0.f); }
    __device__ __forceinline__ void store(elem *p) const { *p = v; }
    __device__ __forceinline__ void widened(float *f) const { f[0] = widen(v); }
    __device__ __forceinline__ void narrowed(const float *f) { v = narrow(f[0]); }
};
