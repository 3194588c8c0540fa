// gated_delta_backward.cu: the gradients of the gated delta rule for qkv, b and a.
// Layout: as gated_delta.cu; d_o [M,VE], d_qkv [M, 2KD+VE], d_b, d_a [M,V] elem; grads as its states.
// With G the gradient of the state behind a chunk, and of X, Y, A and P (gated_delta.cuh) as they are named:
//   dY = P' do + rest K G      dX = T' dY      dv = beta dX      dS0 = whole G + (decay Q)' do - (beta decay K)' dX
//   dA = -dX Y'    dP = do Y'    dq = decay do S0' + P-part    dk = -beta decay dX S0' + rest Y G' + A-part + P-part
// gated_delta_carry goes from a sequence's last chunk to its first as gated_delta.cu goes forward, a block for one value head and COLS
// columns; it makes dv, and writes G before every chunk but the first. It takes the chunks that begin in a window of rows, and where a
// sequence goes on in the next window it has G from there (behind, [V,E,D] fp32), as it leaves its own (before). gated_delta_gradients then
// makes all the rest, a block of 128 for the chunks that begin in CHUNK rows and one key head: its value heads in turn, BLOCK columns of
// each at a time, with S0 from gated_delta_states. Warps make Y and dX of 16 columns as gated_delta.cu does; of these in shared memory each
// makes a quarter of what has tokens and keys as columns. A token's decay multiplies what it and later tokens of the chunk read of earlier
// ones and of S0, and what those leave to G; its gradient is the sum of just these products, as a difference of longer sums would leave
// little of a small one. No sum depends on the grid.
// Accumulation fp32. FLOPs a token and value head: carry 2 (3 D E + CHUNK 2 E), gradients 2 (5 D E + CHUNK 5 E) and less for queries and
// keys; those of numbers in two parts twice. Goal: a tenth of a layer's GEMMs.
// Elements: bf16, f16, f32.
#include "gated_delta_chunk.cuh"

