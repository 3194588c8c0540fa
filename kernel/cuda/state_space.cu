// state_space.cu: Mamba-2's selective state-space scan with its gate, token by token: S = a S + dt x B', y = (S C + skip x) silu(z); its gradient;
// and the scan over the next tokens of sequences, each with its state in a slot.
// Layout: parts, dparts [M, 2HP+2GN+H] elem: z [H,P], x [H,P], B [G,N], C [G,N], dt [H]; y, dy [M,HP] elem; bias, log_a, skip [H] fp32;
// cu, keys [S+1]; state [slots,H,P,N] fp32; sums [shares,M,2GN] fp32; read [M,H] fp32.
// A block of 256 takes a head of a sequence, whose state is in registers: a warp has every eighth row p, a lane every 32nd column n. TOK tokens
// come to shared memory at a time. Sums over n go through a warp, sums over p through shared memory; their order depends on the sizes alone.
// The gradient goes over a sequence twice: forward for dC = S'do, dz and read = do (S C), backward with G, the gradient of the state, for dB =
// G'(dt x), dx and dt. The gradient of a token's logarithm of a is the sum of read - (dt x)'(G B) over it and the tokens behind it, in fp64:
// no state is kept. A block takes a share of a group's heads one after the other and adds their dB and dC; state_space_sum adds the shares.
// Accumulation fp32. FLOPs a token and head: 5 P N, 13 P N backward. Bytes: parts and y once. Goal: half of the fp32 rate.
// Elements: bf16, f16, f32.
#include "sigmoid.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, TOK = 16, BATCH = 4 };

#define SCAN const elem *parts, const float *bias, const float *log_a, const float *skip, const int *cu, int M, int S, int H, int G, int P, int N, float least, float most
#define SCAN_OF Scan{parts, bias, log_a, skip, cu, M, S, H, G, P, N, least, most}

struct Scan {
    const elem *parts;
    const float *bias, *log_a, *skip;
    const int *cu;
    int M, S, H, G, P, N;
    float least, most;
    __device__ __forceinline__ int64_t width() const { return 2 * (int64_t)H * P + 2 * G * N + H; }
    __device__ __forceinline__ int first(int s) const { return min(cu[s], M); }
    // Columns of a row of parts.
    __device__ __forceinline__ int z(int head) const { return head * P; }
    __device__ __forceinline__ int x(int head) const { return (H + head) * P; }
    __device__ __forceinline__ int b(int head) const { return 2 * H * P + head / (H / G) * N; }
    __device__ __forceinline__ int c(int head) const { return b(head) + G * N; }
    __device__ __forceinline__ int step(int head) const { return 2 * H * P + 2 * G * N + head; }
    // dt of a raw step, and its slope.
    __device__ __forceinline__ float time(float raw, float &slope) const {
        float dt = fmaxf(raw, 0.f) + log1pf(expf(-fabsf(raw)));
        slope = dt < least || dt > most ? 0.f : 1.f / (1.f + expf(-raw));
        return fminf(fmaxf(dt, least), most);
    }
};

// The sums of K values over a warp: lane l gets that of v[l / (32 / K)].
template <int K>
__device__ __forceinline__ float across(float (&v)[K]) {
    int lane = threadIdx.x & 31, w = 16;
#pragma unroll
    for (int n = K / 2; n >= 1; n /= 2, w /= 2) {
        bool up = lane & w;
#pragma unroll
        for (int i = 0; i < n; i++) {
            float send = up ? v[i] : v[i + n], keep = up ? v[i + n] : v[i];
            v[i] = keep + __shfl_xor_sync(~0u, send, w);
        }
    }
    float sum = v[0];
#pragma unroll
    for (int rest = 32 / K / 2; rest >= 1; rest /= 2) sum += __shfl_xor_sync(~0u, sum, rest);
    return sum;
}

