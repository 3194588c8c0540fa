// moe_scores.cu: a router's choice of K of E experts for every token by sigmoids of its logits, or their softmax, with a correction of the
// choice and groups of experts, and the gradient of the weights.
// Layout: logits, dlogits [M,E] elem; correction [E] fp32 or null; weights, dw [M,K] fp32; experts [M,K] int32.
// E at most 1024, K at most 64, groups at most 32, each of E / groups neighbours; best is 1 or 2. normalise: the divisor is
// max(sum of the chosen scores + epsilon, least), else 1.
// A row is a warp's, 8 a block: its corrected scores lie in shared memory, and its groups' sums behind them. Sums fp32, by warp.
// Bytes: 2 a logit. Goal: latency; a call moves a few values a token.
// Elements: bf16, f16, f32.
#include "moe.cuh"

enum { WARPS = 8, GROUPS = 32 };

struct Weigh {
    int softmax, normalise;
    float epsilon, least, scale;
    float top, sum;   // of a softmax: the largest logit and the sum of exp(logit - top)

    // Over a row of logits in shared memory, by a warp.
    __device__ __forceinline__ void look(const float *row, int E) {
        top = 0.f, sum = 1.f;
        if (!softmax) return;
        Choice largest(row, E);
        top = row[largest.next()];
        sum = exp_sum(row, E, top);
    }
    __device__ __forceinline__ float score(float x) const { return softmax ? expf(x - top) / sum : 1.f / (1.f + expf(-x)); }
    __device__ __forceinline__ float divisor(float chosen) const { return normalise ? fmaxf(chosen + epsilon, least) : 1.f; }
};

// The sum of the best largest of a group's numbers, by one lane.
__device__ __forceinline__ float best_of(const float *group, int size, int best) {
    uint32_t first = 0, second = 0;
    int at = -1, next = -1;
    for (int i = 0; i < size; i++) {
        uint32_t u = Choice::order_of(group[i]);
        if (at < 0 || u > first) next = at, second = first, at = i, first = u;
        else if (next < 0 || u > second) next = i, second = u;
    }
    return best == 2 && next >= 0 ? group[at] + group[next] : group[at];
}

// Block 256, dynamic shared memory WARPS (E + GROUPS) fp32.
extern "C" __global__ void __launch_bounds__(256) moe_scores(float *weights, int *experts, const elem *logits, const float *correction, int M, int E, int K, int groups,
                                                             int open, int best, int softmax, int normalise, float epsilon, float least, float scale) {
    extern __shared__ float shared[];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, m = blockIdx.x * WARPS + warp;
    float *row = shared + warp * (E + GROUPS), *sums = row + E;
    if (m >= M) return;
    logits += (int64_t)m * E;
    for (int i = lane; i < E; i += 32) row[i] = widen(logits[i]);
    __syncwarp();
    Weigh w = {softmax, normalise, epsilon, least, scale};
    w.look(row, E);
    __syncwarp();
    for (int i = lane; i < E; i += 32) row[i] = w.score(row[i]) + (correction ? correction[i] : 0.f);
    __syncwarp();
    if (groups > 1) {
        int size = E / groups;
        if (lane < groups) sums[lane] = best_of(row + lane * size, size, best);
        __syncwarp();
        Choice of_groups(sums, groups);
        uint32_t in = 0;
        for (int j = 0; j < open; j++) in |= 1u << of_groups.next();
        for (int i = lane; i < E; i += 32)
            if (!(in >> (i / size) & 1)) row[i] = __int_as_float(0xff800000);
        __syncwarp();
    }
    Choice choice(row, E);
    float chosen = 0.f, mine[2] = {0.f, 0.f};
    int index[2] = {0, 0};
    for (int k = 0; k < K; k++) {
        int e = choice.next();
        float s = w.score(widen(logits[e]));
        chosen += s;
        if (k % 32 == lane) mine[k / 32] = s, index[k / 32] = e;
    }
    float by = scale / w.divisor(chosen);
#pragma unroll
    for (int j = 0; j < 2; j++) {
        int k = 32 * j + lane;
        if (k < K) weights[(int64_t)m * K + k] = mine[j] * by, experts[(int64_t)m * K + k] = index[j];
    }
}

// Block 256, dynamic shared memory WARPS 2 E fp32.
extern "C" __global__ void __launch_bounds__(256) moe_scores_grad(elem *dlogits, const elem *logits, const int *experts, const float *dw, int M, int E, int K,
                                                                  int softmax, int normalise, float epsilon, float least, float scale) {
    extern __shared__ float shared[];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, m = blockIdx.x * WARPS + warp;
    float *row = shared + warp * 2 * E, *ds = row + E;   // logits; gradients of the chosen scores
    if (m >= M) return;
    for (int i = lane; i < E; i += 32) row[i] = widen(logits[(int64_t)m * E + i]), ds[i] = 0.f;
    __syncwarp();
    Weigh w = {softmax, normalise, epsilon, least, scale};
    w.look(row, E);
    experts += (int64_t)m * K, dw += (int64_t)m * K;
    float chosen = 0.f, mean = 0.f, inner = 0.f;
    for (int k = lane; k < K; k += 32) {
        float s = w.score(row[experts[k]]);
        chosen += s;
        mean += s * dw[k];
    }
    chosen = warp_sum(chosen), mean = warp_sum(mean);
    float divisor = w.divisor(chosen);
    mean = normalise && chosen + epsilon >= least ? mean / divisor : 0.f;
    for (int k = lane; k < K; k += 32) {
        float d = scale / divisor * (dw[k] - mean);
        ds[experts[k]] = d;
        inner += d * w.score(row[experts[k]]);
    }
    inner = softmax ? warp_sum(inner) : 0.f;
    __syncwarp();
    for (int i = lane; i < E; i += 32) {
        float s = w.score(row[i]), d = ds[i];
        float other = softmax ? 0.f : 1.f / (1.f + expf(row[i]));   // 1 - s
        dlogits[(int64_t)m * E + i] = narrow(softmax ? s * (d - inner) : d == 0.f ? 0.f : d * s * other);
    }
}
