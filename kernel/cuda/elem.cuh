// elem.cuh: elem, the type in which activations and operands of GEMMs are stored, and what differs with it. A source whose
// header has a line "Elements:" is compiled once for each type named there, with ELEM_F16 or ELEM_F32 defined or neither (bf16).
// Kernels take elem *, compute in fp32 and round once, by narrow, pack or store2; every other type in a signature is what it says.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef __nv_bfloat16 bf16;

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }

#if defined(ELEM_F32)
typedef float elem;
#elif defined(ELEM_F16)
typedef __half elem;
#define ELEM_PTX "f16"   // the type's name in instructions
#else
typedef bf16 elem;
#define ELEM_PTX "bf16"
#endif

template <typename T = elem>
__device__ __forceinline__ T narrow(float x);
template <>
__device__ __forceinline__ float narrow<float>(float x) { return x; }
template <>
__device__ __forceinline__ bf16 narrow<bf16>(float x) { return __float2bfloat16(x); }
template <>
__device__ __forceinline__ __half narrow<__half>(float x) { return __float2half_rn(x); }

// Two neighbours of 16 bits in a register.
__device__ __forceinline__ float2 widen2(__nv_bfloat162 v) { return __bfloat1622float2(v); }
__device__ __forceinline__ float2 widen2(__half2 v) { return __half22float2(v); }
template <typename T>
struct Pair;
template <>
struct Pair<bf16> {
    typedef __nv_bfloat162 type;
    static __device__ __forceinline__ type of(float lo, float hi) { return __floats2bfloat162_rn(lo, hi); }
};
template <>
struct Pair<__half> {
    typedef __half2 type;
    static __device__ __forceinline__ type of(float lo, float hi) { return __floats2half2_rn(lo, hi); }
};

// Eight neighbours: one 16-byte access of 16-bit values, two of fp32.
template <typename T>
struct Eight {
    uint4 u[sizeof(T) / 2];
};

// Eight values of which every word is w: 0, or ~0u for NaN.
template <typename T = elem>
__device__ __forceinline__ Eight<T> fill8(uint32_t w) {
    Eight<T> v;
#pragma unroll
    for (int i = 0; i < (int)sizeof(T) / 2; i++) v.u[i] = make_uint4(w, w, w, w);
    return v;
}
template <typename T>
__device__ __forceinline__ Eight<T> load8(const T *p) {
    Eight<T> v;
#pragma unroll
    for (int i = 0; i < (int)sizeof(T) / 2; i++) v.u[i] = ((const uint4 *)p)[i];
    return v;
}
// For data read once: leaves the caches to what is read again.
template <typename T>
__device__ __forceinline__ Eight<T> load8_stream(const T *p) {
    Eight<T> v;
#pragma unroll
    for (int i = 0; i < (int)sizeof(T) / 2; i++) v.u[i] = __ldcs((const uint4 *)p + i);
    return v;
}
template <typename T>
__device__ __forceinline__ void store8(T *p, const Eight<T> &v) {
#pragma unroll
    for (int i = 0; i < (int)sizeof(T) / 2; i++) ((uint4 *)p)[i] = v.u[i];
}
// store8 to global memory by stores of 16 bytes for certain: the compiler takes some of store8's apart into four, which costs a fifth or more
// of the time of a kernel that is bound by them.
template <typename T>
__device__ __forceinline__ void store8_whole(T *p, const Eight<T> &v) {
#pragma unroll
    for (int i = 0; i < (int)sizeof(T) / 2; i++)
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global((uint4 *)p + i)), "r"(v.u[i].x), "r"(v.u[i].y), "r"(v.u[i].z), "r"(v.u[i].w) : "memory");
}
template <typename T>
__device__ __forceinline__ void unpack(const Eight<T> &v, float *f) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 t = widen2(((const typename Pair<T>::type *)&v)[i]);
        f[2 * i] = t.x;
        f[2 * i + 1] = t.y;
    }
}
__device__ __forceinline__ void unpack(const Eight<float> &v, float *f) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        f[4 * i] = __uint_as_float(v.u[i].x), f[4 * i + 1] = __uint_as_float(v.u[i].y);
        f[4 * i + 2] = __uint_as_float(v.u[i].z), f[4 * i + 3] = __uint_as_float(v.u[i].w);
    }
}
template <typename T>
struct Packed {
    static __device__ __forceinline__ Eight<T> of(const float *f) {
        Eight<T> v;
#pragma unroll
        for (int i = 0; i < 4; i++) ((typename Pair<T>::type *)&v)[i] = Pair<T>::of(f[2 * i], f[2 * i + 1]);
        return v;
    }
};
template <>
struct Packed<float> {
    static __device__ __forceinline__ Eight<float> of(const float *f) {
        Eight<float> v;
#pragma unroll
        for (int i = 0; i < 2; i++)
            v.u[i] = make_uint4(__float_as_uint(f[4 * i]), __float_as_uint(f[4 * i + 1]), __float_as_uint(f[4 * i + 2]), __float_as_uint(f[4 * i + 3]));
        return v;
    }
};
template <typename T = elem>
__device__ __forceinline__ Eight<T> pack(const float *f) { return Packed<T>::of(f); }

// Two and four neighbours at an address that is a multiple of their size.
#if defined(ELEM_F32)
__device__ __forceinline__ float2 load2(const elem *p) { return *(const float2 *)p; }
__device__ __forceinline__ void store2(elem *p, float x, float y) { *(float2 *)p = make_float2(x, y); }
__device__ __forceinline__ void store4(elem *p, float x, float y, float z, float w) { *(float4 *)p = make_float4(x, y, z, w); }
#else
__device__ __forceinline__ float2 unpack2(uint32_t v) { return widen2(*(Pair<elem>::type *)&v); }
__device__ __forceinline__ uint32_t pack2(float lo, float hi) {
    Pair<elem>::type v = Pair<elem>::of(lo, hi);
    return *(uint32_t *)&v;
}
__device__ __forceinline__ float2 load2(const elem *p) { return widen2(*(const Pair<elem>::type *)p); }
__device__ __forceinline__ void store2(elem *p, float x, float y) { *(uint32_t *)p = pack2(x, y); }
__device__ __forceinline__ void store4(elem *p, float x, float y, float z, float w) { *(uint2 *)p = make_uint2(pack2(x, y), pack2(z, w)); }
#endif
