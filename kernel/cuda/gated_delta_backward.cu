// gated_delta_backward.cu: the gradients of the gated delta rule for qkv, b and a.
// Layout: as gated_delta.cu; d_o [M,VE], d_qkv [M, 2KD+VE], d_b, d_a [M,V] elem; grads as its states.
// With G the gradient of the state behind a chunk, and of X, Y, A and P (gated_delta.cuh) as they are named:
//   dY = P' do + rest K G      (1 + A)' dX = dY      dv = beta dX      dS0 = whole G + (decay Q)' do - (beta decay K)' dX
//   dA = -dX Y'    dP = do Y'    dq = decay do S0' + P-part    dk = -beta decay dX S0' + rest Y G' + A-part + P-part
// gated_delta_carry goes from a sequence's last chunk to its first as gated_delta.cu goes forward, a block of 256 for one value head and
// COLS columns; it makes dv, and writes G before every chunk but the first. It takes the chunks that begin in a window of rows, and where a
// sequence goes on in the next window it has G from there (behind, [V,D,E] fp32), as it leaves its own (before). gated_delta_gradients then makes all the rest, a block of 256
// for the chunks that begin in CHUNK rows and one key head: its value heads in turn, BLOCK columns of each at a time, with S0 from
// gated_delta_states. A token's decay multiplies what it and later tokens of the chunk read of earlier ones and of S0, and what those leave
// to G; its gradient is the sum of just these products, as a difference of longer sums would leave little of a small one. No sum depends
// on the grid.
// Accumulation fp32. FLOPs a token and value head: carry 2 (3 D E + CHUNK (2 D + 2 E)), gradients 2 (5 D E + CHUNK (5 D + 5 E)).
// Goal: a tenth of a layer's GEMMs.
// Elements: bf16, f16, f32.
#include "gated_delta.cuh"

#ifdef OPERANDS_SPLIT
enum { DEEP = 2 };   // steps of a product in flight
#else
enum { DEEP = 4 };
#endif
enum { BLOCK = 32, LDB = BLOCK + 8 };

