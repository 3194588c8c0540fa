// latent_keys.cu: keys of multi-head latent attention: a head's own columns, then columns that all heads share; and the gradients.
// Layout: x, dx [M,H,Of] elem packed, the own columns first; shared, dshared [M,R]; keys, dkeys [M,H,Own+R]. N = M H heads.
// A thread takes unit neighbours: 8 (16 bytes) where Of, Own and R are multiples of 8, else 1. Grid-stride. A thread adds up the shared
// gradient of one column over the heads, in their order, in fp32.
// Bytes: 4 a value of keys; backward 2 a value of dkeys and of dx, and 2 more a shared value of each head. Goal: 80 % of copy.
// Elements: bf16, f16, f32.
#include "few.cuh"
#include "walk.cuh"

template <int U>
__device__ __forceinline__ void forward(elem *keys, const elem *x, const elem *shared, unsigned N, unsigned H, int Of, int Own, int R) {
    int D = Own + R;
    for (walk i(D / U); i.row < N; i.next()) {
        int at = (int)i.at * U;
        few<U> v;
        if (at < Own) v.load(x + (int64_t)i.row * Of + at);
        else v.load(shared + (int64_t)(i.row / H) * R + at - Own);
        v.store(keys + (int64_t)i.row * D + at);
    }
}

template <int U>
__device__ __forceinline__ void own(elem *dx, const elem *dkeys, unsigned N, int Of, int Own, int R) {
    for (walk i(Of / U); i.row < N; i.next()) {
        int at = (int)i.at * U;
        few<U> v;
        if (at < Own) v.load(dkeys + (int64_t)i.row * (Own + R) + at);
        else v.zero();
        v.store(dx + (int64_t)i.row * Of + at);
    }
}

// keys <- own columns of x, shared. Grid: any.
extern "C" __global__ void __launch_bounds__(256) latent_keys_forward(elem *keys, const elem *x, const elem *shared, unsigned N, unsigned H, int Of, int Own,
                                                                      int R, int unit) {
    if (unit == 8) forward<8>(keys, x, shared, N, H, Of, Own, R);
    else forward<1>(keys, x, shared, N, H, Of, Own, R);
}

// dx <- own columns of dkeys, 0 in the others. Grid: any.
extern "C" __global__ void __launch_bounds__(256) latent_keys_own(elem *dx, const elem *dkeys, unsigned N, int Of, int Own, int R, int unit) {
    if (unit == 8) own<8>(dx, dkeys, N, Of, Own, R);
    else own<1>(dx, dkeys, N, Of, Own, R);
}

// dshared <- shared columns of dkeys, summed over the heads. Grid: any.
extern "C" __global__ void __launch_bounds__(256) latent_keys_shared(elem *dshared, const elem *dkeys, unsigned M, int H, int Own, int R) {
    int64_t D = Own + R;
    for (walk i(R); i.row < M; i.next()) {
        const elem *from = dkeys + (int64_t)i.row * H * D + Own + i.at;
        float sum = 0.f;
        for (int h = 0; h < H; h++) sum += widen(from[h * D]);
        dshared[(int64_t)i.row * R + i.at] = narrow(sum);
    }
}
