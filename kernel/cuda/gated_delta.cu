// gated_delta.cu: linear attention by the gated delta rule, and the states that its backward pass begins from.
// Layout: qkv [M, 2KD+VE], b, a [M,V], o [M,VE] elem; log_a, dt [V] fp32; cu [S+1]; kept [window/CHUNK+1, V, D, E]: bf16 where elem is,
// else fp32; borders [ceil(M/window), V, D, E] fp32. D and E are multiples of 4, D is at most HEAD.
// A block of 256 takes one sequence's value head and COLS columns of it, 64, or 32 where that would be few blocks, chunk by chunk (gated_delta.cuh); the rows of the next chunk come
// while one is computed. Warps multiply 16 keys or queries by the keys and by the state; one of them inverts 1 + A; then all add to the
// state, of which a warp holds 16 rows in registers, with a copy in shared memory as operand. gated_delta_states leaves queries and outputs
// out. Without kept states it goes over all rows and writes the state before the first chunk of each window of rows; with them it goes on
// from there over the window that begins at from, and writes the state before every chunk but a sequence's first.
// Accumulation fp32. FLOPs a token and value head: 2 (3 D E + CHUNK (2 D + 2 E)). Goal: a tenth of a layer's GEMMs.
// Elements: bf16, f16, f32.
#include "gated_delta.cuh"

