// task_loss.cu: losses of heads over sequences or tokens: classes, labels and numbers (class_loss), and rewards of preference pairs
// (reward_loss), with their gradients. The formulas stand in kernel/class_loss.go and kernel/reward_loss.go.
// Layout: scores, targets, dscores [S,L] fp32; bias, dbias [L] fp32 or null; labels [S] int32, -100 = the row does not count: zeros;
// each, right, errors [S] fp32; rewards, drewards [S] fp32; pairs [P,2] int32, outside of [0,S) = no pair; scale: one fp32;
// scaling: one fp32, the loss scale that gradients are multiplied by too, or null.
// Classes: a warp a row, lanes take scores by turns and sums are added in a tree; 8 rows a block. Bias: a thread a label, rows in their
// order. Rewards: one block of 256. Arithmetic fp64. Bytes: 12 a score. Goal: latency; a call moves some thousand numbers.
#include "common.cuh"

enum { UNTRAINED = -100, WARPS = 8 };
enum { SINGLE = 0, MULTI, REGRESSION };

__device__ __forceinline__ double softplus(double x) { return fmax(x, 0.) + log1p(exp(-fabs(x))); }
__device__ __forceinline__ double logistic(double x) {
    double e = exp(-fabs(x));
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}
__device__ __forceinline__ double lanes_sum(double v) {
#pragma unroll
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}
__device__ __forceinline__ double lanes_max(double v) {
#pragma unroll
    for (int o = 16; o; o >>= 1) v = fmax(v, __shfl_xor_sync(~0u, v, o));
    return v;
}

// each, right, errors [S] and dscores [S,L], which may be null. Grid ceil(S / 8).
extern "C" __global__ void __launch_bounds__(256) task_loss_class(float *each, float *right, float *errors, float *dscores, const float *scores,
                                                                   const int *labels, const float *targets, const float *bias,
                                                                   const float *scale, const float *scaling, int form, int S, int L) {
    int s = blockIdx.x * WARPS + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (s >= S) return;
    int label = labels[s];
    int64_t row = (int64_t)s * L;
    double by = (double)*scale * (scaling ? *scaling : 1.f), loss = 0, far = 0;
    bool hit = false;
    if (label == UNTRAINED) {
        if (dscores)
            for (int l = lane; l < L; l += 32) dscores[row + l] = 0.f;
    } else if (form == SINGLE) {
        double top = -INF, sum = 0;
        for (int l = lane; l < L; l += 32) top = fmax(top, (double)scores[row + l] + (bias ? bias[l] : 0.f));
        top = lanes_max(top);
        int first = L;   // the first score that is the largest
        for (int l = lane; l < L; l += 32) {
            double x = (double)scores[row + l] + (bias ? bias[l] : 0.f);
            sum += exp(x - top);
            if (x == top) first = min(first, l);
        }
        sum = lanes_sum(sum);
#pragma unroll
        for (int o = 16; o; o >>= 1) first = min(first, __shfl_xor_sync(~0u, first, o));
        bool valid = label >= 0 && label < L;
        hit = valid && first == label;
        loss = valid ? top + log(sum) - ((double)scores[row + label] + (bias ? bias[label] : 0.f)) : NANF;
        if (dscores)
            for (int l = lane; l < L; l += 32) {
                double x = (double)scores[row + l] + (bias ? bias[l] : 0.f);
                dscores[row + l] = valid ? (float)((exp(x - top) / sum - (l == label)) * by) : NANF;
            }
    } else {
        int wrong = 0;
        for (int l = lane; l < L; l += 32) {
            double x = (double)scores[row + l] + (bias ? bias[l] : 0.f), y = targets[row + l], d = x - y, slope;
            if (form == MULTI) {
                loss += (softplus(x) - x * y) / L, slope = (logistic(x) - y) / L;
                wrong |= (x > 0) != (y > 0.5);
            } else {
                loss += d * d / L, slope = 2 * d / L, far += fabs(d) / L;
                wrong = 1;
            }
            if (dscores) dscores[row + l] = (float)(slope * by);
        }
        loss = lanes_sum(loss), far = lanes_sum(far);
        hit = !__any_sync(~0u, wrong) && form == MULTI;
    }
    if (lane == 0) each[s] = (float)loss, right[s] = hit ? 1.f : 0.f, errors[s] = (float)far;
}

// dbias[L], the sums of dscores over rows. Flat over L.
extern "C" __global__ void __launch_bounds__(256) task_loss_bias(float *dbias, const float *dscores, int S, int L) {
    for (int l = blockIdx.x * blockDim.x + threadIdx.x; l < L; l += gridDim.x * blockDim.x) {
        double sum = 0;
        for (int s = 0; s < S; s++) sum += dscores[(int64_t)s * L + l];
        dbias[l] = (float)sum;
    }
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

// The largest v of the block's 256 threads, for all of them.
__device__ double largest_of(double v) {
    __shared__ double part[256];
    __syncthreads();
    part[threadIdx.x] = v;
    __syncthreads();
    for (int half = 128; half; half >>= 1) {
        if (threadIdx.x < half) part[threadIdx.x] = fmax(part[threadIdx.x], part[threadIdx.x + half]);
        __syncthreads();
    }
    return part[0];
}

// The loss, the sums of pairs, their least and largest reward and 1, which are 0 without a pair, and drewards [S], which may be null. Grid 1.
extern "C" __global__ void __launch_bounds__(256) task_loss_reward(float *loss, float *drewards, float *mean, float *accuracy, float *margin,
                                                                    float *least, float *largest, float *any, const float *rewards,
                                                                    const int *pairs, const float *margins, const float *scale,
                                                                    const float *scaling, int P, int S, double centre) {
    double all = 0, sums[3] = {0, 0, 0}, low = INF, high = -INF;
    for (int k = threadIdx.x; k < P; k += blockDim.x) {
        int i = pairs[2 * k], j = pairs[2 * k + 1];
        if (i < 0 || j < 0 || i >= S || j >= S) continue;
        double c = rewards[i], r = rewards[j];
        all += softplus(-(c - r - margins[k])) + centre * (c + r) * (c + r);
        sums[0] += (c + r) / 2, sums[1] += c > r, sums[2] += c - r;
        low = fmin(low, fmin(c, r)), high = fmax(high, fmax(c, r));
    }
    all = total(all);
    float *to[3] = {mean, accuracy, margin};
#pragma unroll
    for (int i = 0; i < 3; i++) {
        double sum = total(sums[i]);
        if (threadIdx.x == 0) *to[i] = (float)sum;
    }
    low = -largest_of(-low), high = largest_of(high);
    if (threadIdx.x == 0) {
        bool one = low <= high;
        *loss = (float)(all * *scale);
        *least = one ? (float)low : 0.f, *largest = one ? (float)high : 0.f, *any = one;
    }
    if (!drewards) return;
    double by = (double)*scale * (scaling ? *scaling : 1.f);
    for (int s = threadIdx.x; s < S; s += blockDim.x) {
        double g = 0;
        for (int k = 0; k < P; k++) {
            int i = pairs[2 * k], j = pairs[2 * k + 1];
            if (i != s && j != s || i < 0 || j < 0 || i >= S || j >= S) continue;
            double c = rewards[i], r = rewards[j], push = logistic(-(c - r - margins[k]));
            if (i == s) g += 2 * centre * (c + r) - push;
            if (j == s) g += 2 * centre * (c + r) + push;
        }
        drewards[s] = (float)(g * by);
    }
}
