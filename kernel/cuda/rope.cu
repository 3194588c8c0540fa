// rope.cu: rotary position embedding of q and k in place, rotate_half convention: pair (i, i + R/2) of a head turns by the
// angle of position p and frequency i, of rope_interleaved pair (2i, 2i+1); the last D - R values of a head stay. Backward is
// the same with sign = -1.
// Layout: q [M,H,D], k [M,K,D] elem, rows ldq and ldk elements apart; positions [M] int32; cos, sin [P,R/2] fp32, rows ldt apart
// (ldt = R where a row holds both).
// A thread turns 8 pairs (two 16-byte accesses each way) where R is a multiple of 16 and D of 8, else one; neighbours 4 (one
// access each way) where R is a multiple of 8. Grid-stride over pairs.
// Accumulation fp32. Bytes: 4 a turned value (2 read, 2 written); the tables stay in cache. Goal: 80 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"
#include "early.cuh"

// Grid: any; block: any. H or K may be 0.
extern "C" __global__ void __launch_bounds__(256) rope_apply(elem *q, elem *k, const int *positions, const float *cosT, const float *sinT,
                                                            int M, int H, int K, int D, int R, int ldq, int ldk, int ldt, float sign) {
    let_next_begin();
    wait_for_earlier();
    int half = R / 2, wide = R % 16 == 0 && D % 8 == 0 && ldq % 8 == 0 && ldk % 8 == 0 ? 8 : 1, per = half / wide, row = (H + K) * per;
    int64_t total = (int64_t)M * row;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        int m = (int)(i / row), j = (int)(i - (int64_t)m * row), h = j / per, d = (j - h * per) * wide;
        elem *p = h < H ? q + (int64_t)m * ldq + h * D + d : k + (int64_t)m * ldk + (h - H) * D + d;
        const float *c = cosT + (int64_t)positions[m] * ldt + d, *s = sinT + (int64_t)positions[m] * ldt + d;
        if (wide == 8) {
            float a[8], b[8], x[8], y[8], cs[8], sn[8];
            unpack(load8(p), a);
            unpack(load8(p + half), b);
            *(float4 *)cs = *(const float4 *)c, *(float4 *)(cs + 4) = *(const float4 *)(c + 4);
            *(float4 *)sn = *(const float4 *)s, *(float4 *)(sn + 4) = *(const float4 *)(s + 4);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                float t = sign * sn[e];
                x[e] = a[e] * cs[e] - b[e] * t;
                y[e] = b[e] * cs[e] + a[e] * t;
            }
            store8(p, pack(x));
            store8(p + half, pack(y));
        } else {
            float a = widen(p[0]), b = widen(p[half]), t = sign * *s;
            p[0] = narrow(a * *c - b * t);
            p[half] = narrow(b * *c + a * t);
        }
    }
}

// Grid: any; block: any. H or K may be 0.
extern "C" __global__ void __launch_bounds__(256) rope_interleaved(elem *q, elem *k, const int *positions, const float *cosT, const float *sinT,
                                                                  int M, int H, int K, int D, int R, int ldq, int ldk, int ldt, float sign) {
    let_next_begin();
    wait_for_earlier();
    int half = R / 2, wide = R % 8 == 0 && D % 8 == 0 && ldq % 8 == 0 && ldk % 8 == 0 ? 4 : 1, per = half / wide, row = (H + K) * per;
    int64_t total = (int64_t)M * row;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        int m = (int)(i / row), j = (int)(i - (int64_t)m * row), h = j / per, d = (j - h * per) * wide;
        elem *p = h < H ? q + (int64_t)m * ldq + h * D + 2 * d : k + (int64_t)m * ldk + (h - H) * D + 2 * d;
        const float *c = cosT + (int64_t)positions[m] * ldt + d, *s = sinT + (int64_t)positions[m] * ldt + d;
        if (wide == 4) {
            float x[8], cs[4], sn[4];
            unpack(load8(p), x);
            *(float4 *)cs = *(const float4 *)c;
            *(float4 *)sn = *(const float4 *)s;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float a = x[2 * e], b = x[2 * e + 1], t = sign * sn[e];
                x[2 * e] = a * cs[e] - b * t;
                x[2 * e + 1] = b * cs[e] + a * t;
            }
            store8(p, pack(x));
        } else {
            float a = widen(p[0]), b = widen(p[1]), t = sign * *s;
            p[0] = narrow(a * *c - b * t);
            p[1] = narrow(b * *c + a * t);
        }
    }
}