template <int COLS>
__device__ void carry(elem *d_qkv, kept *grads, const float *behind, float *before, const Prepared *prepared, const elem *d_o, const Rule r) {
    typedef Stage<COLS> Stage;
    extern __shared__ __align__(16) char shared[];
    int seq = blockIdx.x, v = blockIdx.y, e0 = blockIdx.z * COLS, first = r.first(seq), end = r.first(seq + 1), begin = r.chunk_from(first, r.from), stop = min(end, r.to);
    if (begin >= stop) return;
    int warp0 = threadIdx.x / 32 * 16, chunks = (stop - begin + CHUNK - 1) / CHUNK, last = begin + (chunks - 1) * CHUNK;
    float grad[HEAD / 8][4];
#pragma unroll
    for (int i = 0; i < HEAD / 2; i++) (&grad[0][0])[i] = 0.f;
    if (last + CHUNK < end && threadIdx.x < Stage::WORKERS)
        each_pair(r, e0 + warp0, [&](int n, int i, int64_t at) {
            *(float2 *)(grad[n] + i) = *(const float2 *)(behind + (int64_t)v * r.D * r.E + at);
            store_kept(grads + r.kept_at(last + CHUNK, v) + at, grad[n] + i);
        });
    auto load = [&](Stage *to, int row) { to->template load<true>(r, prepared, v, row, end - row, d_o + v * r.E, (int64_t)r.V * r.E, e0); };
    auto compute = [&](Stage *now, int row) {
        float d[4][4], dx[4][4], out[4][4], said[4][4], low[4][4];   // dY, dX, do; what G says of keys, and of its low parts
#pragma unroll
        for (int i = 0; i < 16; i++) (&d[0][0])[i] = (&dx[0][0])[i] = (&said[0][0])[i] = (&low[0][0])[i] = 0.f;
        now->values(out);
        times_square<true, true>(d, out, now->p);
#pragma unroll
        for (int l = 0; l < HEAD; l += 16) {
            Right b[2] = {right<false>(now->k, LDK, l, 0), right<false>(now->k, LDK, l, 16)};
            Left a(grad + l / 8);
            times_low(low, a, b);
            times_high(said, a, b);
        }
        each_token([&](int i, int token, int) { (&d[0][0])[i] += now->gate[token][OF_REST] * ((&said[0][0])[i] + (&low[0][0])[i]); });
        times_square<true>(dx, d, now->t);
        __syncwarp();   // dv takes the place of do
        each_token([&](int i, int token, int e) {
            float4 gate = *(const float4 *)now->gate[token];
            float &x = (&dx[0][0])[i];
            now->value[token * now->LDV + warp0 + e] = narrow(gate.w * x);
            x *= -gate.x;
            (&out[0][0])[i] *= gate.y;
        });
        float whole = now->gate[min(CHUNK, end - row) - 1][DECAY];
#pragma unroll
        for (int i = 0; i < HEAD / 2; i++) (&grad[0][0])[i] *= whole;
#pragma unroll
        for (int l = 0; l < CHUNK; l += 16) {
            Left of_out(out + l / 8), of_dx(dx + l / 8);
#pragma unroll
            for (int n = 0; n < HEAD; n += 32) {
                Right q[2] = {right<true>(now->q, LDK, l, n), right<true>(now->q, LDK, l, n + 16)}, k[2] = {right<true>(now->k, LDK, l, n), right<true>(now->k, LDK, l, n + 16)};
                times(grad + n / 8, of_out, q);
                times(grad + n / 8, of_dx, k);
            }
        }
        if (row > begin) {
            if (Stage::STATE_FITS)
                now->put_state(grad);
            else
                each_pair(r, e0 + warp0, [&](int n, int i, int64_t at) { store_kept(grads + r.kept_at(row, v) + at, grad[n] + i); });
        } else if (row > first)
            each_pair(r, e0 + warp0, [&](int n, int i, int64_t at) { *(float2 *)(before + (int64_t)v * r.D * r.E + at) = *(float2 *)(grad[n] + i); });
    };
    through((Stage *)shared, last, -CHUNK, chunks, load, compute, [&](Stage *from, int row) {
        copy_back<CHUNK, COLS, Stage::FEEDERS>(d_qkv + row * r.width() + r.value_at(v) + e0, r.width(), from->value, from->LDV, end - row, r.E - e0, r.wide(), from->feeder());
        if (Stage::STATE_FITS && row > begin) from->take_state(grads + r.kept_at(row, v), r, e0);
    });
}

#ifdef OPERANDS_SPLIT
enum { BLOCK = 32, DEEP = 1 };   // columns of a value head at a time; steps of a product in flight
#else
enum { BLOCK = 64, DEEP = 2 };
#endif
enum { LDB = BLOCK + 8, PART = BLOCK * LDC };

// What a chunk's tokens are told of one value head, over what each warp has.
struct Parts {
    float pairs[CHUNK][CHUNK + 1];                    // of a token and one before it: what is read there
    float beta[6][CHUNK];                             // the gradient of beta, times beta
    float state[8][CHUNK];                            // that of the decays up to the token, through what it reads of S0
    float rest[4][CHUNK];                             // that of the decays behind the token, through what is left of it in the state
    float across[4][CHUNK];                           // that of the token's decay, through what is read at or behind it of tokens before it
    float whole[4];                                   // <G, S0>
    float along_q[4][CHUNK], along_k[4][CHUNK];       // of gradients with queries and keys
};

struct Tiles {
    elem k[CHUNK * LDK], q[CHUNK * LDK];
    kept s[BLOCK * LDK], g[BLOCK * LDK];                       // S0 and G, columns of values as rows
    elem out[CHUNK * LDB], value[CHUNK * LDB];                 // do
    kept t[PARTS * CHUNK * LDC], p[PARTS * CHUNK * LDC];       // then A-part and P-part
    union {
        struct {
            kept y[PARTS * PART], dx[PARTS * PART];            // Y and dX, columns of values as rows
        };
        Parts parts;
    };
    float gate[CHUNK][GATES];
};

