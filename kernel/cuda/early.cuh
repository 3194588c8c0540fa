// early.cuh: kernels that begin before what they depend on has ended (programmatic dependent launch, compute capability 9.0 and later;
// nothing elsewhere, and nothing where the launch was not asked to begin early).
// A kernel of kernel/cuda's list Early calls let_next_begin and wait_for_earlier in every thread. Before wait_for_earlier it writes
// nothing and reads frozen weights and tables only: calls before it may still run. As none of them ends before it has waited itself,
// all that a kernel follows, directly or not, is done when wait_for_earlier returns.
#pragma once

// The next kernel may begin as soon as every block here has said so or ended.
__device__ __forceinline__ void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernels before this one have ended and what they wrote can be read.
__device__ __forceinline__ void wait_for_earlier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Brings the 128 bytes at p into the second-level cache.
__device__ __forceinline__ void prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
