// draw.cu: a place of each row that is drawn from the softmax of its numbers (draw), and its log-probability.
// Layout: x [M,N] fp32; draws [M,2] fp32, a random number from 0 up to 1 and one over the temperature; place [M] int32, -1 - i where number
// i of a row is the first that is not finite; logp [M] fp32.
// One block of 512 a row. A warp sums a segment of the row, a lane every 32nd number of it; segments are added in their order. The warp
// of the segment in which the running sum exceeds the wanted share walks it once more, 32 numbers at a time. So the result depends on the
// row and N alone. All sums and exponentials are fp64.
// Bytes: some 10 a number. Goal: 30 us a row of 128,000.
#include "common.cuh"

// Grid M, block 512.
extern "C" __global__ void __launch_bounds__(512) draw_rows(int *place, float *logp, const float *x, const float *draws, int N) {
    constexpr int NONE = 0x7fffffff, WARPS = 16;
    __shared__ float tops[WARPS];
    __shared__ int faults[WARPS];
    __shared__ double sums[WARPS];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    x += (int64_t)blockIdx.x * N;
    double share = draws[2 * blockIdx.x], by = draws[2 * blockIdx.x + 1];

    float top = -INF;
    int fault = NONE;
    for (int i = threadIdx.x; i < N; i += blockDim.x) {
        float v = x[i];
        if (!(fabsf(v) < INF)) fault = min(fault, i);
        top = fmaxf(top, v);
    }
    top = warp_max(top);
#pragma unroll
    for (int d = 16; d; d >>= 1) fault = min(fault, __shfl_xor_sync(~0u, fault, d));
    if (lane == 0) tops[warp] = top, faults[warp] = fault;
    __syncthreads();
    top = tops[lane % WARPS], fault = faults[lane % WARPS];
    top = warp_max(top);
#pragma unroll
    for (int d = 16; d; d >>= 1) fault = min(fault, __shfl_xor_sync(~0u, fault, d));
    if (fault != NONE) {
        if (threadIdx.x == 0) place[blockIdx.x] = -1 - fault, logp[blockIdx.x] = NANF;
        return;
    }

    int length = ((N + WARPS - 1) / WARPS + 31) / 32 * 32, from = warp * length, to = min(from + length, N);
    double sum = 0;
#pragma unroll 1
    for (int i = from + lane; i < to; i += 32) sum += exp(((double)x[i] - top) * by);
#pragma unroll
    for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(~0u, sum, d);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    double all = 0, before = 0;
    for (int i = 0; i < WARPS; i++) all += sums[i];
    double want = share * all;
    // The segment is the first whose end exceeds the share, or the last that holds any weight.
    int segment = 0;
    double running = 0;
    for (int i = 0; i < WARPS; i++) {
        if (sums[i] > 0) segment = i, before = running;
        running += sums[i];
        if (running > want) break;
    }
    if (warp != segment) return;
    int last = NONE; // the last place with a weight so far
#pragma unroll 1
    for (int i = from; i < to; i += 32) {
        double w = i + lane < to ? exp(((double)x[i + lane] - top) * by) : 0, upto = w;
#pragma unroll
        for (int d = 1; d < 32; d <<= 1) {
            double other = __shfl_up_sync(~0u, upto, d);
            if (lane >= d) upto += other;
        }
        unsigned past = __ballot_sync(~0u, before + upto > want), some = __ballot_sync(~0u, w > 0);
        if (past) {
            int first = __ffs(past) - 1;
            some &= first == 31 ? ~0u : (2u << first) - 1; // a place without weight is never drawn
            if (some) last = i + 31 - __clz(some);
            break;
        }
        if (some) last = i + 31 - __clz(some);
        before += __shfl_sync(~0u, upto, 31);
    }
    if (lane == 0) place[blockIdx.x] = last, logp[blockIdx.x] = (float)(((double)x[last] - top) * by - log(all));
}