// A number in PARTS parts, `part` numbers apart.
__device__ __forceinline__ void put(float *to, int, float x) { *to = x; }
__device__ __forceinline__ void put(bf16 *to, int part, float x) { to[0] = __float2bfloat16(x), to[part] = __float2bfloat16(x - __bfloat162float(to[0])); }

struct Gradients {
    elem *d_qkv, *d_b, *d_a;
    const elem *d_o;
    const kept *states, *grads;
    const Prepared *prepared;
};

// Sums over the lanes that hold a tile's row, and its column.
__device__ __forceinline__ float over_row(float v) {
    v += __shfl_xor_sync(~0u, v, 1);
    return v + __shfl_xor_sync(~0u, v, 2);
}
// Of 8 columns, of which a lane gets that of lane/4.
__device__ __forceinline__ float over_column(const float *v) {
    float x[4], y[2];
    bool a = threadIdx.x & 16, b = threadIdx.x & 8, c = threadIdx.x & 4;
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = (a ? v[i + 4] : v[i]) + __shfl_xor_sync(~0u, a ? v[i] : v[i + 4], 16);
#pragma unroll
    for (int i = 0; i < 2; i++) y[i] = (b ? x[i + 2] : x[i]) + __shfl_xor_sync(~0u, b ? x[i] : x[i + 2], 8);
    return (c ? y[1] : y[0]) + __shfl_xor_sync(~0u, c ? y[0] : y[1], 4);
}

