// moe.cuh: how a warp finds a row's largest logits.
#pragma once
#include "common.cuh"

// A logit's rank among a row's: larger logits first, of equal ones the lower index, numbers that are none last.
__device__ __forceinline__ uint64_t rank_of(float x, int index) {
    uint32_t u = __float_as_uint(x + 0.f); // -0 is 0
    u = x != x ? 0u : u & 0x80000000u ? ~u : u | 0x80000000u;
    return (uint64_t)u << 32 | (uint32_t)~index;
}

// The index of a row's largest of E logits, those of earlier calls left out; taken: this lane's, bit i stands for index 32 i + lane.
__device__ __forceinline__ int next_expert(const float *logits, int E, uint32_t &taken) {
    int lane = threadIdx.x & 31;
    uint64_t best = 0;
    for (int i = lane, bit = 0; i < E; i += 32, bit++)
        if (!(taken >> bit & 1)) best = max(best, rank_of(logits[i], i));
#pragma unroll
    for (int o = 16; o; o >>= 1) best = max(best, (uint64_t)__shfl_xor_sync(~0u, (unsigned long long)best, o));
    int e = ~(uint32_t)best;
    if ((e & 31) == lane) taken |= 1u << (e >> 5);
    return e;
}

// The sum of exp(logits - top) over a row, by a warp.
__device__ __forceinline__ float exp_sum(const float *logits, int E, float top) {
    float sum = 0.f;
    for (int i = threadIdx.x & 31; i < E; i += 32) sum += expf(logits[i] - top);
    return warp_sum(sum);
}