// TOK tokens of a head in shared memory; columns beyond N and rows beyond P are zeros. do is dy silu(z).
template <int PI, int NJ>
struct Stage {
    enum { PS = WARPS * PI, NS = 32 * NJ };
    float b[TOK][NS], c[TOK][NS], x[TOK][PS], z[TOK][PS], dy[TOK][PS], o[TOK][PS];
    float sums[BATCH][WARPS][NS];
    float dt[TOK], decay[TOK], slope[TOK], read[TOK], along[TOK];
    template <bool GRAD>
    __device__ __forceinline__ void load(const Scan &r, const elem *up, int head, int row, int count) {
        for (int i = threadIdx.x; i < TOK * NS; i += THREADS) {
            int t = i / NS, n = i % NS;
            const elem *from = r.parts + (row + t) * r.width();
            bool there = t < count && n < r.N;
            b[t][n] = there ? widen(from[r.b(head) + n]) : 0.f;
            c[t][n] = there ? widen(from[r.c(head) + n]) : 0.f;
        }
        for (int i = threadIdx.x; i < TOK * PS; i += THREADS) {
            int t = i / PS, p = i % PS;
            const elem *from = r.parts + (row + t) * r.width();
            bool there = t < count && p < r.P;
            x[t][p] = there ? widen(from[r.x(head) + p]) : 0.f;
            z[t][p] = there ? widen(from[r.z(head) + p]) : 0.f;
            if (GRAD) dy[t][p] = there ? widen(up[((int64_t)(row + t) * r.H + head) * r.P + p]) : 0.f;
        }
        if (threadIdx.x < TOK) {
            int t = threadIdx.x;
            float s = 0.f, step = t < count ? r.time(widen(r.parts[(row + t) * r.width() + r.step(head)]) + r.bias[head], s) : 0.f;
            dt[t] = step, slope[t] = s, decay[t] = expf(-expf(r.log_a[head]) * step);
        }
    }
    // Of a token's row p: do, and a warp's rows and a lane's columns.
    __device__ __forceinline__ float up(int t, int p) const { return dy[t][p] * z[t][p] * sigmoid(z[t][p]); }
    static __device__ __forceinline__ int row(int i) { return threadIdx.x / 32 + WARPS * i; }
    static __device__ __forceinline__ int column(int j) { return (threadIdx.x & 31) + 32 * j; }
    // o[t] of a warp's rows <- the sums of v over a warp.
    __device__ __forceinline__ void put(float (&v)[PI], int t) {
        float sum = across(v);
        int lane = threadIdx.x & 31;
        if (lane % (32 / PI) == 0) o[t][row(lane / (32 / PI))] = sum;
    }
    // Adds the warps' sums of tokens t0.. of a batch to a share's, or begins it.
    __device__ __forceinline__ void add(float *to, int64_t width, int N, int count, bool begin) const {
        for (int i = threadIdx.x; i < BATCH * N; i += THREADS) {
            int t = i / N, n = i % N;
            if (t >= count) continue;
            float sum = 0.f;
#pragma unroll
            for (int w = 0; w < WARPS; w++) sum += sums[t][w][n];
            to[t * width + n] = begin ? sum : to[t * width + n] + sum;
        }
    }
};

// Rows of a head's y that are in no sequence <- 0.
__device__ __forceinline__ void clear_outside(elem *y, const Scan &r, int head, int seq) {
    auto rows = [&](int from, int to) {
        for (int64_t i = threadIdx.x; i < (int64_t)max(0, to - from) * r.P; i += THREADS) y[((from + i / r.P) * r.H + head) * r.P + i % r.P] = narrow(0.f);
    };
    if (seq == 0) rows(0, r.first(0));
    if (seq >= r.S - 1) rows(r.first(r.S), r.M);
}

