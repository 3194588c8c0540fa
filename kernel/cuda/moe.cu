// moe.cu: a router's choice of K of E experts for every token, the order of the tokens' slots by expert, and what moves between tokens [M]
// and sorted slots [M K].
// Layout: logits, dlogits [M,E] elem; weights, dw [M,K] fp32; experts, rows [M,K], source [M K], starts [E+1] int32; x, y elem packed rows.
// rows: the sorted row of each slot, source: the slot of each sorted row. E at most 1024, K at most 64. real [M] int32 or null: 0 where a
// token is padding; its slots have row -1, and sorted rows from starts[E] on have slot -1.
// Rows of logits, and sums over a row, are a warp's, 8 a block. Sorting counts the slots of each expert in pieces of 256, adds the counts up
// in their order and ranks each piece's slots: stable, without a race. Accumulation fp32, in the order of the slots. Bytes: gather 4 a
// value of y, sum 2 + 2 K a value. Goal: 85 % of copy.
// Elements: bf16, f16, f32.
#include "moe.cuh"
#include "walk.cuh"

enum { WARPS = 8, PIECE = 256 };

// Block 256, dynamic shared memory WARPS E fp32.
extern "C" __global__ void __launch_bounds__(256) moe_route(float *weights, int *experts, const elem *logits, int M, int E, int K, int normalise) {
    extern __shared__ float shared[];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, m = blockIdx.x * WARPS + warp;
    float *row = shared + warp * E;
    if (m >= M) return;
    for (int i = lane; i < E; i += 32) row[i] = widen(logits[(int64_t)m * E + i]);
    __syncwarp();
    Choice choice(row, E);
    float top = 0.f, chosen = 0.f, mine[2] = {0.f, 0.f};
    int index[2] = {0, 0};
    for (int k = 0; k < K; k++) {
        int e = choice.next();
        if (k == 0) top = row[e];
        float p = expf(row[e] - top);
        chosen += p;
        if (k % 32 == lane) mine[k / 32] = p, index[k / 32] = e;
    }
    float sum = normalise ? chosen : exp_sum(row, E, top);
#pragma unroll
    for (int j = 0; j < 2; j++) {
        int k = 32 * j + lane;
        if (k < K) weights[(int64_t)m * K + k] = mine[j] / sum, experts[(int64_t)m * K + k] = index[j];
    }
}

// Block 256, dynamic shared memory WARPS 2 E fp32.
extern "C" __global__ void __launch_bounds__(256) moe_route_grad(elem *dlogits, const elem *logits, const int *experts, const float *dw, int M, int E, int K, int normalise) {
    extern __shared__ float shared[];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, m = blockIdx.x * WARPS + warp;
    float *row = shared + warp * 2 * E, *d = row + E;   // logits; dw of the chosen
    if (m >= M) return;
    for (int i = lane; i < E; i += 32) row[i] = widen(logits[(int64_t)m * E + i]), d[i] = 0.f;
    __syncwarp();
    experts += (int64_t)m * K, dw += (int64_t)m * K;
    float top = row[experts[0]], sum = 0.f, mean = 0.f;
    for (int k = lane; k < K; k += 32) {
        float p = expf(row[experts[k]] - top);
        sum += p;
        mean += p * dw[k];
        d[experts[k]] = dw[k];
    }
    sum = warp_sum(sum), mean = warp_sum(mean);
    __syncwarp();
    uint32_t taken = 0;
    for (int k = 0; k < K; k++)
        if ((experts[k] & 31) == lane) taken |= 1u << (experts[k] >> 5);
    if (!normalise) sum = exp_sum(row, E, top);
    mean /= sum;
    for (int i = lane, bit = 0; i < E; i += 32, bit++) {
        bool part = !normalise || taken >> bit & 1;
        dlogits[(int64_t)m * E + i] = narrow(part ? expf(row[i] - top) / sum * (d[i] - mean) : 0.f);
    }
}

