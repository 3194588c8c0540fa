// divergence.cu: per row of a student's logits the divergence of its distribution from a teacher's and the cross-entropy of the label, and
// their gradient written over the student's logits. The teacher is a row of logits (divergence_dense) or its most likely tokens
// (divergence_sparse). A cap of 0 is none; else logits are cap tanh(x / cap), of which the gradient has the factor 1 - tanh^2.
// Layout: logits x [M,V] elem, rows ld elements apart; teacher y [M,V] elem, ldy apart; ids [M,K] int32, negative = no token; logps [M,K+1]
// fp32, the last that of all other tokens; labels [M] int32, -100 = not trained: zeros; a label or an id outside 0 to V-1 gives NaN;
// weights [M] fp32, 0 = all are one; each, divergence, nll, agreement [M] fp32; scale: one fp32 on the device; scaling: one fp32, the loss
// scale that the gradient is multiplied by too, or 0 (none). mode: 1 renormalised, 2 bucket, 3 zero.
// One block of at most 512 a row. Rows are read two (sparse) or three (dense) times, from the second-level cache but for the first.
// divergence_sparse overwrites the logits of the support with -inf at first, so that sums over the other tokens are exact where they are
// small; without a gradient they stay so. Accumulation fp32, in an order that depends on V and K alone.
// Bytes: 4 a logit of the student, 2 of the teacher. Goal: 60 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

enum { UNTRAINED = -100, MAX_SUPPORT = 512 };
enum Mode { RENORMALISED = 1, BUCKET, ZERO };

struct Settings {
    float beta, cold, alpha, ce, cap, teacher_cap;   // cold: 1 / temperature
    int V;
};

// tanh(x / cap), f = 2 / cap; 1 - 2/(e^2x + 1) is within 1e-7.
__device__ __forceinline__ float tanh_of(float x, float f) { return 1.f - __fdividef(2.f, __expf(x * f) + 1.f); }
__device__ __forceinline__ float capped(float x, float cap) { return cap > 0.f && x > -INF ? cap * tanh_of(x, 2.f / cap) : x; }
// The gradient's factor of a logit that is y once it is capped.
__device__ __forceinline__ float through(float y, float cap) { return cap > 0.f ? fmaf(-y / cap, y / cap, 1.f) : 1.f; }
// p x, 0 where p is 0.
__device__ __forceinline__ float times(float p, float x) { return p > 0.f ? p * x : 0.f; }

// The largest of a row, of equals the first, and sums of exponentials less it, of logits and of logits divided by the temperature.
struct Row {
    float max, sum, cold;
    int at;
    __device__ __forceinline__ void raise(float m, float by) {
        if (!(m > max)) return;
        if (sum > 0.f || cold > 0.f) sum *= __expf(max - m), cold *= __expf((max - m) * by);
        max = m;
    }
    __device__ __forceinline__ void add(float x, int i, float by) {
        if (x == -INF) return;
        if (x > max || (x == max && i < at)) at = i;
        raise(x, by);
        sum += __expf(x - max);
        cold += __expf((x - max) * by);
    }
};

// The row over all threads of a block; every thread gets it.
__device__ Row whole(Row r, float by) {
    __shared__ int first;
    float m = block_max(r.max);
    if (threadIdx.x == 0) first = 0x7fffffff;
    __syncthreads();
    if (r.max == m && m > -INF) atomicMin(&first, r.at);
    bool any = r.sum > 0.f;
    Row all = {m, block_sum(any ? r.sum * __expf(r.max - m) : r.sum), block_sum(any ? r.cold * __expf((r.max - m) * by) : r.cold), 0};
    __syncthreads();
    all.at = first;
    __syncthreads();
    return all;
}