// One chunk of a key head.
__device__ __forceinline__ void chunk_gradients(const Gradients &io, const Rule &r, int key, int first, int end, int row) {
    extern __shared__ __align__(16) char shared[];
    __shared__ float inverse_k[CHUNK], inverse_q[CHUNK];
    Tiles &m = *(Tiles *)shared;
    Parts &parts = m.parts;
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    int i0 = (warp & 1) * 16, j0 = (warp >> 1) * 16, d0 = 32 * warp, warp0 = 16 * warp;   // of a warp's tokens by tokens, keys, and columns of values
    int count = min(CHUNK, end - row), group = r.V / r.K;
    bool wide = r.wide();
    copy_rows<CHUNK, HEAD, 128>(m.k, LDK, r.row(row) + (r.K + key) * r.D, r.width(), count, r.D, wide, threadIdx.x);
    copy_rows<CHUNK, HEAD, 128>(m.q, LDK, r.row(row) + key * r.D, r.width(), count, r.D, wide, threadIdx.x);
    cp_commit();
    cp_wait<0>();
    __syncthreads();
    inverse_norms<4>(inverse_k, m.k);
    inverse_norms<4>(inverse_q, m.q);
    float kk[2][4] = {}, qk[2][4] = {};
#pragma unroll DEEP
    for (int l = 0; l < HEAD; l += 16) {
        Right b[1] = {right<false>(m.k, LDK, l, j0)};
        times_high(kk, left<false>(m.k, LDK, i0, l), b);
        times_high(qk, left<false>(m.q, LDK, i0, l), b);
    }
    float dq[2][4][4], dk[2][4][4];   // over 1/|k|, and of queries over |q| and by their scale
#pragma unroll
    for (int i = 0; i < 32; i++) (&dq[0][0][0])[i] = (&dk[0][0][0])[i] = 0.f;
    for (int v = key * group; v < (key + 1) * group; v++) {
        float dP[2][4] = {}, dA[2][4] = {}, of_beta = 0.f, of_state = 0.f, of_rest = 0.f, of_query[4] = {}, whole = 0.f;
        for (int e0 = 0; e0 < r.E; e0 += BLOCK) {
            copy_rows<BLOCK, HEAD, 128>(m.s, LDK, io.states + r.kept_at(row, v) + (int64_t)e0 * r.D, r.D, row > first ? r.E - e0 : 0, r.D, wide, threadIdx.x);
            copy_rows<BLOCK, HEAD, 128>(m.g, LDK, io.grads + r.kept_at(row + CHUNK, v) + (int64_t)e0 * r.D, r.D, row + CHUNK < end ? r.E - e0 : 0, r.D, wide, threadIdx.x);
            copy_rows<CHUNK, BLOCK, 128>(m.out, LDB, io.d_o + ((int64_t)row * r.V + v) * r.E + e0, (int64_t)r.V * r.E, count, r.E - e0, wide, threadIdx.x);
            copy_rows<CHUNK, BLOCK, 128>(m.value, LDB, r.row(row) + r.value_at(v) + e0, r.width(), count, r.E - e0, wide, threadIdx.x);
            if (e0 == 0) copy_prepared<true, 128>(m.t, m.gate, io.prepared + r.prepared_at(row, v), r.V, count, threadIdx.x);
            cp_commit();
            cp_wait<0>();
            __syncthreads();
            int more = e0 + BLOCK < r.E ? e0 + BLOCK : 0, w = more ? v : v + 1;   // what is next
            if (w < (key + 1) * group && threadIdx.x < 2 * BLOCK && more + (int)threadIdx.x % BLOCK < r.E) {
                bool of_g = threadIdx.x >= BLOCK;
                const kept *next = (of_g ? io.grads + r.kept_at(row + CHUNK, w) : io.states + r.kept_at(row, w)) + (int64_t)(more + threadIdx.x % BLOCK) * r.D;
                if (of_g ? row + CHUNK < end : row > first)
                    for (int i = 0; i < r.D; i += 128 / sizeof(kept)) asm volatile("prefetch.global.L2 [%0];" ::"l"(next + i));
            }
            if (warp0 < BLOCK) {
                float said[8][4], y[4][4], dx[4][4], x[4][4], out[4][4];   // S0 and G of keys, then dY; Y; dX; X; do
#pragma unroll
                for (int i = 0; i < 16; i++) (&said[0][0])[i] = (&said[4][0])[i] = (&y[0][0])[i] = (&dx[0][0])[i] = 0.f;
#pragma unroll DEEP
                for (int l = 0; l < HEAD; l += 16) {
                    Right b[2] = {right<false>(m.k, LDK, l, 0), right<false>(m.k, LDK, l, 16)};
                    Left s = left<false>(m.s, LDK, warp0, l), G = left<false>(m.g, LDK, warp0, l);
                    times_high(said, s, b);
                    times_high(said + 4, G, b);
                    float a[2][4], c[2][4];
                    unpack(s, a);
                    unpack(G, c);
#pragma unroll
                    for (int i = 0; i < 8; i++) whole += (&a[0][0])[i] * (&c[0][0])[i];
                }
                unpack(left<true>(m.value, LDB, warp0, 0), x);
                unpack(left<true>(m.value, LDB, warp0, 16), x + 2);
                each_token([&](int i, int token, int) {
                    float4 gate = *(const float4 *)m.gate[token];
                    float &of_s = (&said[0][0])[i], &of_g = (&said[4][0])[i], &u = (&x[0][0])[i];
                    of_s *= gate.x, of_g *= gate.z, u = gate.w * u - of_s;
                });
                times_square<false>(y, x, m.t);
                float sum[8] = {}, of_x[8] = {};
#pragma unroll
                for (int i = 0; i < 16; i++) sum[i / 4 * 2 + i % 2] += (&y[0][0])[i] * (&said[4][0])[i];
                of_rest += over_column(sum);
                unpack(left<true>(m.out, LDB, warp0, 0), out);
                unpack(left<true>(m.out, LDB, warp0, 16), out + 2);
                times_square<true, true>(said + 4, out, m.p);
                times_square<true>(dx, said + 4, m.t);
#pragma unroll
                for (int i = 0; i < 8; i++) sum[i] = 0.f;
                each_token([&](int i, int token, int e) {
                    float y_i = (&y[0][0])[i], dx_i = (&dx[0][0])[i];
                    sum[i / 4 * 2 + i % 2] += dx_i * (&x[0][0])[i];
                    of_x[i / 4 * 2 + i % 2] -= dx_i * (&said[0][0])[i];
                    put(m.y + (warp0 + e) * LDC + token, PART, y_i);
                    put(m.dx + (warp0 + e) * LDC + token, PART, dx_i);
                });
                of_beta += over_column(sum), of_state += over_column(of_x);
            }
            __syncthreads();
#pragma unroll DEEP
            for (int e = 0; e < BLOCK; e += 16) {
                Left out = left<false>(m.out, LDB, i0, e), of_x = left<true>(m.dx, LDC, i0, e);
#pragma unroll
                for (int part = PARTS - 1; part >= 0; part--) {
                    Right b[1] = {right<true>(m.y + part * PART, LDC, e, j0)};
                    times_high(dP, out, b);
                    times_high(dA, of_x, b);
                    if (PARTS == 2 && part == 0) times_high(dA, left<true>(m.dx + PART, LDC, i0, e), b);
                }
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {   // 16 tokens
                float c[4][4];
                auto add = [&](float (*to)[4], const float *a) {   // each row by its factor
#pragma unroll
                    for (int i = 0; i < 16; i++) (&to[0][0])[i] += a[i / 2 % 2] * (&c[0][0])[i];
#pragma unroll
                    for (int i = 0; i < 16; i++) (&c[0][0])[i] = 0.f;
                };
                auto gates = [&](float *a, int gate, float by) { a[0] = by * m.gate[16 * h + g][gate], a[1] = by * m.gate[16 * h + g + 8][gate]; };
                float by[2];
#pragma unroll
                for (int i = 0; i < 16; i++) (&c[0][0])[i] = 0.f;
#pragma unroll DEEP
                for (int e = 0; e < BLOCK; e += 16) {
                    Right b[2] = {right<true>(m.s, LDK, e, d0), right<true>(m.s, LDK, e, d0 + 16)};
                    times_high(c, left<false>(m.out, LDB, 16 * h, e), b);
                }
                gates(by, OF_QUERY, 1.f);
#pragma unroll
                for (int i = 0; i < 16; i++)
                    of_query[2 * h + i / 2 % 2] += by[i / 2 % 2] * (&c[0][0])[i] * widen(m.q[(16 * h + g + i / 2 % 2 * 8) * LDK + d0 + i / 4 * 8 + 2 * t + i % 2]);
                add(dq[h], by);
#pragma unroll DEEP
                for (int e = 0; e < BLOCK; e += 16) {
                    Right b[2] = {right<true>(m.s, LDK, e, d0), right<true>(m.s, LDK, e, d0 + 16)};
                    times_high(c, left<true>(m.dx, LDC, 16 * h, e), b);
                }
                gates(by, OF_KEY, -1.f);
                add(dk[h], by);
#pragma unroll DEEP
                for (int e = 0; e < BLOCK; e += 16) {
                    Right b[2] = {right<true>(m.g, LDK, e, d0), right<true>(m.g, LDK, e, d0 + 16)};
                    times_high(c, left<true>(m.y, LDC, 16 * h, e), b);
                }
                gates(by, OF_REST, 1.f);
                add(dk[h], by);
            }
            __syncthreads();
        }
        float beta[2] = {};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int at = i0 + g + i / 2 % 2 * 8, j = j0 + i / 4 * 8 + 2 * t + i % 2;
            float *of = m.gate[at], *before = m.gate[j];
            float between = j <= at && at < count ? expf((of[GAM] - before[GAM]) + (of[LOW] - before[LOW])) * inverse_k[j] : 0.f;
            float p = between * inverse_q[at] * r.query_scale() * (&dP[0][0])[i], a = j < at ? -of[BETA] * between * inverse_k[at] * (&dA[0][0])[i] : 0.f, own = a * (&kk[0][0])[i];
            put(m.p + at * LDC + j, CHUNK * LDC, p);
            if (j <= at) put(m.t + at * LDC + j, CHUNK * LDC, a);
            if (j < at) put(m.t + j * LDC + at, CHUNK * LDC, a);
            parts.pairs[at][j] = j < at ? own + p * (&qk[0][0])[i] : 0.f;
            beta[i / 2 % 2] += own;
        }
        whole = warp_sum(whole);
        if (lane == 0) parts.whole[warp] = whole;
        int token = g / 2 * 8 + 2 * t + g % 2;
        parts.beta[warp][token] = of_beta, parts.state[warp][token] = of_state, parts.rest[warp][token] = of_rest;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float q = over_row(of_query[i]);
            if (t == 0) parts.state[4 + warp][8 * i + g] = q;
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float b = over_row(beta[i]);
            if (t == 0) parts.beta[4 + warp / 2][i0 + g + 8 * i] = b;
        }
        __syncthreads();
#pragma unroll
        for (int l = 0; l < CHUNK; l += 16) {
            Right k[2] = {right<true>(m.k, LDK, l, d0), right<true>(m.k, LDK, l, d0 + 16)}, q[2] = {right<true>(m.q, LDK, l, d0), right<true>(m.q, LDK, l, d0 + 16)};
#pragma unroll
            for (int h = 0; h < 2; h++) {
#pragma unroll
                for (int part = PARTS - 1; part >= 0; part--) {
                    times_high(dq[h], left<false>(m.p + part * CHUNK * LDC, LDC, 16 * h, l), k);
                    times_high(dk[h], left<false>(m.t + part * CHUNK * LDC, LDC, 16 * h, l), k);
                    times_high(dk[h], left<true>(m.p + part * CHUNK * LDC, LDC, 16 * h, l), q);
                }
            }
        }
        {   // reads of token j, of tokens before another: those of 8, then with all before
            float *own = parts.pairs[threadIdx.x / 4] + t * 8, sum[8], all = 0.f;
#pragma unroll
            for (int i = 0; i < 8; i++) sum[i] = all, all += own[i];
            float one = __shfl_up_sync(~0u, all, 1), two = __shfl_up_sync(~0u, all, 2), three = __shfl_up_sync(~0u, all, 3), before = (t > 2 ? three : 0.f) + (t > 1 ? two : 0.f) + (t > 0 ? one : 0.f);
#pragma unroll
            for (int i = 0; i < 8; i++) own[i] = sum[i] + before;
        }
        __syncthreads();
        float across = 0.f;
#pragma unroll
        for (int i = 0; i < 8; i++) across += 8 * warp + i >= lane ? parts.pairs[8 * warp + i][lane] : 0.f;
        parts.across[warp][lane] = across;
        __syncthreads();
        if (warp == 0) {
            auto sum4 = [&](float (*p)[CHUNK]) { return (p[0][lane] + p[1][lane]) + (p[2][lane] + p[3][lane]); };
            float behind = sum4(parts.state) + sum4(parts.state + 4), rest = sum4(parts.rest), before = rest, b = sum4(parts.beta) + (parts.beta[4][lane] + parts.beta[5][lane]);
#pragma unroll
            for (int w = 1; w < 32; w *= 2) {
                float z = __shfl_down_sync(~0u, behind, w), u = __shfl_up_sync(~0u, before, w);
                if (lane + w < 32) behind += z;
                if (lane >= w) before += u;
            }
            float all = (parts.whole[0] + parts.whole[1]) + (parts.whole[2] + parts.whole[3]);
            float d = behind + (before - rest) + m.gate[count - 1][DECAY] * all + sum4(parts.across);
            if (lane < count) {
                int64_t at = (int64_t)(row + lane) * r.V + v;
                io.d_b[at] = narrow(b * sigmoid(-widen(r.b[at])));
                io.d_a[at] = narrow(d * -expf(r.log_a[v]) * sigmoid(widen(r.a[at]) + r.dt[v]));
            }
        }
        __syncthreads();
    }
    // The gradient of x/|x| for x: (d - x/|x| along x/|x|) / |x|.
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int at = 16 * h + 8 * half + g;
            float along_q = 0.f, along_k = 0.f;
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    int d = at * LDK + d0 + 8 * n + 2 * t + i;
                    along_q += widen(m.q[d]) * dq[h][n][2 * half + i], along_k += widen(m.k[d]) * dk[h][n][2 * half + i];
                }
            along_q = over_row(along_q), along_k = over_row(along_k);
            if (t == 0) parts.along_q[warp][at] = along_q, parts.along_k[warp][at] = along_k;
        }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int at = 16 * h + 8 * half + g;
            if (at >= count) continue;
            auto sum4 = [&](float (*p)[CHUNK], float f) { return ((p[0][at] + p[1][at]) + (p[2][at] + p[3][at])) * f * f; };
            float aq = sum4(parts.along_q, inverse_q[at]), ak = sum4(parts.along_k, inverse_k[at]);
            elem *to = io.d_qkv + (row + at) * r.width() + key * r.D;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                int d = d0 + 8 * n + 2 * t;
                if (d >= r.D) continue;
                const elem *u = m.q + at * LDK + d, *w = m.k + at * LDK + d;
                store2(to + d, dq[h][n][2 * half] - aq * widen(u[0]), dq[h][n][2 * half + 1] - aq * widen(u[1]));
                store2(to + r.K * r.D + d, dk[h][n][2 * half] - ak * widen(w[0]), dk[h][n][2 * half + 1] - ak * widen(w[1]));
            }
        }
    __syncthreads();
}