// The expert of slot i, E where there is none or it is padding's.
__device__ __forceinline__ int expert_of(const int *experts, const int *real, int i, int n, int E, int K) {
    return i < n && (!real || real[i / K]) ? experts[i] : E;
}

// Each warp's slots of each expert, count [WARPS][E], and how many lanes before this one have its expert; expert: this lane's, E where
// there is no slot.
__device__ __forceinline__ int count_piece(int *count, int expert, int E) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    for (int k = threadIdx.x; k < WARPS * E; k += PIECE) count[k] = 0;
    __syncthreads();
    uint32_t same = __match_any_sync(~0u, expert);
    int before = __popc(same & ((1u << lane) - 1));
    if (expert < E && before == 0) count[warp * E + expert] = __popc(same);
    __syncthreads();
    return before;
}

// counts [pieces][E] <- slots of each expert in each piece. Grid: pieces, block PIECE, dynamic shared memory WARPS E int32.
extern "C" __global__ void __launch_bounds__(256) moe_count(int *counts, const int *experts, const int *real, int n, int E, int K) {
    extern __shared__ int count[];
    count_piece(count, expert_of(experts, real, blockIdx.x * PIECE + threadIdx.x, n, E, K), E);
    for (int e = threadIdx.x; e < E; e += PIECE) {
        int sum = 0;
        for (int w = 0; w < WARPS; w++) sum += count[w * E + e];
        counts[(int64_t)blockIdx.x * E + e] = sum;
    }
}

// starts, and counts <- the sorted row of each piece's first slot of each expert. One block of 1024.
extern "C" __global__ void __launch_bounds__(1024) moe_offsets(int *starts, int *counts, int pieces, int E) {
    __shared__ int part[32];
    int e = threadIdx.x, lane = e & 31, all = 0;
    if (e < E)
        for (int p = 0; p < pieces; p++) all += counts[(int64_t)p * E + e];
    int sum = all;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        int below = __shfl_up_sync(~0u, sum, o);
        if (lane >= o) sum += below;
    }
    if (lane == 31) part[e >> 5] = sum;
    __syncthreads();
    for (int w = 0; w < e >> 5; w++) sum += part[w];
    if (e >= E) return;
    int at = sum - all;
    starts[e] = at;
    if (e == E - 1) starts[E] = sum;
    for (int p = 0; p < pieces; p++) {
        int c = counts[(int64_t)p * E + e];
        counts[(int64_t)p * E + e] = at;
        at += c;
    }
}

// Grid: pieces, block PIECE, dynamic shared memory WARPS E int32.
extern "C" __global__ void __launch_bounds__(256) moe_place(int *rows, int *source, const int *experts, const int *real, const int *counts, const int *starts, int n, int E, int K) {
    extern __shared__ int count[];
    int warp = threadIdx.x >> 5, i = blockIdx.x * PIECE + threadIdx.x, e = expert_of(experts, real, i, n, E, K);
    int before = count_piece(count, e, E);
    for (int k = threadIdx.x; k < E; k += PIECE) {
        int at = counts[(int64_t)blockIdx.x * E + k];
        for (int w = 0; w < WARPS; w++) {
            int c = count[w * E + k];
            count[w * E + k] = at;
            at += c;
        }
    }
    __syncthreads();
    if (i >= n) return;
    if (i >= starts[E]) source[i] = -1;
    if (e == E) {
        rows[i] = -1;
        return;
    }
    int row = count[warp * E + e] + before;
    rows[i] = row;
    source[row] = i;
}

// y[r] <- x[source[r] / K], 0 where row r has no slot, S rows of C. Flat over groups of 8 where C allows it, else over values.
extern "C" __global__ void __launch_bounds__(256) moe_gather(elem *y, const elem *x, const int *source, int S, int C, int K) {
    int wide = C % 8 == 0 ? 8 : 1;
    for (walk w(C / wide); w.row < S; w.next()) {
        int s = source[w.row];
        const elem *from = x + (int64_t)(s / K) * C + w.at * wide;
        elem *to = y + (int64_t)w.row * C + w.at * wide;
        if (wide == 8) store8(to, s < 0 ? fill8(0) : load8(from));
        else *to = s < 0 ? narrow(0.f) : *from;
    }
}

