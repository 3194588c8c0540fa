// collision.cu: per row of logits the collision entropy -log(sum over v of p_v^2), p = softmax(cap tanh(x / cap)), cap 0 = softmax(x).
// Layout: logits [M,V] elem, rows ld elements apart; labels [M] int32, -100 = none: zero; any other label outside 0 to V-1 gives NaN;
// entropy [M] fp32.
// One block of at most 512 a row, which is read once; each thread keeps a running maximum and sums of exponentials and of their squares.
// Accumulation fp32, in an order that depends on V alone.
// Bytes: 2 a logit. Goal: 75 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"

enum { UNLABELLED = -100 };

struct Sums {   // of e = exp(x - max), and of e^2
    float max, sum, squares;
};
__device__ __forceinline__ void add(Sums &s, float x) {
    if (x > s.max) {
        float c = s.sum > 0.f ? __expf(s.max - x) : 0.f;
        s.sum *= c;
        s.squares *= c * c;
        s.max = x;
    }
    float e = __expf(x - s.max);
    s.sum += e;
    s.squares = fmaf(e, e, s.squares);
}
// 1 - 2/(e^2x + 1) is within 1e-7 of tanh.
__device__ __forceinline__ float capped(float x, float cap) {
    return cap > 0.f ? cap * (1.f - __fdividef(2.f, __expf(x * (2.f / cap)) + 1.f)) : x;
}

// entropy[M]; logits stay. Grid M.
extern "C" __global__ void __launch_bounds__(512) collision_entropies(float *entropy, const elem *logits, const int *labels, int V, int ld,
                                                                       float cap) {
    int row = blockIdx.x, label = labels[row];
    if (label == UNLABELLED) {
        if (threadIdx.x == 0) entropy[row] = 0.f;
        return;
    }
    logits += (int64_t)row * ld;
    Sums s = {-INF, 0.f, 0.f};
    int V8 = ld % 8 == 0 ? V / 8 * 8 : 0;
    for (int c = threadIdx.x * 8; c < V8; c += blockDim.x * 8) {
        float v[8];
        unpack(load8(logits + c), v);
#pragma unroll
        for (int k = 0; k < 8; k++) add(s, capped(v[k], cap));
    }
    for (int c = V8 + threadIdx.x; c < V; c += blockDim.x) add(s, capped(widen(logits[c]), cap));
    float m = block_max(s.max), scale = s.sum > 0.f ? __expf(s.max - m) : 0.f;
    float sum = block_sum(scale * s.sum), squares = block_sum(scale * scale * s.squares);
    if (threadIdx.x == 0) entropy[row] = (unsigned)label < (unsigned)V ? 2.f * logf(sum) - logf(squares) : NANF;
}