// The scan of rows first..end of a head, from a state or from zeros; the last state goes to it.
template <int PI, int NJ>
__device__ void scan(elem *y, float *state, bool earlier, const Scan &r, int head, int first, int end) {
    extern __shared__ __align__(16) char shared[];
    typedef Stage<PI, NJ> Stage;
    Stage &m = *(Stage *)shared;
    float s[PI][NJ], skip = r.skip[head];
#pragma unroll
    for (int i = 0; i < PI; i++)
#pragma unroll
        for (int j = 0; j < NJ; j++) s[i][j] = earlier && m.row(i) < r.P && m.column(j) < r.N ? state[m.row(i) * r.N + m.column(j)] : 0.f;
    for (int row = first; row < end; row += TOK) {
        int count = min((int)TOK, end - row);
        __syncthreads();
        m.template load<false>(r, 0, head, row, count);
        __syncthreads();
        for (int t = 0; t < count; t++) {
            float b[NJ], c[NJ], o[PI], a = m.decay[t], dt = m.dt[t];
#pragma unroll
            for (int j = 0; j < NJ; j++) b[j] = m.b[t][m.column(j)], c[j] = m.c[t][m.column(j)];
#pragma unroll
            for (int i = 0; i < PI; i++) {
                float u = dt * m.x[t][m.row(i)];
                o[i] = 0.f;
#pragma unroll
                for (int j = 0; j < NJ; j++) s[i][j] = fmaf(u, b[j], a * s[i][j]), o[i] = fmaf(s[i][j], c[j], o[i]);
            }
            m.put(o, t);
        }
        __syncthreads();
        for (int i = threadIdx.x; i < count * r.P; i += THREADS) {
            int t = i / r.P, p = i % r.P;
            float z = m.z[t][p];
            y[((int64_t)(row + t) * r.H + head) * r.P + p] = narrow((m.o[t][p] + skip * m.x[t][p]) * z * sigmoid(z));
        }
    }
    if (!state) return;
#pragma unroll
    for (int i = 0; i < PI; i++)
#pragma unroll
        for (int j = 0; j < NJ; j++)
            if (m.row(i) < r.P && m.column(j) < r.N) state[m.row(i) * r.N + m.column(j)] = s[i][j];
}

template <int PI, int NJ>
__device__ void forward(elem *y, const Scan r) {
    int seq = blockIdx.x, head = blockIdx.y;
    clear_outside(y, r, head, seq);
    if (seq < r.S) scan<PI, NJ>(y, 0, false, r, head, r.first(seq), r.first(seq + 1));
}

template <int PI, int NJ>
__device__ void cached(elem *y, float *state, const int *keys, int slots, int tokens, const Scan r) {
    int seq = blockIdx.x, head = blockIdx.y;
    clear_outside(y, r, head, seq);
    if (seq >= r.S) return;
    int first = r.first(seq), end = r.first(seq + 1), slot = keys[seq] / tokens;
    if (first >= end || slot >= slots) return;
    scan<PI, NJ>(y, state + ((int64_t)slot * r.H + head) * r.P * r.N, keys[seq + 1] - keys[seq] > end - first, r, head, first, end);
}