// y[t] <- sum of x[rows[t][k]] over k, 0 where t's slots have no rows, M rows of C. Flat as moe_gather.
extern "C" __global__ void __launch_bounds__(256) moe_sum(elem *y, const elem *x, const int *rows, int M, int C, int K) {
    constexpr int AHEAD = 4;   // loads under way at once
    int wide = C % 8 == 0 ? 8 : 1;
    for (walk w(C / wide); w.row < M; w.next()) {
        const int *slots = rows + (int64_t)w.row * K;
        const elem *from = x + w.at * wide;
        float sum[8] = {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f};
        int n = slots[0] < 0 ? 0 : K;
        if (wide == 8) {
            for (int k = 0; k < n; k += AHEAD) {
                Eight<elem> v[AHEAD];
#pragma unroll
                for (int j = 0; j < AHEAD; j++)
                    if (k + j < n) v[j] = load8_stream(from + (int64_t)slots[k + j] * C);
#pragma unroll
                for (int j = 0; j < AHEAD; j++) {
                    if (k + j >= n) break;
                    float f[8];
                    unpack(v[j], f);
#pragma unroll
                    for (int i = 0; i < 8; i++) sum[i] += f[i];
                }
            }
            store8(y + (int64_t)w.row * C + w.at * 8, pack<elem>(sum));
        } else {
            for (int k = 0; k < n; k++) sum[0] += widen(from[(int64_t)slots[k] * C]);
            y[(int64_t)w.row * C + w.at] = narrow(sum[0]);
        }
    }
}

// y[r] <- x[r] weights[source[r]], 0 where row r has no slot, S rows of F; y may be x. Flat as moe_gather.
extern "C" __global__ void __launch_bounds__(256) moe_scale(elem *y, const elem *x, const float *weights, const int *source, int S, int F) {
    int wide = F % 8 == 0 ? 8 : 1;
    for (walk w(F / wide); w.row < S; w.next()) {
        int64_t at = (int64_t)w.row * F + w.at * wide;
        int s = source[w.row];
        if (wide == 8) {
            Eight<elem> v = load8(x + at);   // under way before the weight is known
            float by = s < 0 ? 0.f : weights[s], f[8];
            unpack(v, f);
#pragma unroll
            for (int j = 0; j < 8; j++) f[j] = s < 0 ? 0.f : f[j] * by;
            store8(y + at, pack<elem>(f));
        } else {
            y[at] = narrow(s < 0 ? 0.f : widen(x[at]) * weights[s]);
        }
    }
}

// dw[s] <- sum of x[rows[s]] dy[rows[s]], 0 where slot s has no row, n slots of F values. A warp a slot.
extern "C" __global__ void __launch_bounds__(256) moe_scale_grad(float *dw, const elem *x, const elem *dy, const int *rows, int n, int F) {
    int s = blockIdx.x * WARPS + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (s >= n) return;
    int row = rows[s];
    if (row < 0) {
        if (lane == 0) dw[s] = 0.f;
        return;
    }
    const elem *a = x + (int64_t)row * F, *b = dy + (int64_t)row * F;
    float sum = 0.f;
    if (F % 8 == 0) {
        for (int i = lane * 8; i < F; i += 256) {
            float u[8], v[8];
            unpack(load8(a + i), u);
            unpack(load8(b + i), v);
#pragma unroll
            for (int j = 0; j < 8; j++) sum = fmaf(u[j], v[j], sum);
        }
    } else {
        for (int i = lane; i < F; i += 32) sum = fmaf(widen(a[i]), widen(b[i]), sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) dw[s] = sum;
}
