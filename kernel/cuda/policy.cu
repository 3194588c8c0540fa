// policy.cu: the loss of sampled answers with advantages (policy_loss: GRPO and its kin), with the gradient for the log-probability of each
// token. The formulas stand in kernel/policy_loss.go.
// Layout: logp, entropies, old, reference, dlogp, dentropies [M] fp32; labels [M] int32, -100 = no token of an answer; starts [S+1] int32;
// answers [S,6] fp32: advantage, factor of the losses and factor of the entropies, each as the sum of two numbers; results are single fp32
// numbers. scratch: the limit of entropies, then seven sums of each answer, all fp64.
// A block of 256 holds an answer; thread t takes tokens t, t + 256, ... Sums are added in a tree, and those of answers again in a tree of
// one block, so that the order depends on lengths and S alone. All arithmetic is fp64, and gradients are rounded as on a CPU.
// policy_limit finds two neighbouring order statistics by eight bits at a time in one block of 1024, with integer counters.
// Bytes: some 40 a token. Goal: latency.
#include "common.cuh"

enum { UNLABELLED = -100, TERMS = 7 };
enum { CLIP = 0, CISPO, SAPO, VESPO };
enum { TOKEN = 0, MEAN, SUM };
enum { ENTROPY = 0, KL, LOW, HIGH, PHI, GAP, LOSS };

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

// The order of numbers as that of unsigned integers. NaN comes first.
__device__ __forceinline__ uint32_t ordered(float x) {
    uint32_t u = __float_as_uint(x);
    if (x != x) return 0;
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}
__device__ __forceinline__ double value(uint32_t u) {
    if (u == 0) return NANF;
    return __uint_as_float(u & 0x80000000u ? u & 0x7fffffffu : ~u);
}

// Tokens of answers lie within a sequence. The sequences lie end to end.
struct Tokens {
    const int *labels;
    int first, end;
    __device__ bool has(int t) const { return labels[t] != UNLABELLED; }
};
__device__ __forceinline__ Tokens tokens_of(const int *labels, const int *starts, int s, int M) {
    return {labels, min(max(starts[s], 0), M), min(max(starts[s + 1], 0), M)};
}

// limit = the q-quantile of the entropies of all answers' tokens, interpolated linearly between two of them. Grid 1.
extern "C" __global__ void __launch_bounds__(1024) policy_limit(double *limit, const float *entropies, const int *labels, const int *starts,
                                                                 int M, int S, double q) {
    __shared__ uint32_t counts[256];
    __shared__ uint32_t prefix, rank, all, above;
    Tokens of = {labels, min(max(starts[0], 0), M), min(max(starts[S], 0), M)};
    if (threadIdx.x == 0) all = 0, prefix = 0, above = ~0u;
    __syncthreads();
    uint32_t own = 0;
    for (int t = of.first + threadIdx.x; t < of.end; t += blockDim.x) own += of.has(t);
    atomicAdd(&all, own);
    __syncthreads();
    if (all == 0) {
        if (threadIdx.x == 0) *limit = 0;
        return;
    }
    double at = q * (double)(all - 1);
    uint32_t low = (uint32_t)at;
    if (threadIdx.x == 0) rank = low;
    // The number of rank low, by eight bits at a time: counts are of the numbers that share the bits found so far.
    for (int shift = 24; shift >= 0; shift -= 8) {
        if (threadIdx.x < 256) counts[threadIdx.x] = 0;
        __syncthreads();
        for (int t = of.first + threadIdx.x; t < of.end; t += blockDim.x)
            if (of.has(t)) {
                uint32_t u = ordered(entropies[t]);
                if (shift == 24 || u >> (shift + 8) == prefix) atomicAdd(&counts[u >> shift & 255], 1u);
            }
        __syncthreads();
        if (threadIdx.x == 0) {
            uint32_t digit = 0;
            while (rank >= counts[digit]) rank -= counts[digit++];
            prefix = prefix << 8 | digit;
        }
        __syncthreads();
    }
    // The next number of the order is the same one again, or the least one above it.
    for (int t = of.first + threadIdx.x; t < of.end; t += blockDim.x)
        if (of.has(t)) {
            uint32_t u = ordered(entropies[t]);
            if (u > prefix) atomicMin(&above, u);
        }
    __syncthreads();
    if (threadIdx.x) return;
    uint32_t next = rank + 1 < counts[prefix & 255] || above == ~0u ? prefix : above;
    double x = value(prefix), y = value(next);
    *limit = x + (at - (double)low) * (y - x);
}