template <int COLS>
__device__ __forceinline__ void carry(elem *d_qkv, kept *grads, const float *behind, float *before, const elem *d_o, const Rule r) {
    constexpr int LDE = COLS + 8, NY = COLS / 32, QUADS = COLS / 4;
    extern __shared__ __align__(16) float shared[];
    __shared__ Gates gates;
    __shared__ __align__(8) float scratch[INVERT];
    float *k = shared, *q = k + CHUNK * LDK, *s = q + CHUNK * LDK, *y = s + HEAD * LDE, *o = y + CHUNK * LDE, *A = o + CHUNK * LDE, *P = A + CHUNK * LDC;
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    int seq = blockIdx.x, v = blockIdx.y, e0 = blockIdx.z * COLS, first = r.first(seq), end = r.first(seq + 1), key = v / (r.V / r.K);
    int begin = r.chunk_from(first, r.from), stop = min(end, r.to);
    if (begin >= stop) return;
    int row0 = (warp & 1) * 16, keys0 = (warp >> 2) * 16, cols0 = (warp >> 1) * 8 * NY;   // of a warp's products
    bool queries = warp & 2;
    float log_a = r.log_a[v], dt = r.dt[v], gate_a = 0.f, gate_b = 0.f;
    Rows key_rows, query_rows;
    Four out[NY];
    auto fetch = [&](int row) {
        int count = row < begin ? 0 : end - row;
        key_rows.fetch(r.row(row) + (r.K + key) * r.D, r.width(), count, r.D);
        query_rows.fetch(r.row(row) + key * r.D, r.width(), count, r.D);
        if (warp == 7 && lane < count) gate_a = widen(r.a[(int64_t)(row + lane) * r.V + v]), gate_b = widen(r.b[(int64_t)(row + lane) * r.V + v]);
#pragma unroll
        for (int i = 0; i < NY; i++) {
            int at = (threadIdx.x + 256 * i) / QUADS, e = e0 + threadIdx.x % QUADS * 4;
            out[i] = four(d_o + ((int64_t)(row + at) * r.V + v) * r.E + e, at < count && e < r.E);
        }
    };
    int last = begin + (stop - begin - 1) / CHUNK * CHUNK;
    fetch(last);
    float grad[COLS / 8][4];
#pragma unroll
    for (int i = 0; i < COLS / 2; i++) (&grad[0][0])[i] = 0.f;
    for (int i = threadIdx.x; i < HEAD * LDE; i += 256) s[i] = 0.f;
    if (last + CHUNK < end) {
        __syncthreads();
        each_pair<COLS>(r, e0, [&](int n, int i, int64_t at, float *own) {
            float2 w = *(const float2 *)(behind + (int64_t)v * r.D * r.E + at);
            grad[n][2 * i] = w.x, grad[n][2 * i + 1] = w.y;
            *(float2 *)own = make_float2(operand(w.x), operand(w.y));
            store_kept(grads + r.kept_at(last + CHUNK, v) + at, w.x, w.y);
        }, s);
    }
    for (int row = last; row >= begin; row -= CHUNK) {
        int count = min(CHUNK, end - row);
        __syncthreads();
        key_rows.store(k, 0, 1.f);
        query_rows.store(q, 0, r.query_scale());
        if (warp == 7) gates.store(gate_a, gate_b, log_a, dt, count);
#pragma unroll
        for (int i = 0; i < NY; i++) store_operands(o + (threadIdx.x + 256 * i) / QUADS * LDE + threadIdx.x % QUADS * 4, widen4(out[i]));
        fetch(row - CHUNK);
        __syncthreads();
        float c[2][4] = {}, d[NY][4] = {}, dx[NY][4] = {};
        const float *from = (queries ? q : k) + row0 * LDK;
        product<2, HEAD / 8>(c, [&](int i, int l) { return from[i * LDK + l]; }, [&](int l, int n) { return k[(keys0 + 8 * n + g) * LDK + l]; });
        product<NY, HEAD / 8>(d, [&](int i, int l) { return k[(row0 + i) * LDK + l]; }, [&](int l, int n) { return s[l * LDE + cols0 + 8 * n + g]; });
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int at = row0 + g + i / 2 * 8, j = keys0 + 8 * n + 2 * t + i % 2;
                float w = j <= at ? gates.between(at, j) * c[n][i] : 0.f;
                if (queries)
                    P[at * LDC + j] = operand(w);
                else
                    A[at * LDC + j] = j < at ? operand(gates.beta[at] * w) : 0.f;
            }
#pragma unroll
        for (int n = 0; n < NY; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) d[n][i] *= gates.rest[row0 + g + i / 2 * 8];
        __syncthreads();
        product<NY, CHUNK / 8>(d, [&](int i, int l) { return P[l * LDC + row0 + i]; }, [&](int l, int n) { return o[l * LDE + cols0 + 8 * n + g]; });
        float *own = y + (row0 + g) * LDE + cols0 + 2 * t;
#pragma unroll
        for (int n = 0; n < NY; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) *(float2 *)(own + 8 * i * LDE + 8 * n) = make_float2(operand(d[n][2 * i]), operand(d[n][2 * i + 1]));
        if (warp == 0) invert(A, scratch);
        __syncthreads();
        product<NY, CHUNK / 8>(dx, [&](int i, int l) { return A[l * LDC + row0 + i]; }, [&](int l, int n) { return y[l * LDE + cols0 + 8 * n + g]; });
        __syncthreads();
#pragma unroll
        for (int n = 0; n < NY; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int at = row0 + g + 8 * i, e = e0 + cols0 + 8 * n + 2 * t;
                float a = gates.beta[at] * dx[n][2 * i], b = gates.beta[at] * dx[n][2 * i + 1], decay = gates.decay[at];
                *(float2 *)(own + 8 * i * LDE + 8 * n) = make_float2(operand(-decay * a), operand(-decay * b));
                if (at < count && e < r.E) store2(d_qkv + (row + at) * r.width() + r.value_at(v) + e, a, b);
            }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < COLS / 2; i++) (&grad[0][0])[i] *= gates.whole;
        product<COLS / 8, CHUNK / 8>(grad, [&](int i, int l) { return operand(q[l * LDK + 16 * warp + i] * gates.decay[l]); }, [&](int l, int n) { return o[l * LDE + 8 * n + g]; });
        product<COLS / 8, CHUNK / 8>(grad, [&](int i, int l) { return k[l * LDK + 16 * warp + i]; }, [&](int l, int n) { return y[l * LDE + 8 * n + g]; });