// dz, read and the share's dC.
template <int PI, int NJ>
__device__ void grad_forward(elem *dparts, float *sums, float *read, const elem *dy, const Scan r) {
    extern __shared__ __align__(16) char shared[];
    typedef Stage<PI, NJ> Stage;
    Stage &m = *(Stage *)shared;
    int seq = blockIdx.x, group = blockIdx.y, share = blockIdx.z, each = r.H / r.G, shares = gridDim.z;
    if (seq >= r.S) return;
    int begin = share * each / shares, first = r.first(seq), end = r.first(seq + 1), lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    int64_t wide = 2 * (int64_t)r.G * r.N;
    float *to = sums + (int64_t)share * r.M * wide + (r.G + group) * r.N;
    for (int own = begin; own < (share + 1) * each / shares; own++) {
        int head = group * each + own;
        float s[PI][NJ], skip = r.skip[head];
#pragma unroll
        for (int i = 0; i < PI * NJ; i++) (&s[0][0])[i] = 0.f;
        for (int row = first; row < end; row += TOK) {
            int count = min((int)TOK, end - row);
            __syncthreads();
            m.template load<true>(r, dy, head, row, count);
            __syncthreads();
            for (int t0 = 0; t0 < count; t0 += BATCH) {
                for (int t = t0; t < min(count, t0 + BATCH); t++) {
                    float b[NJ], c[NJ], dc[NJ], o[PI], a = m.decay[t], dt = m.dt[t];
#pragma unroll
                    for (int j = 0; j < NJ; j++) b[j] = m.b[t][m.column(j)], c[j] = m.c[t][m.column(j)], dc[j] = 0.f;
#pragma unroll
                    for (int i = 0; i < PI; i++) {
                        float u = dt * m.x[t][m.row(i)], up = m.up(t, m.row(i));
                        o[i] = 0.f;
#pragma unroll
                        for (int j = 0; j < NJ; j++) {
                            s[i][j] = fmaf(u, b[j], a * s[i][j]);
                            o[i] = fmaf(s[i][j], c[j], o[i]), dc[j] = fmaf(s[i][j], up, dc[j]);
                        }
                    }
                    m.put(o, t);
#pragma unroll
                    for (int j = 0; j < NJ; j++) m.sums[t - t0][warp][m.column(j)] = dc[j];
                }
                __syncthreads();
                m.add(to + (row + t0) * wide, wide, r.N, count - t0, own == begin);
                __syncthreads();
            }
            for (int t = warp; t < count; t += WARPS) {
                float sum = 0.f;
                for (int p = lane; p < r.P; p += 32) {
                    float z = m.z[t][p], g = sigmoid(z);
                    sum = fmaf(m.up(t, p), m.o[t][p], sum);
                    dparts[(row + t) * r.width() + r.z(head) + p] = narrow(m.dy[t][p] * (m.o[t][p] + skip * m.x[t][p]) * g * (1.f + z * (1.f - g)));
                }
                sum = warp_sum(sum);
                if (lane == 0) read[(int64_t)(row + t) * r.H + head] = sum;
            }
        }
    }
}

