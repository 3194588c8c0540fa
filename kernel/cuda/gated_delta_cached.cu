// gated_delta_cached.cu: the gated delta rule over the next tokens of sequences, each with its state in a slot.
// Layout: as gated_delta.cu; cu_k [S+1], state [P, V, D, E] fp32. Sequence s has the slot cu_k[s]/tokens, of which nothing is read where
// the sequence has no earlier token. A sequence without a row keeps its slot.
// A block of 128 takes one sequence's value head and 32 columns of it; a thread holds 32 rows of a column, and goes token by token, so that
// texts in pieces are what they are whole, to the bit. Rows come into shared memory TOKENS at a time, while those before are computed.
// fp32 throughout. Bytes: a state read and written, and the rows. FLOPs a token and value head: 8 D E. Goal: for one token a sequence 60 %
// of a copy of the states.
// Elements: bf16, f16, f32.
#include "gated_delta.cuh"

enum { TOKENS = 16, PART = HEAD / 4, LDP = PART + 4, LDT = 4 * LDP };   // a row in four parts, each with 4 floats behind it: no two in one bank

__device__ __forceinline__ void store_row(float *to, float4 x, float f) {
    int lane = threadIdx.x & 31;
    *(float4 *)(to + 4 * lane / PART * LDP + 4 * lane % PART) = make_float4(x.x * f, x.y * f, x.z * f, x.w * f);
}

extern "C" __global__ void __launch_bounds__(128) gated_delta_cached(elem *o, float *state, const elem *qkv, const elem *b, const elem *a, const float *log_a, const float *dt, const int *cu, const int *cu_k, int M, int S, int K, int V, int D, int E, int slots, int tokens) {
    __shared__ __align__(16) float k[TOKENS][LDT], q[TOKENS][LDT];
    __shared__ float value[TOKENS][32], decay[TOKENS], beta[TOKENS];
    Rule r{qkv, b, a, log_a, dt, cu, M, S, K, V, D, E};
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, part = lane >> 3, column = warp * 8 + (lane & 7);
    int seq = blockIdx.x, v = blockIdx.y, e = blockIdx.z * 32 + column, key = v / (V / K), first = r.first(seq), end = r.first(seq + 1), n = min(32, E - (int)blockIdx.z * 32);
    elem *rows = o + v * E + blockIdx.z * 32;
    if (seq == 0) clear_rows(rows, (int64_t)V * E, n, 0, first, threadIdx.x, 128);
    if (seq == S - 1) clear_rows(rows, (int64_t)V * E, n, end, M, threadIdx.x, 128);
    int slot = cu_k[seq] / tokens;
    if (first >= end || slot >= slots) return;
    float *own = state + (((int64_t)slot * V + v) * D + part * PART) * E + e, s[PART];
    bool inside = e < E, goes_on = cu_k[seq + 1] - cu_k[seq] > end - first;
#pragma unroll
    for (int i = 0; i < PART; i++) s[i] = goes_on && inside && part * PART + i < D ? own[(int64_t)i * E] : 0.f;
    Four key_rows[TOKENS / 4], query_rows[TOKENS / 4];   // of the next rows: warp, and every fourth behind it
    float values[TOKENS / 4], gate_a[TOKENS / 4], gate_b[TOKENS / 4], log_a_v = log_a[v], dt_v = dt[v];
    auto fetch = [&](int row) {
#pragma unroll
        for (int i = 0; i < TOKENS / 4; i++) {
            int64_t at = row + warp + 4 * i;
            bool there = at < end;
            key_rows[i] = four(r.row(at) + (K + key) * D + 4 * lane, there && 4 * lane < D);
            query_rows[i] = four(r.row(at) + key * D + 4 * lane, there && 4 * lane < D);
            values[i] = there && lane < n ? widen(r.row(at)[r.value_at(v) + blockIdx.z * 32 + lane]) : 0.f;
            gate_a[i] = there ? widen(a[at * V + v]) : 0.f, gate_b[i] = there ? widen(b[at * V + v]) : 0.f;
        }
    };
    fetch(first);
    for (int row = first; row < end; row += TOKENS) {
        int count = min(TOKENS, end - row);
        __syncthreads();
        float fk[TOKENS / 4], fq[TOKENS / 4];
#pragma unroll
        for (int i = 0; i < TOKENS / 4; i++) fk[i] = square(widen4(key_rows[i])), fq[i] = square(widen4(query_rows[i]));
        norm_factors(fk);
        norm_factors(fq);
#pragma unroll
        for (int i = 0; i < TOKENS / 4; i++) {
            int at = warp + 4 * i;
            store_row(k[at], widen4(key_rows[i]), fk[i]);
            store_row(q[at], widen4(query_rows[i]), fq[i] * r.query_scale());
            value[at][lane] = values[i];
            if (lane == 0) decay[at] = expf(log_decay(gate_a[i], log_a_v, dt_v)), beta[at] = sigmoid(gate_b[i]);
        }
        fetch(row + TOKENS);
        __syncthreads();
        for (int i = 0; i < count; i++) {
            float said[4] = {0.f, 0.f, 0.f, 0.f}, out[4] = {0.f, 0.f, 0.f, 0.f}, f = decay[i];
            const float4 *kp = (const float4 *)(k[i] + part * LDP), *qp = (const float4 *)(q[i] + part * LDP);
#pragma unroll
            for (int j = 0; j < PART / 4; j++) {
                float4 x = kp[j];
                said[0] = fmaf(s[4 * j], x.x, said[0]), said[1] = fmaf(s[4 * j + 1], x.y, said[1]);
                said[2] = fmaf(s[4 * j + 2], x.z, said[2]), said[3] = fmaf(s[4 * j + 3], x.w, said[3]);
            }
            float all = (said[0] + said[1]) + (said[2] + said[3]);
            all += __shfl_xor_sync(~0u, all, 8);
            all += __shfl_xor_sync(~0u, all, 16);
            float d = beta[i] * (value[i][column] - f * all);
#pragma unroll
            for (int j = 0; j < PART / 4; j++) {
                float4 x = kp[j], y = qp[j];
                s[4 * j] = fmaf(x.x, d, f * s[4 * j]), s[4 * j + 1] = fmaf(x.y, d, f * s[4 * j + 1]);
                s[4 * j + 2] = fmaf(x.z, d, f * s[4 * j + 2]), s[4 * j + 3] = fmaf(x.w, d, f * s[4 * j + 3]);
                out[0] = fmaf(s[4 * j], y.x, out[0]), out[1] = fmaf(s[4 * j + 1], y.y, out[1]);
                out[2] = fmaf(s[4 * j + 2], y.z, out[2]), out[3] = fmaf(s[4 * j + 3], y.w, out[3]);
            }
            float sum = (out[0] + out[1]) + (out[2] + out[3]);
            sum += __shfl_xor_sync(~0u, sum, 8);
            sum += __shfl_xor_sync(~0u, sum, 16);
            if (part == 0 && inside) o[(int64_t)(row + i) * V * E + v * E + e] = narrow(sum);
        }
    }
#pragma unroll
    for (int i = 0; i < PART; i++)
        if (inside && part * PART + i < D) own[(int64_t)i * E] = s[i];
}
