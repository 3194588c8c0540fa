// gated_delta.cu: linear attention by the gated delta rule, and the states that its backward pass begins from.
// Layout: qkv [M, 2KD+VE], b, a [M,V], o [M,VE] elem; log_a, dt [V] fp32; cu [S+1]; kept [window/CHUNK+1, V, E, D]: bf16 where elem is,
// else fp32; behind, ahead [V,E,D] fp32; prepared [window,V]. D and E are multiples of 4, D is at most HEAD.
// A block takes one sequence's value head and COLS columns of it, 64, or 32 where that would be few blocks, through the chunks that begin
// in a window of rows. Two of its warps feed it: they copy the next chunks to shared memory, STAGES of them, and results from there. Each
// of the others holds the state of 16 columns in registers, as rows, and makes X, Y, its outputs and the next state of one another there
// (gated_delta_chunk.cuh): they wait for copies alone. Where a sequence goes on from the window before, its state is behind; where it goes
// on in the next, it is left ahead.
// gated_delta_states leaves queries and outputs out, and keeps the state before every chunk but a sequence's first, if it is to.
// Accumulation fp32. FLOPs a token and value head: 2 (3 D E + CHUNK 2 E), twice for numbers of two parts. Goal: a tenth of a layer's GEMMs.
// Elements: bf16, f16, f32.
#include "gated_delta_chunk.cuh"

template <bool QUERIES, int COLS>
__device__ void forward(elem *o, kept *states, const float *behind, float *ahead, const Prepared *prepared, const Rule r) {
    typedef Stage<COLS> Stage;
    extern __shared__ __align__(16) char shared[];
    int seq = blockIdx.x, v = blockIdx.y, e0 = blockIdx.z * COLS, first = r.first(seq), end = r.first(seq + 1), begin = r.chunk_from(first, r.from), stop = min(end, r.to);
    if (begin >= stop) return;
    int warp0 = threadIdx.x / 32 * 16;
    float state[HEAD / 8][4];
#pragma unroll
    for (int i = 0; i < HEAD / 2; i++) (&state[0][0])[i] = 0.f;
    if (begin > first && threadIdx.x < Stage::WORKERS)
        each_pair(r, e0 + warp0, [&](int n, int i, int64_t at) {
            *(float2 *)(state[n] + i) = *(const float2 *)(behind + (int64_t)v * r.D * r.E + at);
            if (states) store_kept(states + r.kept_at(begin, v) + at, state[n] + i);
        });
    auto load = [&](Stage *to, int row) { to->template load<QUERIES>(r, prepared, v, row, end - row, r.qkv + r.value_at(v), r.width(), e0); };
    auto compute = [&](Stage *now, int row) {
        float d[QUERIES ? 8 : 4][4], y[4][4], value[4][4];   // what the state says of keys, then X; what it says of queries; Y
#pragma unroll
        for (int i = 0; i < (QUERIES ? 32 : 16); i++) (&d[0][0])[i] = 0.f;
#pragma unroll
        for (int i = 0; i < 16; i++) (&y[0][0])[i] = 0.f;
        now->values(value);
#pragma unroll
        for (int l = 0; l < HEAD; l += 16) {
            Right b[QUERIES ? 4 : 2];
#pragma unroll
            for (int n = 0; n < (QUERIES ? 4 : 2); n++) b[n] = right<false>(n < 2 ? now->k : now->q, LDK, l, n % 2 * 16);
            Left a(state + l / 8);
            times_low(QUERIES ? d : y, a, b);
            times_high(d, a, b);
        }
        if (!QUERIES)   // the low parts' sums
#pragma unroll
            for (int i = 0; i < 16; i++) (&d[0][0])[i] += (&y[0][0])[i], (&y[0][0])[i] = 0.f;
        each_token([&](int i, int token, int) {
            float4 gate = *(const float4 *)now->gate[token];
            float &x = (&d[0][0])[i];
            x = gate.w * (&value[0][0])[i] - gate.x * x;
            if (QUERIES) (&d[QUERIES ? 4 : 0][0])[i] *= gate.y;
        });
        times_square<false>(y, d, now->t);
        if (QUERIES) {
            times_square<false>(d + (QUERIES ? 4 : 0), y, now->p);
            __syncwarp();   // outputs take the place of values
            each_token([&](int i, int token, int e) { now->value[token * now->LDV + warp0 + e] = narrow((&d[QUERIES ? 4 : 0][0])[i]); });
        }
        float whole = now->gate[min(CHUNK, end - row) - 1][DECAY];
#pragma unroll
        for (int i = 0; i < HEAD / 2; i++) (&state[0][0])[i] *= whole;
        each_token([&](int i, int token, int) { (&y[0][0])[i] *= now->gate[token][OF_REST]; });
#pragma unroll
        for (int l = 0; l < CHUNK; l += 16) {
            Left a(y + l / 8);
#pragma unroll
            for (int n = 0; n < HEAD; n += 64) {
                Right b[4];
#pragma unroll
                for (int i = 0; i < 4; i++) b[i] = right<true>(now->k, LDK, l, n + 16 * i);
                times(state + n / 8, a, b);
            }
        }
        int next = row + CHUNK;
        if (next < stop && states) {
            if (Stage::STATE_FITS)
                now->put_state(state);
            else
                each_pair(r, e0 + warp0, [&](int n, int i, int64_t at) { store_kept(states + r.kept_at(next, v) + at, state[n] + i); });
        }
        if (next >= stop && next < end && ahead)
            each_pair(r, e0 + warp0, [&](int n, int i, int64_t at) { *(float2 *)(ahead + (int64_t)v * r.D * r.E + at) = *(float2 *)(state[n] + i); });
    };
    through((Stage *)shared, begin, CHUNK, (stop - begin + CHUNK - 1) / CHUNK, load, compute, [&](Stage *from, int row) {
        if (QUERIES)
            copy_back<CHUNK, COLS, Stage::FEEDERS>(o + ((int64_t)row * r.V + v) * r.E + e0, (int64_t)r.V * r.E, from->value, from->LDV, end - row, r.E - e0, r.wide(), from->feeder());
        else if (Stage::STATE_FITS && states && row + CHUNK < stop)
            from->take_state(states + r.kept_at(row + CHUNK, v), r, e0);
    });
}

#define FORMS(COLS)                                                                                                                        \
    extern "C" __global__ void __launch_bounds__(Stage<COLS>::WORKERS + Stage<COLS>::FEEDERS, COLS == 64 ? BLOCKS : 1) gated_delta_forward_##COLS( \
        elem *o, const float *behind, float *ahead, const Prepared *prepared, int from, int to, RULE) { \
        forward<true, COLS>(o, 0, behind, ahead, prepared, RULE_OF(from, to));                                                             \
    }                                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(Stage<COLS>::WORKERS + Stage<COLS>::FEEDERS, COLS == 64 ? BLOCKS : 1) gated_delta_states_##COLS( \
        kept *states, const float *behind, float *ahead, const Prepared *prepared, int from, int to, RULE) { \
        forward<false, COLS>(0, states, behind, ahead, prepared, RULE_OF(from, to));                                                       \
    }
FORMS(64)
FORMS(32)
