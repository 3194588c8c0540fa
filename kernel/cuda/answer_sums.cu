// answer_sums.cu: sums of what LinearLogProbs reports of tokens over a batch's chosen and rejected answers, from sums over sequences.
// Layout: sums [3,S] fp32, the rows of LinearLogProbs' statistics; counts [S] fp32, tokens of each sequence; answers [R,columns] int32: with 2
// columns the sequences of a pair's chosen and rejected answer, with 3 a sequence, another one that counts nowhere, and a label above 0 =
// chosen, below 0 = rejected. An index outside 0 to S-1 or a label of 0 = none. out: seven fp32 numbers, in the order of kernel.AnswerSums.
// One block of 256. Thread t takes rows t, t + 256, ... and sums are added in a tree, so that the order depends on R alone. Accumulation fp64.
// Bytes: 20 an answer. Goal: latency.
#include "common.cuh"

enum { SUMS = 7 };

// The sum of v over the block's 256 threads, for all of them.
__device__ double block_sum64(double v) {
    __shared__ double part[256];
    __syncthreads();
    part[threadIdx.x] = v;
    __syncthreads();
    for (int half = 128; half; half >>= 1) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    return part[0];
}

// Grid 1.
extern "C" __global__ void __launch_bounds__(256) answer_sums_rows(float *entropy, float *chosen_logits, float *rejected_logits, float *likeliest,
                                                                    float *tokens, float *chosen_tokens, float *rejected_tokens, const float *sums,
                                                                    const float *counts, const int *answers, int S, int R, int columns) {
    double all[SUMS] = {0, 0, 0, 0, 0, 0, 0};
    for (int r = threadIdx.x; r < R; r += blockDim.x) {
        const int *row = answers + (int64_t)r * columns;
        int at[2] = {row[0], row[1]};
        if (columns == 3) {
            at[0] = row[2] > 0 ? row[0] : -1;
            at[1] = row[2] < 0 ? row[0] : -1;
        } else if (at[0] < 0 || at[0] >= S || at[1] < 0 || at[1] >= S) continue;
#pragma unroll
        for (int side = 0; side < 2; side++) {
            int s = at[side];
            if (s < 0 || s >= S) continue;
            all[0] += sums[s];
            all[1 + side] += sums[S + s];
            if (side == 0) all[3] += sums[2 * S + s];
            all[4] += counts[s];
            all[5 + side] += counts[s];
        }
    }
    float *to[SUMS] = {entropy, chosen_logits, rejected_logits, likeliest, tokens, chosen_tokens, rejected_tokens};
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        double sum = block_sum64(all[i]);
        if (threadIdx.x == 0) *to[i] = (float)sum;
    }
}
