// gated_delta_prepare.cu: what chunks of the gated delta rule have before any state is known.
// Layout: as gated_delta.cu; prepared [to-from, V]; o [M,VE] elem, of which rows in no sequence become zeros, or none.
// A block of 128 takes the chunks that begin in CHUNK rows and one key head. Its warps multiply queries and keys by keys, exactly as they
// come; then each takes T of a value head, or P and the gates: a lane has a token's gates and a column, and solves for that of T.
// Gates, with 1/|k| and the scale of queries over |q|, as products take queries and keys as they come:
//   OF_KEY beta decay/|k|    OF_QUERY decay scale/|q|    OF_REST rest/|k|    DECAY exp(gam)    GAM + LOW gam
// with rest = exp(gam_last - gam). Sums of logarithms are kept as two floats: their differences are as exact as those of neighbours.
// Accumulation fp32, of logarithms fp64. Bytes: queries and keys once, sizeof(Prepared) a row and value head written. Goal: half of a
// copy's rate.
// Elements: bf16, f16, f32.
#include "gated_delta_chunk.cuh"

enum { LDS = CHUNK + 4 };   // floats of a row of a square in shared memory

__device__ __forceinline__ void store_parts(float *to, float x) { *to = x; }
__device__ __forceinline__ void store_parts(bf16 *to, float x) { to[0] = __float2bfloat16(x), to[CHUNK] = __float2bfloat16(x - __bfloat162float(to[0])); }

// A warp's way with rows of T or P, in parts, from shared memory.
__device__ __forceinline__ void write(kept *to, int V, const float *A, int count) {
    int row = (threadIdx.x & 31) >> 3, unit = threadIdx.x & 7;
    __syncwarp();
#pragma unroll
    for (int i = row; i < CHUNK; i += 4)
        if (i < count) ((uint4 *)((char *)to + (int64_t)i * V * sizeof(Prepared)))[unit] = *(const uint4 *)(A + i * LDS + 4 * unit);
    __syncwarp();
}

// A warp's work for value head v: T, or P and the gates.
__device__ __forceinline__ void prepare(Prepared *prepared, const Rule &r, int v, bool with_t, int row, int count, const float *kk, const float *qk, float *A,
                                        const float *inverse_k, const float *inverse_q) {
    int lane = threadIdx.x & 31;
    int64_t at = (int64_t)(row + lane) * r.V + v;
    double sum = lane < count ? log_decay(widen(r.a[at]), r.log_a[v], r.dt[v]) : 0.f;
    float beta = lane < count ? sigmoid(widen(r.b[at])) : 0.f;
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
        double before = __shfl_up_sync(~0u, sum, o);
        if (lane >= o) sum += before;
    }
    double last = __shfl_sync(~0u, sum, 31);
    float gam = (float)sum, low = (float)(sum - gam), decay = expf(gam) * (1.f + low), of_k = inverse_k[lane], of_q = inverse_q[lane] * r.query_scale();
    Prepared *to = prepared + r.prepared_at(row, v);
    auto between = [&](int i) { return expf((__shfl_sync(~0u, gam, i) - gam) + (__shfl_sync(~0u, low, i) - low)); };
    if (!with_t) {
        if (lane < count) {
            float4 *gate = (float4 *)to[(int64_t)lane * r.V].gate;
            gate[0] = make_float4(beta * decay * of_k, decay * of_q, expf((float)(last - sum)) * of_k, beta);
            gate[1] = make_float4(decay, gam, low, 0.f);
        }
#pragma unroll 4
        for (int i = 0; i < CHUNK; i++) {
            float by = between(i) * of_k, by_q = __shfl_sync(~0u, of_q, i);
            store_parts((kept *)(A + i * LDS) + lane, i < lane ? 0.f : by_q * by * qk[i * LDS + lane]);
        }
        write(to->p[0], r.V, A, count);
        return;
    }