// Calls f with the place and the capped value of each element that this thread has, eight neighbours at a time where rows allow it.
template <typename F>
__device__ __forceinline__ void visit(const elem *x, int V, int ld, float cap, F f) {
    int V8 = ld % 8 == 0 ? V / 8 * 8 : 0;
    for (int c = threadIdx.x * 8; c < V8; c += blockDim.x * 8) {
        float v[8];
        unpack(load8(x + c), v);
#pragma unroll
        for (int k = 0; k < 8; k++) f(c + k, capped(v[k], cap));
    }
    for (int c = V8 + threadIdx.x; c < V; c += blockDim.x) f(c, capped(widen(x[c]), cap));
}
// Replaces each element of x by f of its place and its capped value.
template <typename F>
__device__ __forceinline__ void replace(elem *x, int V, int ld, float cap, F f) {
    int V8 = ld % 8 == 0 ? V / 8 * 8 : 0;
    for (int c = threadIdx.x * 8; c < V8; c += blockDim.x * 8) {
        float v[8];
        unpack(load8(x + c), v);
#pragma unroll
        for (int k = 0; k < 8; k++) v[k] = f(c + k, capped(v[k], cap));
        store8(x + c, pack(v));
    }
    for (int c = V8 + threadIdx.x; c < V; c += blockDim.x) x[c] = narrow(f(c, capped(widen(x[c]), cap)));
}

// Writes the results of a row without a loss: zeros, or NaN where the label or an id is not in the vocabulary.
__device__ void no_loss(float *each, float *divergence, float *nll, float *agreement, elem *x, int row, const Settings &o, bool gradient,
                        float value) {
    if (threadIdx.x == 0) each[row] = divergence[row] = nll[row] = agreement[row] = value;
    if (gradient)
        for (int c = threadIdx.x; c < o.V; c += blockDim.x) x[c] = narrow(value);
}

struct Terms {   // of a divergence: its value, and the derivative by the student's log-probability
    float d, g;
};
__device__ __forceinline__ Terms terms(float beta, float ls, float lt) {
    float s = __expf(ls), t = __expf(lt);
    if (beta == 0.f) return {times(t, lt - ls), -t};
    if (beta == 1.f) {
        float d = times(s, ls - lt);
        return {d, d};
    }
    float m = __logf(fmaf(1.f - beta, s, beta * t)), g = (1.f - beta) * times(s, ls - m);
    return {fmaf(beta, times(t, lt - m), g), g};
}

template <bool GRADIENT>
__device__ void dense(float *each, float *divergence, float *nll, float *agreement, elem *x, const elem *y, const int *labels,
                      const float *weights, const float *scale, const float *scaling, int ld, int ldy, const Settings &o) {
    int row = blockIdx.x, label = labels[row], V = o.V;
    x += (int64_t)row * ld;
    y += (int64_t)row * ldy;
    if ((unsigned)label >= (unsigned)V)
        return no_loss(each, divergence, nll, agreement, x, row, o, GRADIENT, label == UNTRAINED ? 0.f : NANF);
    float own = capped(widen(x[label]), o.cap);
    Row s = {-INF, 0.f, 0.f, 0x7fffffff}, t = s;
    visit(x, V, ld, o.cap, [&](int c, float v) { s.add(v, c, o.cold); });
    visit(y, V, ldy, o.teacher_cap, [&](int c, float v) { t.add(v, c, o.cold); });
    s = whole(s, o.cold);
    t = whole(t, o.cold);
    float ofs = logf(s.cold), oft = logf(t.cold);
    bool wide = ld % 8 == 0 && ldy % 8 == 0;
    int V8 = wide ? V / 8 * 8 : 0;
    float d = 0.f, g = 0.f;   // the divergence, and the sum of the derivatives
    auto logs = [&](float v) { return (v - s.max) * o.cold - ofs; };
    auto logt = [&](float v) { return (v - t.max) * o.cold - oft; };
    auto add = [&](float v, float u) {
        Terms e = terms(o.beta, logs(capped(v, o.cap)), logt(capped(u, o.teacher_cap)));
        d += e.d;
        g += e.g;
    };
    for (int c = threadIdx.x * 8; c < V8; c += blockDim.x * 8) {
        float v[8], u[8];
        unpack(load8(x + c), v);
        unpack(load8(y + c), u);
#pragma unroll
        for (int k = 0; k < 8; k++) add(v[k], u[k]);
    }
    for (int c = V8 + threadIdx.x; c < V; c += blockDim.x) add(widen(x[c]), widen(y[c]));
    d = block_sum(d);
    g = o.beta == 0.f ? -1.f : block_sum(g);
    float weight = weights ? weights[row] : 1.f, n = logf(s.sum) + s.max - own;
    if (threadIdx.x == 0) {
        each[row] = weight * fmaf(o.alpha, d, o.ce * n);
        divergence[row] = d;
        nll[row] = n;
        agreement[row] = s.at == t.at ? 1.f : 0.f;
    }
    if (!GRADIENT) return;
    float factor = weight * *scale * (scaling ? *scaling : 1.f), k1 = factor * o.alpha * o.cold, k2 = factor * o.ce, of1 = logf(s.sum);
    auto gradient = [&](int c, float v, float u) {
        v = capped(v, o.cap);
        float ls = logs(v), z = k1 * (terms(o.beta, ls, logt(capped(u, o.teacher_cap))).g - __expf(ls) * g);
        if (k2 != 0.f) z = fmaf(k2, __expf(v - s.max - of1) - (c == label ? 1.f : 0.f), z);
        return z * through(v, o.cap);
    };
    __syncthreads();   // the label's logit is read before it is overwritten
    for (int c = threadIdx.x * 8; c < V8; c += blockDim.x * 8) {
        float v[8], u[8];
        unpack(load8(x + c), v);
        unpack(load8(y + c), u);
#pragma unroll
        for (int k = 0; k < 8; k++) v[k] = gradient(c + k, v[k], u[k]);
        store8(x + c, pack(v));
    }
    for (int c = V8 + threadIdx.x; c < V; c += blockDim.x) x[c] = narrow(gradient(c, widen(x[c]), widen(y[c])));
}

