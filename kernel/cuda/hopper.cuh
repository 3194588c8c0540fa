// hopper.cuh: what the kernels for compute capability 9.0 share: the bulk tensor copy engine, its barriers, and wgmma.
// Bodies that use it stand under __CUDA_ARCH_FEAT_SM90_ALL: elsewhere they are empty, so the caller picks them by the
// device's compute capability, never by whether a launch succeeded.
//
// Tiles in shared memory are boxes of 64 columns (128 bytes) and any number of rows, swizzled by 128 bytes, each box at a
// multiple of 1024 bytes. One box serves as an operand whose inner dimension runs along the columns ("by column") or along
// the rows ("by row": the operand is read transposed).
#pragma once
#include "common.cuh"

struct alignas(64) TensorMap {   // CUtensorMap; the host encodes it
    uint64_t opaque[16];
};

// Fetches a map while the block still works out where to begin.
__device__ __forceinline__ void prefetch_map(const TensorMap *m) { asm volatile("prefetch.tensormap [%0];" ::"l"(m) : "memory"); }

__device__ __forceinline__ void barrier_init(uint32_t b, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(count)); }
__device__ __forceinline__ void barrier_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_expect(uint32_t b, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory"); }
__device__ __forceinline__ void barrier_wait(uint32_t b, int phase) {
    asm volatile("{\n.reg .pred p;\nWAIT%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE%=;\nbra WAIT%=;\nDONE%=:\n}" ::"r"(b), "r"(phase) : "memory");
}
__device__ __forceinline__ void copy_box(uint32_t dst, const TensorMap *map, uint32_t barrier, int c0, int c1) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(dst), "l"(map), "r"(barrier), "r"(c0), "r"(c1) : "memory");
}
__device__ __forceinline__ void copy_box(uint32_t dst, const TensorMap *map, uint32_t barrier, int c0, int c1, int c2) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
                 ::"r"(dst), "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2) : "memory");
}

// Bulk copies between shared and global memory. To shared memory a barrier counts the bytes. From there: after a fence by those who wrote,
// and a meeting; a thread waits for its own to have read, or to be done.
__device__ __forceinline__ void bulk_load(uint32_t dst, const void *src, int bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst), "l"(src), "r"(bytes), "r"(barrier) : "memory");
}
__device__ __forceinline__ void bulk_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void bulk_store(void *dst, uint32_t src, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(src), "r"(bytes) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t to, uint32_t v) { asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(v) : "memory"); }
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ __forceinline__ void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Four 8 x 8 matrices of 16-bit values to shared memory, as ldmatrix4 reads them: lane l has row l%8 of the l/8-th at `to`.
__device__ __forceinline__ void stmatrix4(uint32_t to, const uint32_t *r) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}

// Turns of two warpgroups at the tensor cores: the one that waits and the one that gives meet at a named barrier (1 to 15).
__device__ __forceinline__ void turn_wait(int id) { asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory"); }
__device__ __forceinline__ void turn_give(int id) { asm volatile("bar.arrive %0, 256;" ::"r"(id) : "memory"); }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <int N>
__device__ __forceinline__ void registers_up() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N>
__device__ __forceinline__ void registers_down() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

// Descriptor of an operand in 128-byte-swizzled boxes: 8 rows are 1024 bytes; next is the distance between boxes along the
// operand's outer dimension, used only when it is read by row.
__device__ __forceinline__ uint64_t operand(uint32_t at, int next = 16) {
    return (uint64_t)1 << 62 | (uint64_t)64 << 32 | (uint64_t)(next >> 4) << 16 | (at & 0x3FFFF) >> 4;
}
// Keeps the compiler from moving accesses of an accumulator across asynchronous GEMMs.
template <int N>
__device__ __forceinline__ void hold(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

#define ACC8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define ACC32(i) ACC8(i), ACC8(i + 8), ACC8(i + 16), ACC8(i + 24)

// d[64,N] = (ZERO ? 0 : d) + A[64,16] B[16,N]: A from shared memory or from registers, TA/TB = 1: read by row.
template <int N, int TA, int TB, int ZERO>
struct Wgmma;
template <int TA, int TB, int ZERO>
struct Wgmma<64, TA, TB, ZERO> {
    static __device__ __forceinline__ void shared(float (&d)[32], uint64_t a, uint64_t b) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." ELEM_PTX "." ELEM_PTX " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, %34, 1, 1, %35, %36;"
                     : ACC32(0)
                     : "l"(a), "l"(b), "n"(1 - ZERO), "n"(TA), "n"(TB));
    }
    static __device__ __forceinline__ void registers(float (&d)[32], const uint32_t *a, uint64_t b) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." ELEM_PTX "." ELEM_PTX " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, %37, 1, 1, %38;"
                     : ACC32(0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(1 - ZERO), "n"(TB));
    }
};
template <int TA, int TB, int ZERO>
struct Wgmma<128, TA, TB, ZERO> {
    static __device__ __forceinline__ void shared(float (&d)[64], uint64_t a, uint64_t b) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." ELEM_PTX "." ELEM_PTX " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, %66, 1, 1, %67, %68;"
                     : ACC32(0), ACC32(32)
                     : "l"(a), "l"(b), "n"(1 - ZERO), "n"(TA), "n"(TB));
    }
    static __device__ __forceinline__ void registers(float (&d)[64], const uint32_t *a, uint64_t b) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." ELEM_PTX "." ELEM_PTX " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, %68, %69, 1, 1, %70;"
                     : ACC32(0), ACC32(32)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(1 - ZERO), "n"(TB));
    }
};
template <int TA, int TB, int ZERO>
struct Wgmma<192, TA, TB, ZERO> {
    static __device__ __forceinline__ void shared(float (&d)[96], uint64_t a, uint64_t b) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n192k16.f32." ELEM_PTX "." ELEM_PTX " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, %96, %97, %98, 1, 1, %99, %100;"
                     : ACC32(0), ACC32(32), ACC32(64)
                     : "l"(a), "l"(b), "n"(1 - ZERO), "n"(TA), "n"(TB));
    }
};
template <int TA, int TB, int ZERO>
struct Wgmma<256, TA, TB, ZERO> {
    static __device__ __forceinline__ void shared(float (&d)[128], uint64_t a, uint64_t b) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." ELEM_PTX "." ELEM_PTX " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, %130, 1, 1, %131, %132;"
                     : ACC32(0), ACC32(32), ACC32(64), ACC32(96)
                     : "l"(a), "l"(b), "n"(1 - ZERO), "n"(TA), "n"(TB));
    }
};
#endif
