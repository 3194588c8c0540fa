// topk.cu: per row of logits the K most likely tokens with their log-probabilities, and the log-probability of all others together.
// Layout: logits x [M,V] elem, rows ld elements apart, not changed; labels [M] int32, -100 = no result: ids -1, logps 0; ids [M,K] int32,
// descending, of equals the first; logps [M,K+1] fp32. cold: 1 / temperature. A cap of 0 is none; else logits are cap tanh(x / cap). A logit
// that is not finite gives NaN.
// One block of at most 512 a row, which reads the row K + 1 times, from the caches but for the first: each pass finds the largest element
// behind the one before. Accumulation fp32, in an order that depends on V alone.
// Bytes: 2 a logit and pass. Goal: half the time of the GEMM that made the logits, at K = 32.
// Elements: bf16, f16, f32.
#include "common.cuh"

enum { UNTRAINED = -100 };

__device__ __forceinline__ float capped(float x, float cap) {
    return cap > 0.f ? cap * (1.f - __fdividef(2.f, __expf(x * (2.f / cap)) + 1.f)) : x;
}

struct Best {
    float value;
    int at;
    __device__ __forceinline__ void take(float v, int i) {
        if (v > value || (v == value && i < at)) value = v, at = i;
    }
};

// The best over all threads of a block; every thread gets it.
__device__ Best whole(Best b) {
    __shared__ float values[16];
    __shared__ int places[16];
    auto over_warp = [&]() {
#pragma unroll
        for (int d = 16; d; d >>= 1) {
            float v = __shfl_xor_sync(~0u, b.value, d);
            int i = __shfl_xor_sync(~0u, b.at, d);
            b.take(v, i);
        }
    };
    over_warp();
    __syncthreads();
    if ((threadIdx.x & 31) == 0) values[threadIdx.x >> 5] = b.value, places[threadIdx.x >> 5] = b.at;
    __syncthreads();
    int lane = threadIdx.x & 31;
    b = {-INF, 0x7fffffff};
    if (lane < blockDim.x >> 5) b = {values[lane], places[lane]};
    over_warp();
    return b;
}

// Calls f with the place and the value of each element that this thread has.
template <typename F>
__device__ __forceinline__ void visit(const elem *x, int V, int ld, F f) {
    int V8 = ld % 8 == 0 ? V / 8 * 8 : 0;
    for (int c = threadIdx.x * 8; c < V8; c += blockDim.x * 8) {
        float v[8];
        unpack(load8(x + c), v);
#pragma unroll
        for (int k = 0; k < 8; k++) f(c + k, v[k]);
    }
    for (int c = V8 + threadIdx.x; c < V; c += blockDim.x) f(c, widen(x[c]));
}

// ids[M,K] and logps[M,K+1]. Grid M.
extern "C" __global__ void __launch_bounds__(512) topk_rows(int *ids, float *logps, const elem *x, const int *labels, int V, int ld, int K,
                                                            float cold, float cap) {
    int row = blockIdx.x;
    x += (int64_t)row * ld;
    ids += (int64_t)row * K;
    logps += (int64_t)row * (K + 1);
    if (labels[row] == UNTRAINED) {
        for (int k = threadIdx.x; k <= K; k += blockDim.x) {
            if (k < K) ids[k] = -1;
            logps[k] = 0.f;
        }
        return;
    }
    Best last = {INF, -1}, first = last;
    float inside = 0.f;
    for (int k = 0; k < K; k++) {
        Best b = {-INF, 0x7fffffff};
        visit(x, V, ld, [&](int c, float v) {
            if (v < last.value || (v == last.value && c > last.at)) b.take(v, c);
        });
        last = whole(b);
        if (k == 0) first = last;
        float y = (capped(last.value, cap) - capped(first.value, cap)) * cold;
        inside += expf(y);
        if (threadIdx.x == 0) ids[k] = last.at < V ? last.at : -1, logps[k] = y;
    }
    float top = capped(first.value, cap), outside = 0.f, broken = 0.f;
    visit(x, V, ld, [&](int c, float v) {
        if (v < last.value || (v == last.value && c > last.at)) outside += __expf((capped(v, cap) - top) * cold);
        else if (!(fabsf(v) < INF)) broken = 1.f;
        if (v == -INF) broken = 1.f;
    });
    outside = block_sum(outside);
    broken = block_sum(broken);
    float lse = broken > 0.f ? NANF : logf(inside + outside);
    __syncthreads();
    if (threadIdx.x == 0) logps[K] = logf(outside) - lse;
    for (int k = threadIdx.x; k < K; k += blockDim.x) logps[k] -= lse;
}