#pragma unroll
        for (int n = 0; n < COLS / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                *(float2 *)(s + (16 * warp + g + 8 * i) * LDE + 8 * n + 2 * t) = make_float2(operand(grad[n][2 * i]), operand(grad[n][2 * i + 1]));
        if (row > begin)
            each_pair<COLS>(r, e0, [&](int n, int i, int64_t at, float *) { store_kept(grads + r.kept_at(row, v) + at, grad[n][2 * i], grad[n][2 * i + 1]); }, s);
        else if (row > first)
            each_pair<COLS>(r, e0, [&](int n, int i, int64_t at, float *) { *(float2 *)(before + (int64_t)v * r.D * r.E + at) = make_float2(grad[n][2 * i], grad[n][2 * i + 1]); }, s);
    }
}

// What a chunk's tokens are told of one value head, over the columns that each warp has.
struct Parts {
    float beta[4][CHUNK];    // the gradient of beta, times beta
    float state[4][CHUNK];   // that of the decays up to the token, through what it reads of S0
    float rest[4][CHUNK];    // that of the decays behind the token, through what is left of it in the state
    float pairs[8][CHUNK];   // that of the token's decay, through what is read at or behind it of tokens before it
    float whole[8];          // <G, S0>
};

struct Gradients {
    elem *d_qkv, *d_b, *d_a;
    const elem *d_o;
    const kept *states, *grads;
};

