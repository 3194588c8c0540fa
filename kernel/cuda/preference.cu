// preference.cu: losses of preference pairs from sums over sequences, with the gradient for each sum: those of a policy beside a
// reference (pair_loss), and those of a policy alone (margin_loss). The formulas stand in kernel/pair_forms.go and margin_loss.go.
// Layout: sums, counts and gradients [S] fp32; pairs [P,2] int32, sequences of the chosen and of the rejected answer, outside of
// [0,S) = no pair; results are single fp32 numbers. scratch: gradients of pairs [P,2] fp64, then two orders of pairs [P] int32.
// One block of 256. Thread t takes pairs t, t + 256, ... and sums are added in a tree, so that the order depends on P alone. A sequence
// adds up the gradients of its pairs in their order. All arithmetic is fp64.
// Bytes: some hundred a pair. Goal: latency.
#include "common.cuh"

enum { FORMS = 15, SIGMOID = 0, HINGE, IPO, EXO, NCA, ROBUST, BCO, SPPO, AOT, AOT_UNPAIRED, APO_ZERO, APO_DOWN, DISCOPOP, SIGMOID_NORM, SFT };
enum { REVERSE_KL = 0, FORWARD_KL, JENSEN_SHANNON, ALPHA_DIVERGENCE };

// softplus(x) = log(1 + exp(x))
__device__ __forceinline__ double softplus(double x) { return fmax(x, 0.) + log1p(exp(-fabs(x))); }
__device__ __forceinline__ double logistic(double x) {
    double e = exp(-fabs(x));
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}
__device__ __forceinline__ double logistic_slope(double x) { return logistic(x) * logistic(-x); }

