// moe.cuh: how a warp finds a row's largest logits.
#pragma once
#include "common.cuh"

// A warp's choice of the largest of E logits in shared memory, one after the other: of equal ones the lower index, numbers that are none last.
struct Choice {
    const float *row;
    int E;
    uint32_t taken = 0;   // this lane's, bit i stands for index 32 i + lane
    uint32_t best;        // the largest of the lane's that are left, as a number that orders as they do
    int at;               // where it is, E where none are left

    __device__ __forceinline__ Choice(const float *row, int E) : row(row), E(E) { look(); }
    __device__ __forceinline__ int next() {
        int e = __reduce_min_sync(~0u, best == __reduce_max_sync(~0u, best) ? at : E);
        if (at == e) {
            taken |= 1u << (e >> 5);
            look();
        }
        __syncwarp();
        return e;
    }
    __device__ __forceinline__ void look() {
        best = 0, at = E;
        for (int i = threadIdx.x & 31, bit = 0; i < E; i += 32, bit++) {
            uint32_t u = order_of(row[i]);
            if (!(taken >> bit & 1) && (at == E || u > best)) best = u, at = i;
        }
    }
    static __device__ __forceinline__ uint32_t order_of(float x) {
        uint32_t u = __float_as_uint(x + 0.f);   // -0 is 0
        return x != x ? 0u : u & 0x80000000u ? ~u : u | 0x80000000u;
    }
};

// The sum of exp(logits - top) over a row, by a warp.
__device__ __forceinline__ float exp_sum(const float *logits, int E, float top) {
    float sum = 0.f;
    for (int i = threadIdx.x & 31; i < E; i += 32) sum += expf(logits[i] - top);
    return warp_sum(sum);
}