#pragma unroll 2
    for (int i = 0; i < CHUNK; i += 4) {   // a row of A': what a token is told of the lane's
        float w[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float by = between(i + j) * of_k, by_k = __shfl_sync(~0u, beta * of_k, i + j);
            w[j] = i + j > lane ? by_k * by * kk[(i + j) * LDS + lane] : 0.f;
        }
        *(float4 *)(A + lane * LDS + i) = make_float4(w[0], w[1], w[2], w[3]);
    }
    __syncwarp();
    float x[CHUNK];
#pragma unroll
    for (int i = 0; i < CHUNK; i++) x[i] = i == lane ? 1.f : 0.f;
#pragma unroll
    for (int j = 0; j < CHUNK - 1; j++)   // row j is solved
#pragma unroll
        for (int i = (j + 1) / 4 * 4; i < CHUNK; i += 4) {
            float4 w = *(const float4 *)(A + j * LDS + i);
            if (i > j) x[i] -= w.x * x[j];
            if (i + 1 > j) x[i + 1] -= w.y * x[j];
            if (i + 2 > j) x[i + 2] -= w.z * x[j];
            x[i + 3] -= w.w * x[j];
        }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < CHUNK; i++) store_parts((kept *)(A + i * LDS) + lane, x[i]);
    write(to->t[0], r.V, A, count);
}

extern "C" __global__ void __launch_bounds__(128, PARTS == 2 ? 4 : 1) gated_delta_prepare(Prepared *prepared, elem *o, int from, int to, RULE) {
    extern __shared__ __align__(16) char shared[];
    elem *k = (elem *)shared, *q = k + CHUNK * LDK;
    float *A = (float *)shared;   // of each warp, where keys and queries were
    float *kk = (float *)(shared + max(2 * CHUNK * LDK * (int)sizeof(elem), 4 * 4 * CHUNK * LDS)), *qk = kk + CHUNK * LDS;
    __shared__ float inverse_k[CHUNK], inverse_q[CHUNK];
    Rule r = RULE_OF(from, to);
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, key = blockIdx.y, group = V / K, row0 = from + blockIdx.x * CHUNK, row1 = min(row0 + CHUNK, to);
    each_chunk(r, row0, row1, [&](int, int end, int row) {
        int count = min(CHUNK, end - row);
        copy_rows<CHUNK, HEAD, 128>(k, LDK, r.row(row) + (r.K + key) * r.D, r.width(), count, r.D, r.wide(), threadIdx.x);
        copy_rows<CHUNK, HEAD, 128>(q, LDK, r.row(row) + key * r.D, r.width(), count, r.D, r.wide(), threadIdx.x);
        cp_commit();
        cp_wait<0>();
        __syncthreads();
        inverse_norms<4>(inverse_k, k);
        inverse_norms<4>(inverse_q, q);
        float d[4][4] = {};
        int m0 = (warp & 1) * 16;
#pragma unroll
        for (int l = 0; l < HEAD; l += 16) {
            Right b[2] = {right<false>(k, LDK, l, 0), right<false>(k, LDK, l, 16)};
            times_high(d, left<false>(warp < 2 ? k : q, LDK, m0, l), b);
        }
        each_token([&](int i, int token, int at) { (warp < 2 ? kk : qk)[(m0 + at) * LDS + token] = (&d[0][0])[i]; });
        __syncthreads();
        for (int i = warp; i < 2 * group; i += 4) prepare(prepared, r, key * group + i / 2, i % 2, row, count, kk, qk, A + warp * CHUNK * LDS, inverse_k, inverse_q);
        __syncthreads();
    });
    if (!o) return;
    int before = min(row1, r.first(0)), behind = max(row0, r.first(S)), n = group * E;
    clear_rows(o + key * n, (int64_t)V * E, n, row0, before, threadIdx.x, 128);
    clear_rows(o + key * n, (int64_t)V * E, n, behind, row1, threadIdx.x, 128);
}