template <bool STATES, int COLS>
__device__ void forward(elem *o, kept *states, float *borders, int window, const Rule r) {
    constexpr int LDE = COLS + 8;
    extern __shared__ __align__(16) float shared[];
    __shared__ Gates gates;
    float *k = shared, *s = k + CHUNK * LDK, *x = s + HEAD * LDE, *y = x + CHUNK * LDE, *A = y + CHUNK * LDE, *q = A + CHUNK * LDC, *P = q + CHUNK * LDK;
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    int seq = blockIdx.x, v = blockIdx.y, e0 = blockIdx.z * COLS, first = r.first(seq), end = r.first(seq + 1), key = v / (r.V / r.K);
    if (!STATES) {
        int n = min(COLS, r.E - e0);
        if (seq == 0) clear_rows(o + v * r.E + e0, (int64_t)r.V * r.E, n, 0, first, threadIdx.x, 256);
        if (seq == r.S - 1) clear_rows(o + v * r.E + e0, (int64_t)r.V * r.E, n, end, r.M, threadIdx.x, 256);
    }
    int begin = r.chunk_from(first, r.from), stop = min(end, r.to);
    if (begin >= stop) return;
    // A warp's products: of 16 rows with NK times 8 keys, with the state in NS times 8 columns, and Y of NY times 8.
    constexpr int NK = STATES ? 1 : 2, NS = COLS / (STATES ? 32 : 16), NY = COLS / 32;
    int row0 = (warp & 1) * 16, part = STATES ? warp >> 1 : warp >> 2, keys0 = part * NK, cols0 = part * NS;
    bool queries = !STATES && (warp & 2);
    float log_a = r.log_a[v], dt = r.dt[v], gate_a = 0.f, gate_b = 0.f;
    Rows key_rows, query_rows;
    Two value[NS][2];
    auto fetch = [&](int row) {
        int count = end - row;
        key_rows.fetch(r.row(row) + (r.K + key) * r.D, r.width(), count, r.D);
        if (!STATES) query_rows.fetch(r.row(row) + key * r.D, r.width(), count, r.D);
        if (warp == 7 && lane < count) gate_a = widen(r.a[(int64_t)(row + lane) * r.V + v]), gate_b = widen(r.b[(int64_t)(row + lane) * r.V + v]);
    };
    auto fetch_values = [&](int row) {
        int count = end - row;
#pragma unroll
        for (int n = 0; n < NS; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int at = row0 + g + 8 * i, e = e0 + 8 * (cols0 + n) + 2 * t;
                value[n][i] = two(r.row(row + at) + r.value_at(v) + e, !queries && at < count && e < r.E);
            }
    };
    fetch(begin);
    fetch_values(begin);
    float state[COLS / 8][4];
#pragma unroll
    for (int i = 0; i < COLS / 2; i++) (&state[0][0])[i] = 0.f;
    for (int i = threadIdx.x; i < HEAD * LDE; i += 256) s[i] = 0.f;
    if (STATES && begin > first) {
        __syncthreads();
        const float *border = borders + ((int64_t)(r.from / window) * r.V + v) * r.D * r.E;
        each_pair<COLS>(r, e0, [&](int n, int i, int64_t at, float *own) {
            float2 w = *(const float2 *)(border + at);
            state[n][2 * i] = w.x, state[n][2 * i + 1] = w.y;
            *(float2 *)own = make_float2(operand(w.x), operand(w.y));
            store_kept(states + r.kept_at(begin, v) + at, w.x, w.y);
        }, s);
    }
    for (int row = begin; row < stop; row += CHUNK) {
        int count = min(CHUNK, end - row);
        __syncthreads();
        key_rows.store(k, 0, 1.f);
        if (!STATES) query_rows.store(q, 0, r.query_scale());
        if (warp == 7) gates.store(gate_a, gate_b, log_a, dt, count);
        fetch(row + CHUNK);
        float d[NK + NS][4];
#pragma unroll
        for (int n = 0; n < NK + NS; n++) d[n][0] = d[n][1] = d[n][2] = d[n][3] = 0.f;
        __syncthreads();
        const float *from = (queries ? q : k) + row0 * LDK;
        product<NK + NS, HEAD / 8>(d, [&](int i, int l) { return from[i * LDK + l]; },
                                   [&](int l, int n) { return n < NK ? k[(8 * (keys0 + n) + g) * LDK + l] : s[l * LDE + 8 * (cols0 + n - NK) + g]; });
#pragma unroll
        for (int n = 0; n < NK; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int at = row0 + g + i / 2 * 8, j = 8 * (keys0 + n) + 2 * t + i % 2;
                float w = j <= at ? gates.between(at, j) * d[n][i] : 0.f;
                if (queries)
                    P[at * LDC + j] = operand(w);
                else
                    A[at * LDC + j] = j < at ? operand(gates.beta[at] * w) : 0.f;
            }
#pragma unroll
        for (int n = 0; n < NS; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int at = row0 + g + 8 * i;
                float *w = d[NK + n] + 2 * i, decay = gates.decay[at], beta = gates.beta[at];
                if (queries)
                    w[0] *= decay, w[1] *= decay;
                else {
                    float2 u = widen_two(value[n][i]);
                    *(float2 *)(x + at * LDE + 8 * (cols0 + n) + 2 * t) = make_float2(operand(beta * (u.x - decay * w[0])), operand(beta * (u.y - decay * w[1])));
                }
            }
        fetch_values(row + CHUNK);
        __syncthreads();
        if (warp == 0) invert(A, y);
        __syncthreads();
        float c[NY][4] = {};
        int own0 = 8 * NY * (warp >> 1);
        product<NY, CHUNK / 8>(c, [&](int i, int l) { return A[(row0 + i) * LDC + l]; }, [&](int l, int n) { return x[l * LDE + own0 + 8 * n + g]; });
#pragma unroll
        for (int n = 0; n < NY; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                *(float2 *)(y + (row0 + g + 8 * i) * LDE + own0 + 8 * n + 2 * t) = make_float2(operand(c[n][2 * i]), operand(c[n][2 * i + 1]));
        __syncthreads();
        if (queries) {
            product<NS, CHUNK / 8>(d + NK, [&](int i, int l) { return P[(row0 + i) * LDC + l]; }, [&](int l, int n) { return y[l * LDE + 8 * (cols0 + n) + g]; });
#pragma unroll
            for (int n = 0; n < NS; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    int at = row0 + g + 8 * i, e = e0 + 8 * (cols0 + n) + 2 * t;
                    if (at < count && e < r.E) store2(o + (int64_t)(row + at) * r.V * r.E + v * r.E + e, d[NK + n][2 * i], d[NK + n][2 * i + 1]);
                }
        }
#pragma unroll
        for (int i = 0; i < COLS / 2; i++) (&state[0][0])[i] *= gates.whole;
        product<COLS / 8, CHUNK / 8>(state, [&](int i, int l) { return operand(k[l * LDK + 16 * warp + i] * gates.rest[l]); }, [&](int l, int n) { return y[l * LDE + 8 * n + g]; });
#pragma unroll
        for (int n = 0; n < COLS / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                *(float2 *)(s + (16 * warp + g + 8 * i) * LDE + 8 * n + 2 * t) = make_float2(operand(state[n][2 * i]), operand(state[n][2 * i + 1]));
        if (STATES && row + CHUNK < end) {
            int next = row + CHUNK;
            if (!states && next / window != row / window) {
                float *border = borders + ((int64_t)(next / window) * r.V + v) * r.D * r.E;
                each_pair<COLS>(r, e0, [&](int n, int i, int64_t at, float *) { *(float2 *)(border + at) = make_float2(state[n][2 * i], state[n][2 * i + 1]); }, s);
            }
            if (states && next < stop)
                each_pair<COLS>(r, e0, [&](int n, int i, int64_t at, float *) { store_kept(states + r.kept_at(next, v) + at, state[n][2 * i], state[n][2 * i + 1]); }, s);
        }
    }
}

#define RULE const elem *qkv, const elem *b, const elem *a, const float *log_a, const float *dt, const int *cu, int M, int S, int K, int V, int D, int E

#define FORMS(COLS)                                                                                                              \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) gated_delta_forward_##COLS(elem *o, RULE) {                        \
        forward<false, COLS>(o, 0, 0, 1, Rule{qkv, b, a, log_a, dt, cu, M, S, K, V, D, E, 0, M});                                \
    }                                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) gated_delta_states_##COLS(kept *states, float *borders, int window, int from, int to, RULE) { \
        forward<true, COLS>(0, states, borders, window, Rule{qkv, b, a, log_a, dt, cu, M, S, K, V, D, E, from, to});             \
    }
FORMS(64)
FORMS(32)
