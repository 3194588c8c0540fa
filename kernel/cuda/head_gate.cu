// head_gate.cu: y = x sigmoid(gate), where each head's gates are the second half of its columns in another matrix, and its gradients.
// Layout: x, y, dy, dx [R,D] elem packed; both, dboth [R,2D] elem packed, the gates in columns D to 2D. R counts the heads of all rows.
// A thread takes 8 neighbours (16 bytes) of a head where D is a multiple of 8, else one. Grid-stride.
// Accumulation fp32. Bytes: 6 a value forward, 12 backward. Goal: 85 % of copy.
// Elements: bf16, f16, f32.
#include "few.cuh"
#include "sigmoid.cuh"
#include "walk.cuh"

template <int N>
__device__ __forceinline__ void forward(elem *y, const elem *x, const elem *both, unsigned R, int D) {
    for (walk i(D / N); i.row < R; i.next()) {
        int64_t head = (int64_t)i.row * D, at = head + i.at * N;
        few<N> v, g;
        v.load(x + at);
        g.load(both + at + head + D);
        float a[N], b[N];
        v.widened(a);
        g.widened(b);
#pragma unroll
        for (int k = 0; k < N; k++) a[k] *= sigmoid(b[k]);
        v.narrowed(a);
        v.store(y + at);
    }
}

template <int N>
__device__ __forceinline__ void backward(elem *dx, elem *dboth, const elem *x, const elem *both, const elem *dy, unsigned R, int D) {
    for (walk i(D / N); i.row < R; i.next()) {
        int64_t head = (int64_t)i.row * D, at = head + i.at * N;
        few<N> v, g, d;
        v.load(x + at);
        g.load(both + at + head + D);
        d.load(dy + at);
        float a[N], b[N], c[N];
        v.widened(a);
        g.widened(b);
        d.widened(c);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float s = sigmoid(b[k]);
            a[k] *= c[k] * s * sigmoid(-b[k]);
            c[k] *= s;
        }
        d.narrowed(c);
        d.store(dx + at);
        v.narrowed(a);
        v.store(dboth + at + head + D);
        g.zero();
        g.store(dboth + at + head);
    }
}

// y <- x sigmoid(gate). y may be x. Grid: any.
extern "C" __global__ void __launch_bounds__(256) head_gate_forward(elem *y, const elem *x, const elem *both, unsigned R, int D) {
    if (D % 8 == 0) forward<8>(y, x, both, R, D);
    else forward<1>(y, x, both, R, D);
}

// dx <- dy s, dboth <- 0 beside x dy s (1-s), s = sigmoid(gate). Grid: any.
extern "C" __global__ void __launch_bounds__(256) head_gate_grad(elem *dx, elem *dboth, const elem *x, const elem *both, const elem *dy, unsigned R, int D) {
    if (D % 8 == 0) backward<8>(dx, dboth, x, both, dy, R, D);
    else backward<1>(dx, dboth, x, both, dy, R, D);
}
