// kvappend.cu: cache[at[t]] = rows[t] in place; rows whose place is outside of the cache are dropped.
// Layout: cache [P,W] elem, rows [T,W] elem, at [T] int32. One block a row, 16 bytes a thread where W is a multiple of 8.
// Bytes: 4 a value. Goal: latency; a call moves a few rows.
// Elements: bf16, f16, f32.
#include "common.cuh"
#include "early.cuh"

// Grid T.
extern "C" __global__ void __launch_bounds__(256) kvappend_rows(elem *cache, const elem *rows, const int *at, int P, int W) {
    let_next_begin();
    wait_for_earlier();
    int64_t to = at[blockIdx.x];
    if (to < 0 || to >= P) return;
    cache += to * W;
    rows += (int64_t)blockIdx.x * W;
    if (W % 8 == 0) {
        for (int w = threadIdx.x * 8; w < W; w += blockDim.x * 8) store8(cache + w, load8(rows + w));
    } else {
        for (int w = threadIdx.x; w < W; w += blockDim.x) cache[w] = rows[w];
    }
}
