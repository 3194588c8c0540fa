// contrastive.cu: the loss of vectors of texts against the other texts of their batch (contrastive_loss), with the gradient for the
// vectors. The formulas stand in kernel/contrastive_loss.go.
// Layout: vectors, dvectors [S,C] elem; targets [S] int32: 0 or more = an anchor's target, -1 = a candidate, else nothing;
// scale: one fp32; scaling: one fp32, the loss scale that the gradient is multiplied by too, or null.
// scratch, fp64: similarities [S,S] of anchors to candidates, one over each length [S], logarithms of sums of exponentials [S]; parts [4,S] fp64.
// Lengths: a warp a sequence, 8 a block. Anchors: a block of 256 an anchor, a warp a candidate by turns, lanes take columns by turns
// and are added in a tree. Gradient: a block of 256 a sequence, a thread a column by turns, sequences in their order; slopes are
// computed 256 at a time in shared memory. Sums: one block. Arithmetic fp64.
// Bytes: S C a sequence, from the second-level cache. Goal: latency; a batch has some ten to some hundred sequences.
// Elements: bf16, f16, f32.
#include "common.cuh"

enum { CANDIDATE = -1, WARPS = 8 };

__device__ __forceinline__ double lanes_sum(double v) {
#pragma unroll
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}

// The sum of v over the block's 256 threads, or with largest its maximum, for all of them.
__device__ double total(double v, bool largest) {
    __shared__ double part[256];
    __syncthreads();
    part[threadIdx.x] = v;
    __syncthreads();
    for (int half = 128; half; half >>= 1) {
        if (threadIdx.x < half) {
            double a = part[threadIdx.x], b = part[threadIdx.x + half];
            part[threadIdx.x] = largest ? fmax(a, b) : a + b;
        }
        __syncthreads();
    }
    return part[0];
}

__device__ __forceinline__ bool is_anchor(const int *targets, int s, int S) {
    int t = targets[s];
    return t >= 0 && t < S && targets[t] == CANDIDATE;
}

// The dot product of two vectors, for all lanes of a warp.
__device__ __forceinline__ double dot(const elem *x, const elem *y, int C) {
    double sum = 0;
    for (int c = threadIdx.x & 31; c < C; c += 32) sum += (double)widen(x[c]) * (double)widen(y[c]);
    return lanes_sum(sum);
}

// inverses [S]: what each vector is multiplied by to have the length 1; 0 = it has no direction. Grid ceil(S / 8).
extern "C" __global__ void __launch_bounds__(256) contrastive_lengths(double *inverses, const elem *vectors, int S, int C, int dots) {
    int s = blockIdx.x * WARPS + (threadIdx.x >> 5);
    if (s >= S) return;
    const elem *x = vectors + (int64_t)s * C;
    double length = dots ? 1. : sqrt(dot(x, x, C));
    if ((threadIdx.x & 31) == 0) inverses[s] = length < 1e-12 ? 0. : 1 / length;
}

// similar [S,S], logsums [S], parts [4,S]. Grid S.
extern "C" __global__ void __launch_bounds__(256) contrastive_anchors(double *similar, double *logsums, double *parts, const double *inverses,
                                                                       const elem *vectors, const int *targets, int S, int C,
                                                                       double temperature) {
    int s = blockIdx.x, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (!is_anchor(targets, s, S)) {
        if (threadIdx.x < 4) parts[(int64_t)threadIdx.x * S + s] = 0;
        return;
    }
    double *row = similar + (int64_t)s * S, by = inverses[s];
    for (int c = warp; c < S; c += WARPS) {
        if (targets[c] != CANDIDATE) continue;
        double x = dot(vectors + (int64_t)s * C, vectors + (int64_t)c * C, C) * by * inverses[c];
        if (lane == 0) row[c] = x;
    }
    __syncthreads();
    int target = targets[s];
    double top = -1e300, sum = 0, others = 0, candidates = 0;
    for (int c = threadIdx.x; c < S; c += blockDim.x)
        if (targets[c] == CANDIDATE) top = fmax(top, row[c]), candidates += 1;
    top = total(top, true), candidates = total(candidates, false);
    for (int c = threadIdx.x; c < S; c += blockDim.x)
        if (targets[c] == CANDIDATE) sum += exp((row[c] - top) / temperature), others += c != target ? row[c] : 0.;
    sum = total(sum, false), others = total(others, false);
    if (threadIdx.x) return;
    double own = row[target];
    logsums[s] = top / temperature + log(sum);
    parts[s] = logsums[s] - own / temperature;
    parts[(int64_t)S + s] = own >= top ? 1. : 0.;
    parts[(int64_t)2 * S + s] = own;
    parts[(int64_t)3 * S + s] = candidates > 1 ? others / (candidates - 1) : 0.;
}

// loss and the sums over anchors, one number each. Grid 1.
extern "C" __global__ void __launch_bounds__(256) contrastive_sums(float *loss, float *right, float *own, float *others, const double *parts,
                                                                    const float *scale, int S) {
    float *to[4] = {loss, right, own, others};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        double sum = 0;
        for (int s = threadIdx.x; s < S; s += blockDim.x) sum += parts[(int64_t)i * S + s];
        sum = total(sum, false);
        if (threadIdx.x == 0) *to[i] = (float)(i ? sum : sum * *scale);
    }
}

// dvectors [S,C]. Grid S.
extern "C" __global__ void __launch_bounds__(256) contrastive_gradient(elem *dvectors, const double *similar, const double *logsums,
                                                                        const double *inverses, const elem *vectors, const int *targets,
                                                                        const float *scale, const float *scaling, int S, int C,
                                                                        double temperature, int dots) {
    __shared__ double slopes[256];
    int s = blockIdx.x;
    elem *row = dvectors + (int64_t)s * C;
    bool anchor = is_anchor(targets, s, S);
    double by = inverses[s], cold = 1 / temperature;
    if (!anchor && targets[s] != CANDIDATE || by == 0) {
        for (int c = threadIdx.x; c < C; c += blockDim.x) row[c] = narrow(0.f);
        return;
    }
    double factor = (double)*scale * (scaling ? *scaling : 1.f) * cold, along = 0;
    // The slope of s and t, of which one is an anchor; similarity is theirs.
    auto slope = [&](int t, double &similarity) {
        int a = anchor ? s : t, c = anchor ? t : s;
        similarity = 0;
        if (targets[c] != CANDIDATE || !is_anchor(targets, a, S)) return 0.;
        similarity = similar[(int64_t)a * S + c];
        return (exp(similarity * cold - logsums[a]) - (c == targets[a])) * factor;
    };
    double similarity;
    if (!dots) {
#pragma unroll 1
        for (int t = threadIdx.x; t < S; t += blockDim.x) along += slope(t, similarity) * similarity;
        along = total(along, false);
    }
#pragma unroll 1
    for (int first = 0; first < C; first += blockDim.x) {
        int c = first + threadIdx.x;
        double sum = 0;
#pragma unroll 1
        for (int from = 0; from < S; from += blockDim.x) {
            __syncthreads();
            int t = from + threadIdx.x;
            slopes[threadIdx.x] = t < S ? slope(t, similarity) * inverses[t] : 0.;
            __syncthreads();
            if (c < C)
#pragma unroll 1
                for (int i = 0; i < blockDim.x && from + i < S; i++)
                    if (slopes[i] != 0) sum += slopes[i] * (double)widen(vectors[(int64_t)(from + i) * C + c]);
        }
        if (c < C) row[c] = narrow((float)((sum - along * (double)widen(vectors[(int64_t)s * C + c]) * by) * by));
    }
}
