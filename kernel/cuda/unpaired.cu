// unpaired.cu: the loss of answers that are each labelled desirable or undesirable (unpaired_loss: KTO, APO-zero), from sums over
// sequences under a policy and a reference, with the gradient for each of the policy's sums. The formulas stand in
// kernel/unpaired_loss.go.
// Layout: sums and gradient [S] fp32; rows [R,3] int32: the sequence of the answer (outside of [0,S) = no row), that of the
// mismatched answer (outside = none) and the label (1, -1; 0 = no row); no sequence is in two rows; results are single fp32 numbers.
// One block of 256. Rows are dealt out by turns and sums are added in a tree, so that the order depends on R alone. All arithmetic
// is fp64.
// Bytes: some 40 a row. Goal: latency.
#include "common.cuh"

enum { KTO = 0, APO_ZERO };

__device__ __forceinline__ double logistic(double x) {
    double e = exp(-fabs(x));
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

// The sum of v over the block's 256 threads, for all of them.
__device__ double total(double v) {
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

// Grid 1. dpolicy and scaling may be null.
extern "C" __global__ void __launch_bounds__(256) unpaired_rows(
    float *loss, float *dpolicy, float *reward, float *reward_undesirable, float *logp, float *logp_undesirable, float *count,
    float *count_undesirable, float *kl, const float *policy, const float *reference, const int *rows, const float *scale,
    const float *scaling, int R, int S, int form, double beta, double desirable, double undesirable) {
    double ratios = 0, mismatched = 0;
    if (form == KTO)
        for (int k = threadIdx.x; k < R; k += blockDim.x) {
            int own = rows[3 * k], s = rows[3 * k + 1];
            if (own >= 0 && own < S && rows[3 * k + 2] && s >= 0 && s < S) ratios += (double)policy[s] - (double)reference[s], mismatched += 1;
        }
    ratios = total(ratios), mismatched = total(mismatched);
    double z = mismatched == 0 || ratios <= 0 ? 0 : ratios / mismatched;   // NaN stays NaN
    double by = (double)*scale * (scaling ? *scaling : 1.f), all = 0, sums[7] = {0, 0, 0, 0, 0, 0, 0};
    if (dpolicy)
        for (int s = threadIdx.x; s < S; s += blockDim.x) dpolicy[s] = 0;
    __syncthreads();
    for (int k = threadIdx.x; k < R; k += blockDim.x) {
        int s = rows[3 * k], label = rows[3 * k + 2];
        if (s < 0 || s >= S || label == 0) continue;
        bool good = label > 0;
        double d = (double)policy[s] - (double)reference[s], weight = good ? desirable : undesirable;
        double x = label * beta * (d - z);
        all += weight * logistic(-x);
        if (dpolicy) dpolicy[s] = (float)(-by * weight * label * beta * (logistic(x) * logistic(-x)));
        sums[good ? 0 : 1] += beta * d, sums[good ? 2 : 3] += policy[s], sums[good ? 4 : 5] += 1, sums[6] += z;
    }
    all = total(all);
    float *to[7] = {reward, reward_undesirable, logp, logp_undesirable, count, count_undesirable, kl};
#pragma unroll
    for (int i = 0; i < 7; i++) {
        double sum = total(sums[i]);
        if (threadIdx.x == 0) *to[i] = (float)sum;
    }
    if (threadIdx.x == 0) *loss = (float)(all * *scale);
}