#define FORM(COLS)                                                                                                                         \
    extern "C" __global__ void __launch_bounds__(Stage<COLS>::WORKERS + Stage<COLS>::FEEDERS, COLS == 64 ? BLOCKS : 1) gated_delta_carry_##COLS( \
        elem *d_qkv, kept *grads, const float *behind, float *before, const Prepared *prepared, const elem *d_o, int from, int to, RULE) { \
        carry<COLS>(d_qkv, grads, behind, before, prepared, d_o, RULE_OF(from, to));                                                       \
    }
FORM(64)
FORM(32)

extern "C" __global__ void __launch_bounds__(128) gated_delta_gradients(elem *d_qkv, elem *d_b, elem *d_a, const elem *d_o, const kept *states, const kept *grads, const Prepared *prepared, int window, RULE) {
    Rule r = RULE_OF(window, M);
    int from = window + blockIdx.x * CHUNK, to = min(from + CHUNK, M), key = blockIdx.y, group = V / K;
    each_chunk(r, from, to, [&](int first, int end, int row) { chunk_gradients(Gradients{d_qkv, d_b, d_a, d_o, states, grads, prepared}, r, key, first, end, row); });
    int before = min(to, r.first(0)), behind = max(from, r.first(S));
    for (int part = 0; part < 2; part++) {
        int r0 = part ? behind : from, r1 = part ? to : before;
        clear_rows(d_qkv + key * D, r.width(), D, r0, r1, threadIdx.x, 128);
        clear_rows(d_qkv + (K + key) * D, r.width(), D, r0, r1, threadIdx.x, 128);
        clear_rows(d_qkv + r.value_at(key * group), r.width(), group * E, r0, r1, threadIdx.x, 128);
        clear_rows(d_b + key * group, V, group, r0, r1, threadIdx.x, 128);
        clear_rows(d_a + key * group, V, group, r0, r1, threadIdx.x, 128);
    }
}