// The sum of v over the block's 256 threads, for all of them.
__device__ double block_sum(double v) {
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

// Sums the gradients of pairs for each sequence: gradient[s] = by times the sum over its pairs of pair_gradients[2 k + side].
__device__ void by_sequence(float *gradient, float *tail, double tail_factor, const double *pair_gradients, const int *pairs, int P, int S, double by) {
    __syncthreads();
    for (int s = threadIdx.x; s < S; s += blockDim.x) {
        double sum = 0;
        for (int i = 0; i < 2 * P; i++)
            if (pairs[i] == s) sum += pair_gradients[i];
        gradient[s] = (float)(sum * by);
        if (tail) tail[s] = (float)(-tail_factor * sum * by);
    }
    __syncthreads();
}

struct Pairs {
    const float *policy, *reference, *counts, *tail, *reference_tail, *entropies;
    const int *pairs;
    int P, S, divergence;
    double beta, smoothing, tau, alpha, tail_weight, weights[FORMS];
};
struct Answers {
    double s[2], r[2], n[2], weight;
    __device__ double d(int side) const { return s[side] - r[side]; }
};

__device__ bool answers(const Pairs &p, int k, Answers &a) {
    a.weight = 1;
    for (int side = 0; side < 2; side++) {
        int i = p.pairs[2 * k + side];
        if (i < 0 || i >= p.S) return false;
        a.n[side] = p.counts[i], a.s[side] = p.policy[i], a.r[side] = p.reference[i];
        if (p.entropies) a.weight *= exp((a.s[side] + p.entropies[i]) / a.n[side]);
        if (p.tail) {
            a.s[side] -= (1 - p.tail_weight) * p.tail[i];
            a.r[side] -= (1 - p.tail_weight) * p.reference_tail[i];
        }
    }
    return true;
}

// The divergence's number in place of a log-ratio, and its slope.
__device__ double diverge(const Pairs &p, double d, double &slope) {
    switch (p.divergence) {
    case FORWARD_KL: slope = exp(-d); return 1 - slope;
    case JENSEN_SHANNON: slope = logistic(-d); return 0.693147180559945309417 - softplus(-d);
    case ALPHA_DIVERGENCE: slope = exp((p.alpha - 1) * d); return (slope - 1) / (p.alpha - 1);
    }
    slope = 1;
    return d;
}

// One form of a pair, and its gradients g, gx for the sums of the chosen and of the rejected answer.
__device__ double form_of(const Pairs &p, int form, const Answers &a, double &g, double &gx) {
    double b = p.beta, e = p.smoothing, dc = a.d(0), dx = a.d(1), c, x;
    double fc = diverge(p, dc, c), fx = diverge(p, dx, x), u = b * (fc - fx), v = 0, du;
    g = gx = 0;
    switch (form) {
    case SIGMOID: v = softplus(-u), du = -logistic(-u), g = b * du * c, gx = -b * du * x; break;
    case HINGE:
        if (!(u >= 1)) v = 1 - u, g = -b * c, gx = b * x;   // NaN gives NaN
        break;
    case IPO: u = fc / a.n[0] - fx / a.n[1] - 1 / (2 * b), v = u * u, g = 2 * u / a.n[0] * c, gx = -2 * u / a.n[1] * x; break;
    case SIGMOID_NORM:
        u = b * (fc / a.n[0] - fx / a.n[1]), du = -logistic(-u), v = softplus(-u), g = b * du / a.n[0] * c, gx = -b * du / a.n[1] * x;
        break;
    case ROBUST:
        du = (-(1 - e) * logistic(-u) - e * logistic(u)) / (1 - 2 * e);
        v = ((1 - e) * softplus(-u) - e * softplus(u)) / (1 - 2 * e), g = b * du * c, gx = -b * du * x;
        break;
    case EXO: {
        double right = log1p(-e), wrong = log(e);
        du = logistic_slope(u) * (u - right + wrong);
        v = logistic(u) * (-softplus(-u) - right) + logistic(-u) * (-softplus(u) - wrong), g = b * du * c, gx = -b * du * x;
        break;
    }
    case DISCOPOP: {
        double m = logistic(u / p.tau), dm = m * (1 - m) / p.tau;
        double mixed = exp(-u - softplus(-u / p.tau));   // exp(-u) m, whose factors may be infinite and zero
        du = -logistic(-u) * (1 - m) - softplus(-u) * dm - mixed + mixed * (1 - m) / p.tau;
        v = softplus(-u) * (1 - m) + mixed, g = b * du * c, gx = -b * du * x;
        break;
    }
    case NCA:
        v = softplus(-b * dc) + softplus(b * dc) / 2 + softplus(b * dx) / 2;
        g = b * (logistic(b * dc) / 2 - logistic(-b * dc)), gx = b * logistic(b * dx) / 2;
        break;
    case BCO: v = softplus(-b * dc) + softplus(b * dx), g = -b * logistic(-b * dc), gx = b * logistic(b * dx); break;
    case SPPO: {
        double zc = dc - 1 / (2 * b), zx = dx + 1 / (2 * b);
        v = zc * zc + zx * zx, g = 2 * zc, gx = 2 * zx;
        break;
    }
    case APO_ZERO: v = logistic(-b * dc) + logistic(b * dx), g = -b * logistic_slope(b * dc), gx = b * logistic_slope(b * dx); break;
    case APO_DOWN:
        gx = b * logistic_slope(b * (dc - dx)), g = b * logistic_slope(b * dc) - gx, v = logistic(b * dc) + logistic(-b * (dc - dx));
        break;
    }
    return v;
}

// The form SFT: the mean negative log-likelihood of the tokens of all chosen answers, once for each pair.
__device__ double likelihood(const Pairs &p, double *pair_gradients) {
    double w = p.weights[SFT], chosen = 0, tokens = 0, weight = 0;
    Answers a;
    for (int k = threadIdx.x; k < p.P; k += blockDim.x)
        if (answers(p, k, a)) chosen += a.s[0], tokens += a.n[0], weight += a.weight;
    chosen = block_sum(chosen), tokens = block_sum(tokens), weight = block_sum(weight);
    if (tokens == 0) return 0;
    for (int k = threadIdx.x; k < p.P; k += blockDim.x)
        if (answers(p, k, a)) pair_gradients[2 * k] -= w * weight / tokens;
    return -w * weight * chosen / tokens;
}

__device__ void sort_keys(int form, const Answers &a, double &first, double &second) {
    if (form == AOT) first = a.s[0] - a.s[1], second = a.r[0] - a.r[1];
    else first = a.d(0), second = a.d(1);
}

// Whether a comes ahead of b, NaN being the largest number: a total order, so that every rank is taken once. earlier decides between equal ones.
__device__ bool before(double a, double b, bool earlier) {
    if (a < b) return true;
    if (a > b) return false;
    if (isnan(a) != isnan(b)) return isnan(b);
    return earlier;
}

// This thread's part of a loss over two sorted lists of the pairs' numbers; equal numbers keep the order of the pairs. The loss in
// place i of the order has the weight of pair i.
__device__ double transport(const Pairs &p, int form, double *pair_gradients, int *by_first, int *by_second) {
    double w = p.weights[form], loss = 0, x, y, u, v;
    Answers a, b;
    __syncthreads();
    for (int k = threadIdx.x; k < p.P; k += blockDim.x) {
        if (!answers(p, k, a)) continue;
        sort_keys(form, a, x, y);
        int rank_first = 0, rank_second = 0;
        for (int other = 0; other < p.P; other++) {
            if (!answers(p, other, b)) continue;
            sort_keys(form, b, u, v);
            rank_first += before(u, x, other < k);
            rank_second += before(v, y, other < k);
        }
        by_first[rank_first] = k, by_second[rank_second] = k;
    }
    __syncthreads();
    for (int k = threadIdx.x; k < p.P; k += blockDim.x) {
        if (!answers(p, k, a)) continue;
        double weight = a.weight;
        int rank = 0;
        for (int other = 0; other < k; other++) rank += answers(p, other, b);
        int i = by_first[rank], j = by_second[rank];
        answers(p, i, a);
        answers(p, j, b);
        sort_keys(form, a, x, u);
        sort_keys(form, b, v, y);
        double z = p.beta * (x - y);
        loss += weight * ((1 - p.smoothing) * softplus(-z) + p.smoothing * softplus(z));
        double g = w * weight * p.beta * (p.smoothing * logistic(z) - (1 - p.smoothing) * logistic(-z));
        pair_gradients[2 * i] += g;
        if (form == AOT) pair_gradients[2 * i + 1] -= g;
        else pair_gradients[2 * j + 1] -= g;
    }
    __syncthreads();
    return w * loss;
}

// Grid 1. dpolicy, dtail, tail, reference_tail, entropies and scaling may be null.
extern "C" __global__ void __launch_bounds__(256) preference_pairs(
    float *loss, float *dpolicy, float *dtail, float *chosen, float *rejected, float *accuracy, float *margin, float *logp_chosen,
    float *logp_rejected, const float *policy, const float *reference, const float *counts, const int *pairs, const float *scale, const float *tail,
    const float *reference_tail, const float *entropies, const float *scaling, double *scratch, int P, int S, int divergence, double beta,
    double smoothing, double tau, double alpha, double tail_weight, double w0, double w1, double w2, double w3, double w4, double w5, double w6,
    double w7, double w8, double w9, double w10, double w11, double w12, double w13, double w14) {
    __shared__ Pairs p;
    if (threadIdx.x == 0)
        p = Pairs{policy, reference, counts, tail, reference_tail, entropies, pairs, P, S, divergence, beta, smoothing, tau, alpha, tail_weight,
                  {w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14}};
    __syncthreads();
    int *by_first = (int *)(scratch + 2 * P), *by_second = by_first + P;
    double all = 0, sums[6] = {0, 0, 0, 0, 0, 0};
    for (int k = threadIdx.x; k < P; k += blockDim.x) {
        Answers a;
        scratch[2 * k] = scratch[2 * k + 1] = 0;
        if (!answers(p, k, a)) continue;
        double g, gx, v = 0, sum = 0, sum_x = 0;
        for (int form = 0; form < FORMS; form++)
            if (p.weights[form] != 0) {
                v += p.weights[form] * form_of(p, form, a, g, gx);
                sum += p.weights[form] * g, sum_x += p.weights[form] * gx;
            }
        all += a.weight * v;
        scratch[2 * k] = a.weight * sum, scratch[2 * k + 1] = a.weight * sum_x;
        double c = beta * a.d(0), x = beta * a.d(1);
        sums[0] += c, sums[1] += x, sums[2] += c > x, sums[3] += c - x, sums[4] += a.s[0], sums[5] += a.s[1];
    }
    double common = 0;
    if (p.weights[SFT] != 0) common = likelihood(p, scratch);
    if (p.weights[AOT] != 0) all += transport(p, AOT, scratch, by_first, by_second);
    if (p.weights[AOT_UNPAIRED] != 0) all += transport(p, AOT_UNPAIRED, scratch, by_first, by_second);
    all = block_sum(all) + common;
    float *to[6] = {chosen, rejected, accuracy, margin, logp_chosen, logp_rejected};
#pragma unroll
    for (int i = 0; i < 6; i++) {
        double sum = block_sum(sums[i]);
        if (threadIdx.x == 0) *to[i] = (float)sum;
    }
    if (threadIdx.x == 0) *loss = (float)(all * *scale);
    if (dpolicy) by_sequence(dpolicy, dtail, 1 - tail_weight, scratch, pairs, P, S, (double)*scale * (scaling ? *scaling : 1.f));
}

enum { MARGIN_SIGMOID = 0, MARGIN_HINGE, MARGIN_IPO, MARGIN_SIMPO, MARGIN_ODDS };

// log(1 - exp(x)) and its slope. x above -1e-7 counts as -1e-7, where the odds of an answer stop to grow.
__device__ double log_failure(double x, double &slope) {
    if (x > -1e-7) x = -1e-7;   // NaN stays
    slope = exp(x) / expm1(x);
    return x < -0.693147180559945309417 ? log1p(-exp(x)) : log(-expm1(x));   // each cancels where the other is used
}

// The loss of a pair, and its gradients for what t stands for.
__device__ double margin_of(int form, double b, double e, double gamma, double tc, double tx, double &g, double &gx) {
    double z = tc - tx, d;
    g = gx = 0;
    switch (form) {
    case MARGIN_HINGE:
        if (b * z >= 1) return 0;
        g = -b, gx = b;
        return 1 - b * z;
    case MARGIN_IPO:
        z -= 1 / (2 * b);
        g = 2 * z, gx = -2 * z;
        return z * z;
    case MARGIN_ODDS: {
        double slope, slope_x, fail = log_failure(tc, slope), fail_x = log_failure(tx, slope_x), odds = z - fail + fail_x;
        d = -b * logistic(-odds);
        g = d * (1 - slope), gx = -d * (1 - slope_x);
        return b * softplus(-odds);
    }
    case MARGIN_SIMPO: z -= gamma / b;
    }
    d = b * (e * logistic(b * z) - (1 - e) * logistic(-b * z));
    g = d, gx = -d;
    return (1 - e) * softplus(-b * z) + e * softplus(b * z);
}

// Grid 1. dpolicy, dlikelihood and scaling may be null.
extern "C" __global__ void __launch_bounds__(256) preference_margins(
    float *loss, float *dpolicy, float *dlikelihood, float *chosen, float *rejected, float *accuracy, float *margin, float *logp_chosen,
    float *logp_rejected, float *nll, float *log_odds, float *odds_ratio, const float *policy, const float *counts, const float *likelihood,
    const float *trained, const int *pairs, const float *scale, const float *scaling, double *scratch, int P, int S, int form, double beta,
    double smoothing, double gamma, double alpha, double likelihood_weight) {
    double all = 0, sum = 0, tokens = 0, n = 0, sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int k = threadIdx.x; k < P; k += blockDim.x) {
        scratch[2 * k] = scratch[2 * k + 1] = 0;
        int at[2] = {pairs[2 * k], pairs[2 * k + 1]};
        if (at[0] < 0 || at[0] >= S || at[1] < 0 || at[1] >= S) continue;
        double x[2], t[2], slope[2], g[2];
#pragma unroll
        for (int side = 0; side < 2; side++) {
            double count = counts[at[side]];
            bool mean = form != MARGIN_SIGMOID && form != MARGIN_HINGE;
            x[side] = mean ? policy[at[side]] / count : policy[at[side]], slope[side] = mean ? 1 / count : 1, t[side] = x[side];
            if (alpha != 0) {
                double e = exp(-alpha * x[side]);
                slope[side] *= e, t[side] = (1 - e) / alpha;
            }
        }
        double v = margin_of(form, beta, smoothing, gamma, t[0], t[1], g[0], g[1]);
        all += v;
        if (form == MARGIN_ODDS) {
            double ignored;
            sums[6] += t[0] - t[1] - log_failure(t[0], ignored) + log_failure(t[1], ignored), sums[7] -= v / beta;
        }
        scratch[2 * k] = g[0] * slope[0], scratch[2 * k + 1] = g[1] * slope[1];
        double c = beta * t[0], r = beta * t[1];
        sums[0] += c, sums[1] += r, sums[2] += t[0] > t[1], sums[3] += c - r, sums[4] += x[0], sums[5] += x[1];
        sum += likelihood[at[0]], tokens += trained[at[0]], n += 1;
    }
    all = block_sum(all), sum = block_sum(sum), tokens = block_sum(tokens), n = block_sum(n);
    double mean = tokens > 0 ? -n * sum / tokens : 0, by = (double)*scale * (scaling ? *scaling : 1.f);
    float *to[8] = {chosen, rejected, accuracy, margin, logp_chosen, logp_rejected, log_odds, odds_ratio};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        double v = block_sum(sums[i]);
        if (threadIdx.x == 0) *to[i] = (float)v;
    }
    if (threadIdx.x == 0) *loss = (float)((all + likelihood_weight * mean) * *scale), *nll = (float)mean;
    if (!dpolicy) return;
    by_sequence(dpolicy, 0, 0, scratch, pairs, P, S, by);
    for (int k = threadIdx.x; k < P; k += blockDim.x) {
        bool is = pairs[2 * k] >= 0 && pairs[2 * k] < S && pairs[2 * k + 1] >= 0 && pairs[2 * k + 1] < S;
        scratch[2 * k] = is && tokens > 0 ? -likelihood_weight * n / tokens : 0, scratch[2 * k + 1] = 0;
    }
    by_sequence(dlikelihood, 0, 0, scratch, pairs, P, S, by);
}