template <bool GRADIENT>
__device__ void sparse(float *each, float *divergence, float *nll, float *agreement, elem *x, const int *ids, const float *logps,
                       const int *labels, const float *weights, const float *scale, const float *scaling, int ld, int K, int mode,
                       const Settings &o) {
    __shared__ float own[MAX_SUPPORT], slopes[MAX_SUPPORT];   // logits of the support; derivatives by its log-probabilities
    __shared__ int unknown;
    int row = blockIdx.x, label = labels[row], V = o.V;
    x += (int64_t)row * ld;
    ids += (int64_t)row * K;
    logps += (int64_t)row * (K + 1);
    if (label == UNTRAINED) return no_loss(each, divergence, nll, agreement, x, row, o, GRADIENT, 0.f);
    if (threadIdx.x == 0) unknown = (unsigned)label >= (unsigned)V;
    __syncthreads();
    for (int k = threadIdx.x; k < K; k += blockDim.x)
        if (ids[k] >= V) unknown = 1;
    __syncthreads();
    if (unknown) return no_loss(each, divergence, nll, agreement, x, row, o, GRADIENT, NANF);
    float of_label = capped(widen(x[label]), o.cap);
    for (int k = threadIdx.x; k < K; k += blockDim.x) own[k] = ids[k] >= 0 ? capped(widen(x[ids[k]]), o.cap) : -INF;
    __syncthreads();
    for (int k = threadIdx.x; k < K; k += blockDim.x)
        if (ids[k] >= 0) x[ids[k]] = narrow(-INF);
    __syncthreads();
    Row rest = {-INF, 0.f, 0.f, 0x7fffffff}, in = rest, best = rest;   // best: the teacher's most likely token
    visit(x, V, ld, o.cap, [&](int c, float v) { rest.add(v, c, o.cold); });
    for (int k = threadIdx.x; k < K; k += blockDim.x) {
        if (ids[k] < 0) continue;
        in.add(own[k], ids[k], o.cold);
        best.add(logps[k], k, 1.f);   // of equals the first place
    }
    rest = whole(rest, o.cold);
    in = whole(in, o.cold);
    best = whole(best, 1.f);
    float m = fmaxf(rest.max, in.max);
    auto shifted = [&](float sum, float max, float by) { return sum > 0.f ? sum * __expf((max - m) * by) : sum; };
    float sum = shifted(rest.sum, rest.max, 1.f) + shifted(in.sum, in.max, 1.f);
    float outside = shifted(rest.cold, rest.max, o.cold), total = outside + shifted(in.cold, in.max, o.cold);
    if (mode == RENORMALISED) {
        outside = 0.f;
        total = shifted(in.cold, in.max, o.cold);
    }
    float ofs = logf(total), shift = mode == RENORMALISED ? best.max + logf(best.sum) : 0.f;
    float d = 0.f, g = 0.f, of_rest = 0.f;   // of_rest: the derivative by the log-probability of the other tokens
    for (int k = threadIdx.x; k < K; k += blockDim.x) {
        slopes[k] = 0.f;
        if (ids[k] < 0) continue;
        Terms e = terms(o.beta, (own[k] - m) * o.cold - ofs, logps[k] - shift);
        d += e.d;
        g += slopes[k] = e.g;
    }
    d = block_sum(d);
    g = block_sum(g);
    if (mode == BUCKET) {
        Terms e = terms(o.beta, logf(outside) - ofs, logps[K]);
        d += e.d;
        g += of_rest = e.g;
    }
    bool within = in.max > rest.max || (in.max == rest.max && in.at < rest.at);
    float weight = weights ? weights[row] : 1.f, n = logf(sum) + m - of_label;
    if (threadIdx.x == 0) {
        each[row] = weight * fmaf(o.alpha, d, o.ce * n);
        divergence[row] = d;
        nll[row] = n;
        agreement[row] = best.max > -INF && (within ? in.at : rest.at) == ids[best.at] ? 1.f : 0.f;
    }
    if (!GRADIENT) return;
    float factor = weight * *scale * (scaling ? *scaling : 1.f), k1 = factor * o.alpha * o.cold, k2 = factor * o.ce, of1 = logf(sum);
    float share = outside > 0.f ? k1 * (of_rest / outside - g / total) : 0.f;
    replace(x, V, ld, o.cap, [&](int c, float v) {
        if (v == -INF) return 0.f;
        float z = share * __expf((v - m) * o.cold);
        if (k2 != 0.f) z = fmaf(k2, __expf(v - m - of1) - (c == label ? 1.f : 0.f), z);
        return z * through(v, o.cap);
    });
    __syncthreads();
    for (int k = threadIdx.x; k < K; k += blockDim.x) {
        if (ids[k] < 0) continue;
        float v = own[k], z = k1 * (slopes[k] - __expf((v - m) * o.cold - ofs) * g);
        if (k2 != 0.f) z = fmaf(k2, __expf(v - m - of1) - (ids[k] == label ? 1.f : 0.f), z);
        x[ids[k]] = narrow(z * through(v, o.cap));
    }
}