// What a launch of policy_answers computes.
struct Loss {
    int form, level, weigh_kl;
    double low, high, delta, beta, above, below, k, lambda, k_below, lambda_below, off_policy, bonus;
};

// The loss of a token without KL divergence and factor; dratio and dlogp are its gradients.
__device__ __forceinline__ double surrogate(const Loss &o, double logp, double w, double phi, double advantage, double &dratio,
                                            double &dlogp) {
    if (o.form == CISPO) {
        dlogp = -(w < o.high ? w : w != w ? w : o.high) * advantage;
        return dlogp * logp;
    }
    if (o.form == SAPO) {
        double tau = advantage > 0 ? o.above : o.below, z = tau * (w - 1);
        dratio = -4 * (logistic(z) * logistic(-z)) * advantage;
        return -4 / tau * logistic(z) * advantage;
    }
    if (o.form == VESPO) {
        dlogp = -phi * advantage;
        return dlogp * logp;
    }
    double free = w, dfree = 1, clipped = w, dclipped = 1;
    if (o.delta > 0 && w > o.delta) free = o.delta, dfree = 0;
    if (w < 1 - o.low) clipped = 1 - o.low, dclipped = 0;
    if (w > 1 + o.high) clipped = 1 + o.high, dclipped = 0;
    if (clipped * advantage < free * advantage) free = clipped, dfree = dclipped;
    dratio = -dfree * advantage;
    return -free * advantage;
}

// VESPO's weight of an answer, of the sum of its log-ratios.
__device__ __forceinline__ double weight(const Loss &o, double clamped, double advantage) {
    double k = advantage < 0 ? o.k_below : o.k, lambda = advantage < 0 ? o.lambda_below : o.lambda, least = log(1e-8);
    if (clamped < least) clamped = least;
    if (clamped > 20) clamped = 20;
    return exp(lambda + k * clamped - lambda * exp(clamped));
}