// One chunk of a key head.
__device__ __forceinline__ void chunk_gradients(const Gradients &io, const Rule &r, int key, int first, int end, int row) {
    extern __shared__ __align__(16) float shared[];
    __shared__ Gates gates;
    __shared__ float inverse_k[CHUNK], inverse_q[CHUNK];
    float *k = shared, *q = k + CHUNK * LDK, *A = q + CHUNK * LDK, *P = A + CHUNK * LDC, *s = P + CHUNK * LDC, *G = s + HEAD * LDB;
    float *x = G + HEAD * LDB, *y = x + CHUNK * LDB, *o = y + CHUNK * LDB;   // Y, dX and do
    Parts &parts = *(Parts *)x;
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, row0 = (warp & 1) * 16, quarter = warp >> 1;
    int count = min(CHUNK, end - row), group = r.V / r.K, i0 = row0 + g, j0 = 8 * quarter + 2 * t;
    {
        Rows key_rows, query_rows;
        key_rows.fetch(r.row(row) + (r.K + key) * r.D, r.width(), count, r.D);
        query_rows.fetch(r.row(row) + key * r.D, r.width(), count, r.D);
        key_rows.store(k, inverse_k, 1.f);
        query_rows.store(q, inverse_q, r.query_scale());
    }
    __syncthreads();
    float kk[1][4] = {}, qk[1][4] = {}, dq[4][4], dk[4][4];
#pragma unroll
    for (int i = 0; i < 16; i++) (&dq[0][0])[i] = (&dk[0][0])[i] = 0.f;
    auto key_of = [&](int i, int l) { return k[(row0 + i) * LDK + l]; };
    auto key_row = [&](int l, int) { return k[(8 * quarter + g) * LDK + l]; };
    product<1, HEAD / 8, DEEP>(kk, key_of, key_row);
    product<1, HEAD / 8, DEEP>(qk, [&](int i, int l) { return q[(row0 + i) * LDK + l]; }, key_row);
    auto along = [&](float *sum, const float *m, float (*d)[4]) {   // of rows i0 and i0 + 8, with gradients
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[i / 2] += m[(i0 + i / 2 * 8) * LDK + 32 * quarter + 8 * n + 2 * t + i % 2] * d[n][i];
    };
    auto over_row = [&](float v) {
        v += __shfl_xor_sync(~0u, v, 1);
        return v + __shfl_xor_sync(~0u, v, 2);
    };
    for (int v = key * group; v < (key + 1) * group; v++) {
        if (warp == 7) {
            int64_t at = (int64_t)(row + min(lane, count - 1)) * r.V + v;
            gates.store(widen(r.a[at]), widen(r.b[at]), r.log_a[v], r.dt[v], count);
        }
        __syncthreads();
        float dP[1][4] = {}, dA[1][4] = {}, of_beta[2] = {}, of_state[2] = {}, of_rest[2] = {}, before[2] = {}, behind[2] = {}, whole = 0.f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int at = i0 + i / 2 * 8, j = j0 + i % 2;
            float between = j <= at ? gates.between(at, j) : 0.f;
            P[at * LDC + j] = operand(between * qk[0][i]);
            A[at * LDC + j] = j < at ? operand(gates.beta[at] * between * kk[0][i]) : 0.f;
        }
        along(before, q, dq);
        __syncthreads();
        if (warp == 0) invert(A, x);
        for (int e0 = 0; e0 < r.E; e0 += BLOCK) {
#pragma unroll
            for (int i = 0; i < HEAD * BLOCK / 4 / 256; i++) {
                int at = (threadIdx.x + 256 * i) / (BLOCK / 4), e = (threadIdx.x + 256 * i) % (BLOCK / 4) * 4;
                bool inside = at < r.D && e0 + e < r.E;
                int64_t from = (int64_t)at * r.E + e0 + e;
                float4 a = load_kept(io.states + r.kept_at(row, v) + from, inside && row > first), b = load_kept(io.grads + r.kept_at(row + CHUNK, v) + from, inside && row + CHUNK < end);
                whole += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
                store_operands(s + at * LDB + e, a);
                store_operands(G + at * LDB + e, b);
            }
            {
                int at = threadIdx.x / (BLOCK / 4), e = threadIdx.x % (BLOCK / 4) * 4;
                store_operands(o + at * LDB + e, load4(io.d_o + ((int64_t)(row + at) * r.V + v) * r.E + e0 + e, at < count && e0 + e < r.E));
            }
            float2 value[2];
#pragma unroll
            for (int i = 0; i < 2; i++)
                value[i] = i0 + 8 * i < count && e0 + j0 < r.E ? load2(r.row(row + i0 + 8 * i) + r.value_at(v) + e0 + j0) : make_float2(0.f, 0.f);
            __syncthreads();
            float said[2][4] = {}, rhs[4], out[1][4];   // K S0 and K G
            product<2, HEAD / 8, DEEP>(said, key_of, [&](int l, int n) { return (n ? G : s)[l * LDB + 8 * quarter + g]; });
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int at = i0 + i / 2 * 8;
                rhs[i] = gates.beta[at] * ((i % 2 ? value[i / 2].y : value[i / 2].x) - gates.decay[at] * said[0][i]);
                out[0][i] = gates.rest[at] * said[1][i];
            }
            product<1, CHUNK / 8, DEEP>(out, [&](int i, int l) { return P[l * LDC + row0 + i]; }, [&](int l, int) { return o[l * LDB + 8 * quarter + g]; });
            float *xo = x + i0 * LDB + j0, *yo = y + i0 * LDB + j0;
#pragma unroll
            for (int i = 0; i < 4; i++) xo[i / 2 * 8 * LDB + i % 2] = operand(rhs[i]), yo[i / 2 * 8 * LDB + i % 2] = operand(out[0][i]);
            __syncthreads();
            float added[1][4] = {}, dx[1][4] = {};
            product<1, CHUNK / 8, DEEP>(added, [&](int i, int l) { return A[(row0 + i) * LDC + l]; }, [&](int l, int) { return x[l * LDB + 8 * quarter + g]; });
            product<1, CHUNK / 8, DEEP>(dx, [&](int i, int l) { return A[l * LDC + row0 + i]; }, [&](int l, int) { return y[l * LDB + 8 * quarter + g]; });
            __syncthreads();
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int at = i0 + i / 2 * 8;
                xo[i / 2 * 8 * LDB + i % 2] = operand(added[0][i]), yo[i / 2 * 8 * LDB + i % 2] = operand(dx[0][i]);
                of_beta[i / 2] += dx[0][i] * rhs[i];
                of_state[i / 2] -= gates.beta[at] * gates.decay[at] * dx[0][i] * said[0][i];
                of_rest[i / 2] += gates.rest[at] * added[0][i] * said[1][i];
            }
            __syncthreads();
            auto added_row = [&](int l, int) { return x[(8 * quarter + g) * LDB + l]; };
            product<1, BLOCK / 8, DEEP>(dP, [&](int i, int l) { return o[(row0 + i) * LDB + l]; }, added_row);
            product<1, BLOCK / 8, DEEP>(dA, [&](int i, int l) { return y[(row0 + i) * LDB + l]; }, added_row);
            auto state_row = [&](int l, int n) { return s[(32 * quarter + 8 * n + g) * LDB + l]; };
            product<4, BLOCK / 8, DEEP>(dq, [&](int i, int l) { return operand(o[(row0 + i) * LDB + l] * gates.decay[row0 + i]); }, state_row);
            product<4, BLOCK / 8, DEEP>(dk, [&](int i, int l) { return operand(y[(row0 + i) * LDB + l] * -gates.beta[row0 + i] * gates.decay[row0 + i]); }, state_row);
            product<4, BLOCK / 8, DEEP>(dk, [&](int i, int l) { return operand(x[(row0 + i) * LDB + l] * gates.rest[row0 + i]); },
                                  [&](int l, int n) { return G[(32 * quarter + 8 * n + g) * LDB + l]; });
            __syncthreads();
        }
        along(behind, q, dq);   // and before, less of all but what this head's S0 added
        of_state[0] += behind[0] - before[0], of_state[1] += behind[1] - before[1];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int at = i0 + i / 2 * 8, j = j0 + i % 2;
            float between = j <= at ? gates.between(at, j) : 0.f, p = between * dP[0][i], a = j < at ? -gates.beta[at] * between * dA[0][i] : 0.f;
            P[at * LDC + j] = operand(p);
            A[at * LDC + j] = operand(a);
            y[at * (CHUNK + 1) + j] = j < at ? a * kk[0][i] + p * qk[0][i] : 0.f;
            of_beta[i / 2] += a * kk[0][i];
        }
        whole = warp_sum(whole);
        if (lane == 0) parts.whole[warp] = whole;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float b = over_row(of_beta[i]), c = over_row(of_state[i]), d = over_row(of_rest[i]);
            if (t == 0) parts.beta[quarter][i0 + 8 * i] = b, parts.state[quarter][i0 + 8 * i] = c, parts.rest[quarter][i0 + 8 * i] = d;
        }
        __syncthreads();
        auto key_at = [&](int l, int n) { return k[l * LDK + 32 * quarter + 8 * n + g]; };
        product<4, CHUNK / 8, DEEP>(dq, [&](int i, int l) { return P[(row0 + i) * LDC + l]; }, key_at);
        product<4, CHUNK / 8, DEEP>(dk, [&](int i, int l) { return A[(row0 + i) * LDC + l]; }, key_at);
        product<4, CHUNK / 8, DEEP>(dk, [&](int i, int l) { return A[l * LDC + row0 + i]; }, key_at);
        product<4, CHUNK / 8, DEEP>(dk, [&](int i, int l) { return P[l * LDC + row0 + i]; }, [&](int l, int n) { return q[l * LDK + 32 * quarter + 8 * n + g]; });
        float pairs = 0.f;
