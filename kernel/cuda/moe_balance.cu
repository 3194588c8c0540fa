// moe_balance.cu: the balance of a network's experts as a part of its loss, and its gradient for the routers' logits.
// Layout: logits, dlogits [M,E] elem, a launch a layer; real [M] int32: 0 where a row is padding; part [layers][BLOCKS][2][E] fp32,
// how often an expert is among a row's K largest, then the sum of its probabilities; share [E+1] fp32: each expert's share of the rows' choices,
// then the weight of a row's gradient. E at most 1024, K at most 64.
// scores: a row's logits stand for the softmax of its K largest, and zeros for the others.
// Rows are a warp's, 4 a block; a warp adds up its own rows, a block its warps in order, one block all parts in order, in fp64.
// Accumulation fp32, then fp64. Bytes: 2 a logit read twice, 2 written. Goal: none of speed.
// Elements: bf16, f16, f32.
#include "moe.cuh"

enum { WARPS = 4, BLOCKS = 64 };

// Turns a row of logits into scores. top: the largest of them; taken: this lane's bits of the K largest, as Choice leaves them.
__device__ __forceinline__ void to_scores(float *row, int E, float top, uint32_t taken) {
    int lane = threadIdx.x & 31;
    float sum = 0.f;
    for (int i = lane, bit = 0; i < E; i += 32, bit++)
        if (taken >> bit & 1) sum += expf(row[i] - top);
    sum = warp_sum(sum);
    __syncwarp(); // all lanes have read the largest
    for (int i = lane, bit = 0; i < E; i += 32, bit++) row[i] = taken >> bit & 1 ? expf(row[i] - top) / sum : 0.f;
}

// One layer's part. Grid BLOCKS, block 128, dynamic shared memory 3 WARPS E fp32.
extern "C" __global__ void __launch_bounds__(128) moe_balance_rows(float *part, const elem *logits, const int *real, int M, int E, int K,
                                                                    int scores) {
    extern __shared__ float shared[];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    float *row = shared + warp * E, *sums = shared + WARPS * E, *chosen = sums + warp * 2 * E, *mean = chosen + E;
    for (int i = threadIdx.x; i < WARPS * 2 * E; i += 128) sums[i] = 0.f;
    __syncthreads();
    for (int m = blockIdx.x * WARPS + warp; m < M; m += BLOCKS * WARPS) {
        if (!real[m]) continue;
        for (int i = lane; i < E; i += 32) row[i] = widen(logits[(int64_t)m * E + i]);
        __syncwarp();
        Choice choice(row, E);
        float top = 0.f;
        for (int k = 0; k < K; k++) {
            int e = choice.next();
            if (k == 0) top = row[e];
            if ((e & 31) == lane) chosen[e] += 1.f;
        }
        if (scores) {
            to_scores(row, E, top, choice.taken);
            top = 0.f;
        }
        float sum = exp_sum(row, E, top);
        for (int i = lane; i < E; i += 32) mean[i] += expf(row[i] - top) / sum;
        __syncwarp();
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * E; i += 128) {
        float sum = 0.f;
        for (int w = 0; w < WARPS; w++) sum += sums[w * 2 * E + i];
        part[(int64_t)blockIdx.x * 2 * E + i] = sum;
    }
}

// The sum of a number of each thread of a block of 1024, for all of them. counts: 32 numbers of shared memory.
__device__ __forceinline__ int block_count(int *counts, int n) {
#pragma unroll
    for (int o = 16; o; o >>= 1) n += __shfl_xor_sync(~0u, n, o);
    __syncthreads(); // an earlier sum has been read
    if ((threadIdx.x & 31) == 0) counts[threadIdx.x >> 5] = n;
    __syncthreads();
    n = 0;
    for (int w = 0; w < 32; w++) n += counts[w];
    return n;
}

// sum <- loss + coef E (sum of shares times mean probabilities) scale (labels that are not -100), and share. scaling: the loss scale, or 0.
// One block of 1024.
extern "C" __global__ void __launch_bounds__(1024) moe_balance_finish(float *sum, float *share, const float *loss, const float *part, const int *labels, const float *scale,
                                                                      const int *real, const float *scaling, int layers, int M, int E, float coef) {
    __shared__ double parts[32];
    __shared__ int counts[32];
    int e = threadIdx.x, warp = e >> 5, lane = e & 31;
    int rows = 0, trained = 0;
    for (int m = e; m < M; m += 1024) rows += real[m] != 0, trained += labels[m] != -100;
    rows = block_count(counts, rows), trained = block_count(counts, trained);
    double all = (double)layers * rows, chosen = 0, mean = 0;
    if (all < 1) all = 1;
    if (e < E)
        for (int64_t p = 0; p < (int64_t)layers * BLOCKS; p++) {
            chosen += part[p * 2 * E + e];
            mean += part[p * 2 * E + E + e];
        }
    chosen /= all;
    if (e < E) share[e] = (float)chosen;
    double aux = chosen * (mean / all);
#pragma unroll
    for (int o = 16; o; o >>= 1) aux += __shfl_xor_sync(~0u, aux, o);
    if (lane == 0) parts[warp] = aux;
    __syncthreads();
    if (e) return;
    aux = 0;
    for (int w = 0; w < 32; w++) aux += parts[w];
    double weight = (double)coef * E * (double)*scale * trained;
    *sum = (float)((double)*loss + weight * aux);
    share[E] = (float)(weight * (scaling ? (double)*scaling : 1.0) / all);
}

// One layer's gradient. Grid: M / WARPS rounded up, block 128, dynamic shared memory WARPS E fp32.
extern "C" __global__ void __launch_bounds__(128) moe_balance_grad(elem *dlogits, const elem *logits, const float *share, const int *real, int M, int E, int K,
                                                                    int scores) {
    extern __shared__ float shared[];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, m = blockIdx.x * WARPS + warp;
    float *row = shared + warp * E;
    if (m >= M) return;
    dlogits += (int64_t)m * E;
    if (!real[m]) {
        for (int i = lane; i < E; i += 32) dlogits[i] = narrow(0.f);
        return;
    }
    float top = -INF, inner = 0.f;
    for (int i = lane; i < E; i += 32) {
        row[i] = widen(logits[(int64_t)m * E + i]);
        top = fmaxf(top, row[i]);
    }
    top = warp_max(top);
    __syncwarp();
    if (scores) {
        Choice choice(row, E);
        for (int k = 0; k < K; k++) choice.next();
        to_scores(row, E, top, choice.taken);
        top = 0.f;
    }
    float sum = exp_sum(row, E, top);
    for (int i = lane; i < E; i += 32) inner += expf(row[i] - top) / sum * share[i];
    inner = warp_sum(inner);
    if (scores) { // through the softmax of the chosen
        float mean = 0.f;
        for (int i = lane; i < E; i += 32) mean += row[i] * expf(row[i]) / sum * (share[i] - inner);
        mean = warp_sum(mean);
        for (int i = lane; i < E; i += 32) dlogits[i] = narrow(share[E] * row[i] * (expf(row[i]) / sum * (share[i] - inner) - mean));
        return;
    }
    for (int i = lane; i < E; i += 32) dlogits[i] = narrow(share[E] * expf(row[i] - top) / sum * (share[i] - inner));
}