// each[M], divergence[M], nll[M], agreement[M] and x <- its gradient, from a teacher's logits y. Grid M.
extern "C" __global__ void __launch_bounds__(512) divergence_dense_gradient(
        float *each, float *divergence, float *nll, float *agreement, elem *x, const elem *y, const int *labels, const float *weights,
        const float *scale, const float *scaling, int V, int ld, int ldy, float beta, float cold, float alpha, float ce, float cap,
        float teacher_cap) {
    dense<true>(each, divergence, nll, agreement, x, y, labels, weights, scale, scaling, ld, ldy,
                Settings{beta, cold, alpha, ce, cap, teacher_cap, V});
}
// The same without a gradient (evaluation); logits stay. Grid M.
extern "C" __global__ void __launch_bounds__(512) divergence_dense_loss(
        float *each, float *divergence, float *nll, float *agreement, elem *x, const elem *y, const int *labels, const float *weights,
        const float *scale, const float *scaling, int V, int ld, int ldy, float beta, float cold, float alpha, float ce, float cap,
        float teacher_cap) {
    dense<false>(each, divergence, nll, agreement, x, y, labels, weights, scale, scaling, ld, ldy,
                 Settings{beta, cold, alpha, ce, cap, teacher_cap, V});
}
// From a teacher's most likely tokens. Grid M.
extern "C" __global__ void __launch_bounds__(512) divergence_sparse_gradient(
        float *each, float *divergence, float *nll, float *agreement, elem *x, const int *ids, const float *logps, const int *labels,
        const float *weights, const float *scale, const float *scaling, int V, int ld, int K, int mode, float beta, float cold, float alpha,
        float ce, float cap) {
    sparse<true>(each, divergence, nll, agreement, x, ids, logps, labels, weights, scale, scaling, ld, K, mode,
                 Settings{beta, cold, alpha, ce, cap, 0.f, V});
}
// The same without a gradient. Grid M.
extern "C" __global__ void __launch_bounds__(512) divergence_sparse_loss(
        float *each, float *divergence, float *nll, float *agreement, elem *x, const int *ids, const float *logps, const int *labels,
        const float *weights, const float *scale, const float *scaling, int V, int ld, int K, int mode, float beta, float cold, float alpha,
        float ce, float cap) {
    sparse<false>(each, divergence, nll, agreement, x, ids, logps, labels, weights, scale, scaling, ld, K, mode,
                  Settings{beta, cold, alpha, ce, cap, 0.f, V});
}