#pragma unroll
        for (int i = 0; i < 4; i++) {   // reads of token j; lane: of tokens before it
            int j = 4 * warp + i;
            float own = y[j * (CHUNK + 1) + lane], sum = own;
#pragma unroll
            for (int w = 1; w < 32; w *= 2) {
                float z = __shfl_up_sync(~0u, sum, w);
                if (lane >= w) sum += z;
            }
            if (lane <= j) pairs += sum - own;
        }
        parts.pairs[warp][lane] = pairs;
        __syncthreads();
        if (warp == 0) {
            auto sum4 = [&](float (*p)[CHUNK]) { return (p[0][lane] + p[1][lane]) + (p[2][lane] + p[3][lane]); };
            float behind = sum4(parts.state), rest = sum4(parts.rest), before = rest, b = sum4(parts.beta), all = 0.f;
#pragma unroll
            for (int w = 1; w < 32; w *= 2) {
                float z = __shfl_down_sync(~0u, behind, w), u = __shfl_up_sync(~0u, before, w);
                if (lane + w < 32) behind += z;
                if (lane >= w) before += u;
            }
#pragma unroll
            for (int i = 0; i < 8; i++) all += parts.whole[i];
            float d = behind + (before - rest) + gates.whole * all + (sum4(parts.pairs) + sum4(parts.pairs + 4));
            if (lane < count) {
                int64_t at = (int64_t)(row + lane) * r.V + v;
                io.d_b[at] = narrow(b * sigmoid(-widen(r.b[at])));
                io.d_a[at] = narrow(d * -expf(r.log_a[v]) * sigmoid(widen(r.a[at]) + r.dt[v]));
            }
        }
        __syncthreads();
    }
    // The gradient of by x/|x| for x: (by d - along x/|x|) / |x|.
    float along_q[2] = {}, along_k[2] = {};
    along(along_q, q, dq);
    along(along_k, k, dk);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float a = over_row(along_q[i]), b = over_row(along_k[i]);
        if (t == 0) parts.beta[quarter][i0 + 8 * i] = a, parts.rest[quarter][i0 + 8 * i] = b;
    }
    __syncthreads();
    float by = r.query_scale();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int at = i0 + 8 * i;
        if (at >= count) continue;
        float aq = (parts.beta[0][at] + parts.beta[1][at]) + (parts.beta[2][at] + parts.beta[3][at]), ak = (parts.rest[0][at] + parts.rest[1][at]) + (parts.rest[2][at] + parts.rest[3][at]);
        float fq = inverse_q[at], fk = inverse_k[at];
        elem *to = io.d_qkv + (row + at) * r.width() + key * r.D;
