// rope_append.cu: the rotary embedding of q and k (rope.cu, to its bits) and the places of k and v in caches (kvappend.cu) in one launch.
// q is turned in place; row t of k, turned, goes to row at[t] of one cache and row t of v to that of the other, where at[t] is a row there.
// Layout: q [M,H,D], k [M,K,D], v [M,W] elem packed rows; caches [P,KD] and [P,W]; positions, at [M] int32; table [.,R] fp32, R/2 cosines
// and R/2 sines a row. Pair (i, i + R/2) of a head is turned, the last D - R values stay.
// Grid (M, blocks): a row's pairs, then what stays of k, then v, are divided among grid.y's threads; 8 at a time where R/2, D and W allow it.
// Accumulation fp32. Bytes: 4 a value. Goal: latency.
// Elements: bf16, f16, f32.
#include "common.cuh"
#include "early.cuh"

template <int N>
struct Values {
    float f[N];
    __device__ __forceinline__ void load(const elem *p) {
        if constexpr (N == 8) unpack(load8(p), f);
        else f[0] = widen(*p);
    }
    __device__ __forceinline__ void angles(const float *p) {
        if constexpr (N == 8) *(float4 *)f = *(const float4 *)p, *(float4 *)(f + 4) = *(const float4 *)(p + 4);
        else f[0] = *p;
    }
    __device__ __forceinline__ void store(elem *p) const {
        if constexpr (N == 8) store8(p, pack(f));
        else *p = narrow(f[0]);
    }
};

template <int N>
__device__ __forceinline__ void copy(elem *to, const elem *from) {
    if constexpr (N == 8) store8(to, load8(from));
    else *to = *from;
}

template <int N>
__device__ __forceinline__ void rope_append(elem *q, const elem *k, const elem *v, elem *keys, elem *values, const int *positions, const float *table, const int *at,
                                            int P, int H, int K, int D, int R, int W) {
    int m = blockIdx.x, half = R / 2, per = half / N, rest = (D - R) / N, pairs = (H + K) * per, stays = K * rest;
    int to = at[m];
    bool kept = to >= 0 && to < P;
    const float *c = table + (int64_t)positions[m] * R;
    q += (int64_t)m * H * D, k += (int64_t)m * K * D, v += (int64_t)m * W;
    keys += (int64_t)to * K * D, values += (int64_t)to * W;
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < pairs + stays + W / N; i += gridDim.y * blockDim.x) {
        if (i < pairs) {
            int h = i / per, d = (i - h * per) * N;
            if (h >= H && !kept) continue;
            const elem *from = h < H ? q + h * D + d : k + (h - H) * D + d;
            elem *dst = h < H ? q + h * D + d : keys + (h - H) * D + d;
            Values<N> a, b, cs, sn, x, y;
            a.load(from), b.load(from + half);
            cs.angles(c + d), sn.angles(c + half + d);
#pragma unroll
            for (int e = 0; e < N; e++) {
                x.f[e] = a.f[e] * cs.f[e] - b.f[e] * sn.f[e];
                y.f[e] = b.f[e] * cs.f[e] + a.f[e] * sn.f[e];
            }
            x.store(dst), y.store(dst + half);
        } else if (!kept) {
            continue;
        } else if (i < pairs + stays) {
            int j = i - pairs, h = j / rest, d = h * D + R + (j - h * rest) * N;
            copy<N>(keys + d, k + d);
        } else {
            int d = (i - pairs - stays) * N;
            copy<N>(values + d, v + d);
        }
    }
}

// Block 128.
extern "C" __global__ void __launch_bounds__(128) rope_append(elem *q, const elem *k, const elem *v, elem *keys, elem *values, const int *positions, const float *table,
                                                             const int *at, int P, int H, int K, int D, int R, int W) {
    let_next_begin();
    wait_for_earlier();
    if (R % 16 == 0 && D % 8 == 0 && W % 8 == 0) rope_append<8>(q, k, v, keys, values, positions, table, at, P, H, K, D, R, W);
    else rope_append<1>(q, k, v, keys, values, positions, table, at, P, H, K, D, R, W);
}