// dx, dt and the share's dB.
template <int PI, int NJ>
__device__ void grad_backward(elem *dparts, float *sums, const float *read, const elem *dy, const Scan r) {
    extern __shared__ __align__(16) char shared[];
    typedef Stage<PI, NJ> Stage;
    Stage &m = *(Stage *)shared;
    int seq = blockIdx.x, group = blockIdx.y, share = blockIdx.z, each = r.H / r.G, shares = gridDim.z;
    if (seq >= r.S) return;
    int begin = share * each / shares, first = r.first(seq), end = r.first(seq + 1), lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    int64_t wide = 2 * (int64_t)r.G * r.N;
    float *to = sums + (int64_t)share * r.M * wide + group * r.N;
    for (int own = begin; own < (share + 1) * each / shares; own++) {
        int head = group * each + own;
        float g[PI][NJ], skip = r.skip[head], rate = expf(r.log_a[head]);
        double behind = 0.;   // of read - (dt x)'(G B) over the tokens that were gone through; of thread 0
#pragma unroll
        for (int i = 0; i < PI * NJ; i++) (&g[0][0])[i] = 0.f;
        for (int stop = end; stop > first; stop -= TOK) {
            int row = max(first, stop - (int)TOK), count = stop - row;
            __syncthreads();
            m.template load<true>(r, dy, head, row, count);
            if (threadIdx.x < count) m.read[threadIdx.x] = read[(int64_t)(row + threadIdx.x) * r.H + head];
            __syncthreads();
            for (int stop0 = count; stop0 > 0; stop0 -= BATCH) {
                int t0 = max(0, stop0 - (int)BATCH);
                for (int t = stop0 - 1; t >= t0; t--) {
                    float b[NJ], c[NJ], db[NJ], o[PI], a = m.decay[t], dt = m.dt[t];
#pragma unroll
                    for (int j = 0; j < NJ; j++) b[j] = m.b[t][m.column(j)], c[j] = m.c[t][m.column(j)], db[j] = 0.f;
#pragma unroll
                    for (int i = 0; i < PI; i++) {
                        float u = dt * m.x[t][m.row(i)], up = m.up(t, m.row(i));
                        o[i] = 0.f;
#pragma unroll
                        for (int j = 0; j < NJ; j++) {
                            float x = fmaf(up, c[j], g[i][j]);
                            o[i] = fmaf(x, b[j], o[i]), db[j] = fmaf(x, u, db[j]);
                            g[i][j] = a * x;
                        }
                    }
                    m.put(o, t);
#pragma unroll
                    for (int j = 0; j < NJ; j++) m.sums[t - t0][warp][m.column(j)] = db[j];
                }
                __syncthreads();
                m.add(to + (row + t0) * wide, wide, r.N, stop0 - t0, own == begin);
                __syncthreads();
            }
            for (int t = warp; t < count; t += WARPS) {
                float sum = 0.f;
                for (int p = lane; p < r.P; p += 32) {
                    sum = fmaf(m.x[t][p], m.o[t][p], sum);
                    dparts[(row + t) * r.width() + r.x(head) + p] = narrow(skip * m.up(t, p) + m.dt[t] * m.o[t][p]);
                }
                sum = warp_sum(sum);
                if (lane == 0) m.along[t] = sum;
            }
            __syncthreads();
            if (threadIdx.x == 0)
                for (int t = count - 1; t >= 0; t--) {
                    behind += (double)m.read[t] - (double)m.dt[t] * m.along[t];
                    dparts[(row + t) * r.width() + r.step(head)] = narrow((float)(m.along[t] - rate * behind) * m.slope[t]);
                }
        }
    }
}

#define FORMS(NAME, PI, NJ)                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS) state_space_forward_##NAME(elem *y, SCAN) { forward<PI, NJ>(y, SCAN_OF); }                     \
    extern "C" __global__ void __launch_bounds__(THREADS) state_space_cached_##NAME(elem *y, float *state, const int *keys, int slots, int tokens, SCAN) { \
        cached<PI, NJ>(y, state, keys, slots, tokens, SCAN_OF);                                                                                          \
    }                                                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS) state_space_grad_forward_##NAME(elem *dparts, float *sums, float *read, const elem *dy, SCAN) { \
        grad_forward<PI, NJ>(dparts, sums, read, dy, SCAN_OF);                                                                                           \
    }                                                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS) state_space_grad_backward_##NAME(elem *dparts, float *sums, const float *read, const elem *dy, SCAN) { \
        grad_backward<PI, NJ>(dparts, sums, read, dy, SCAN_OF);                                                                                          \
    }
FORMS(64_128, 8, 4)
FORMS(64_256, 8, 8)
FORMS(128_128, 16, 4)

// dparts' columns of B and C <- the sums of the shares, in order; rows in no sequence <- 0.
extern "C" __global__ void __launch_bounds__(256) state_space_sum(elem *dparts, const float *sums, int shares, SCAN) {
    Scan r = SCAN_OF;
    int64_t wide = 2 * (int64_t)G * N, from = 2 * (int64_t)H * P, W = r.width();
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < M * W; i += (int64_t)gridDim.x * blockDim.x) {
        int64_t t = i / W, column = i % W - from;
        if (t < r.first(0) || t >= r.first(S)) {
            dparts[i] = narrow(0.f);
        } else if (column >= 0 && column < wide) {
            float sum = 0.f;
            for (int share = 0; share < shares; share++) sum += sums[(share * (int64_t)M + t) * wide + column];
            dparts[i] = narrow(sum);
        }
    }
}