#pragma unroll
        for (int n = 0; n < 4; n++) {
            int d = 32 * quarter + 8 * n + 2 * t;
            if (d >= r.D) continue;
            const float *u = q + at * LDK + d, *w = k + at * LDK + d;
            store2(to + d, fq * (by * dq[n][2 * i] - aq / by * u[0]), fq * (by * dq[n][2 * i + 1] - aq / by * u[1]));
            store2(to + r.K * r.D + d, fk * (dk[n][2 * i] - ak * w[0]), fk * (dk[n][2 * i + 1] - ak * w[1]));
        }
    }
    __syncthreads();
}

#define RULE const elem *qkv, const elem *b, const elem *a, const float *log_a, const float *dt, const int *cu, int M, int S, int K, int V, int D, int E

#define FORM(COLS)                                                                                                               \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) gated_delta_carry_##COLS(elem *d_qkv, kept *grads, const float *behind, float *before, const elem *d_o, int from, int to, RULE) { \
        carry<COLS>(d_qkv, grads, behind, before, d_o, Rule{qkv, b, a, log_a, dt, cu, M, S, K, V, D, E, from, to});              \
    }
FORM(64)
FORM(32)

extern "C" __global__ void __launch_bounds__(256, BLOCKS) gated_delta_gradients(elem *d_qkv, elem *d_b, elem *d_a, const elem *d_o, const kept *states, const kept *grads, int window, RULE) {
    Rule r{qkv, b, a, log_a, dt, cu, M, S, K, V, D, E, window, M};
    int from = window + blockIdx.x * CHUNK, to = min(from + CHUNK, M), key = blockIdx.y, group = V / K;
    int lo = 0, hi = S;   // the first sequence that ends behind from
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (cu[mid + 1] > from)
            hi = mid;
        else
            lo = mid + 1;
    }
    for (int s = lo; s < S && r.first(s) < to; s++) {
        int first = r.first(s), end = r.first(s + 1), row = r.chunk_from(first, from);
        if (row < min(to, end)) chunk_gradients(Gradients{d_qkv, d_b, d_a, d_o, states, grads}, r, key, first, end, row);
    }
    int before = min(to, r.first(0)), behind = max(from, r.first(S));
    for (int part = 0; part < 2; part++) {
        int r0 = part ? behind : from, r1 = part ? to : before;
        clear_rows(d_qkv + key * D, r.width(), D, r0, r1, threadIdx.x, 256);
        clear_rows(d_qkv + (K + key) * D, r.width(), D, r0, r1, threadIdx.x, 256);
        clear_rows(d_qkv + r.value_at(key * group), r.width(), group * E, r0, r1, threadIdx.x, 256);
        clear_rows(d_b + key * group, V, group, r0, r1, threadIdx.x, 256);
        clear_rows(d_a + key * group, V, group, r0, r1, threadIdx.x, 256);
    }
}