// Gradients, and the sums of each answer: scratch[1 + 7 s + i], of which number 6 is the loss. Grid S + 1: the last block writes zeros
// outside of all sequences. dlogp, dentropies, reference, scaling and limit may be null.
extern "C" __global__ void __launch_bounds__(256) policy_answers(
    float *dlogp, float *dentropies, double *scratch, const float *logp, const float *entropies, const float *old, const float *reference,
    const int *labels, const int *starts, const float *answers, const float *scale, const float *scaling, const double *limit, int M, int S,
    int form, int level, int weigh_kl, double low, double high, double delta, double beta, double above, double below, double k,
    double lambda, double k_below, double lambda_below, double off_policy, double bonus) {
    Loss o = {form, level, weigh_kl, low, high, delta, beta, above, below, k, lambda, k_below, lambda_below, off_policy, bonus};
    int s = blockIdx.x;
    if (s == S) {
        int first = min(max(starts[0], 0), M), end = min(max(starts[S], 0), M);
        for (int t = threadIdx.x; t < M; t += blockDim.x)
            if (t < first || t >= end) {
                if (dlogp) dlogp[t] = 0.f;
                if (dentropies) dentropies[t] = 0.f;
            }
        return;
    }
    Tokens of = tokens_of(labels, starts, s, M);
    double advantage = (double)answers[6 * s] + answers[6 * s + 1], factor = (double)answers[6 * s + 2] + answers[6 * s + 3];
    double entropy_factor = (double)answers[6 * s + 4] + answers[6 * s + 5];
    double by = (double)*scale * (scaling ? *scaling : 1.f), least = limit ? *limit : -INF;
    // A log-ratio without an old log-probability is zero, or NaN where the policy's is.
    auto ratio = [&](int t) {
        double before = old[t], now = logp[t];
        return before == before ? now - before : 0 * now;
    };
    double n = 0, sum = 0, clamped = 0;
    for (int t = of.first + threadIdx.x; t < of.end; t += blockDim.x)
        if (of.has(t)) {
            double d = ratio(t);
            n += 1, sum += d, clamped += d < -20 ? -20 : d > 20 ? 20 : d;
        }
    n = total(n), sum = total(sum), clamped = total(clamped);
    double mean = sum / (n > 0 ? n : 1);
    bool kept = !(off_policy != 0 && advantage < 0 && -mean > off_policy);
    double common = level == MEAN ? exp(mean) : exp(sum), phi = form == VESPO ? weight(o, clamped, advantage) : 0;
    double floor = form == CISPO ? -INF : 1 - low, ceiling = form == CISPO ? high : 1 + high;
    double sums[TERMS] = {0, 0, 0, 0, 0, 0, 0}, dcommon = 0;
    if (threadIdx.x == 0 && n > 0) {
        if (form == VESPO) sums[PHI] = phi;
        if (level != TOKEN) sums[LOW] = common < floor && advantage < 0, sums[HIGH] = common > ceiling && advantage > 0;
    }
    for (int t = of.first + threadIdx.x; t < of.end; t += blockDim.x) {
        if (!of.has(t)) {
            if (dlogp) dlogp[t] = 0.f;
            if (dentropies) dentropies[t] = 0.f;
            continue;
        }
        double d = ratio(t), w = common, entropy = entropies[t], x = 0, dratio = 0, dl = 0;
        if (level == TOKEN) {
            w = exp(d);
            sums[LOW] += w < floor && advantage < 0, sums[HIGH] += w > ceiling && advantage > 0;
        }
        if ((kept && entropy >= least) || entropy != entropy) x = surrogate(o, logp[t], w, phi, advantage, dratio, dl);
        if (reference) {
            double q = (double)reference[t] - (double)logp[t], e = exp(q), kl = e - q - 1, dkl = 1 - e;
            if (weigh_kl) dratio += beta * kl, kl *= w, dkl *= w;
            x += beta * kl, dl += beta * dkl, sums[KL] += kl;
        }
        x *= factor, dratio *= factor, dl *= factor;
        sums[LOSS] += x - bonus * entropy_factor * entropy;
        sums[ENTROPY] += entropy;
        if (old[t] == old[t]) sums[GAP] += fabs(d);
        if (level == TOKEN) dl += dratio * w;
        else dcommon += dratio;
        if (dlogp) dlogp[t] = (float)(dl * by);
        if (dentropies) dentropies[t] = (float)(-bonus * entropy_factor * by);
    }
    if (level != TOKEN) {
        double each = total(dcommon) * common / (level == MEAN && n > 0 ? n : 1);
        if (dlogp)
            for (int t = of.first + threadIdx.x; t < of.end; t += blockDim.x)
                if (of.has(t)) dlogp[t] += (float)(each * by);
    }
#pragma unroll
    for (int i = 0; i < TERMS; i++) {
        double all = total(sums[i]);
        if (threadIdx.x == 0) scratch[1 + TERMS * s + i] = all;
    }
}

// The loss and the six sums of all answers. Grid 1.
extern "C" __global__ void __launch_bounds__(256) policy_sums(float *loss, float *entropy, float *kl, float *low, float *high, float *phi,
                                                               float *gap, const double *scratch, const float *scale, int S) {
    float *to[TERMS] = {entropy, kl, low, high, phi, gap, loss};
#pragma unroll
    for (int i = 0; i < TERMS; i++) {
        double sum = 0;
        for (int s = threadIdx.x; s < S; s += blockDim.x) sum += scratch[1 + TERMS * s + i];
        sum = total(sum);
        if (threadIdx.x == 0) *to[i] = (float)(i == LOSS ? sum * *scale : sum);
    }
}
