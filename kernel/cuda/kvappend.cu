// kvappend.cu: cache[at[t]] = rows[t] in place; rows whose place is outside of the cache are dropped. A row may have several places.
// Layout: cache [P,W] elem, rows [T,W] elem, at [T,C] int32. One block a row, 16 bytes a thread where W is a multiple of 8.
// Bytes: 4 a value. Goal: latency; a call moves a few rows.
// Elements: bf16, f16, f32.
#include "common.cuh"
#include "early.cuh"

// Grid T. Row t goes to the C places from at[t C] on.
extern "C" __global__ void __launch_bounds__(256) kvappend_rows(elem *cache, const elem *rows, const int *at, int P, int W, int C) {
    let_next_begin();
    wait_for_earlier();
    rows += (int64_t)blockIdx.x * W;
    for (int i = 0; i < C; i++) {
        int64_t to = at[(int64_t)blockIdx.x * C + i];
        if (to < 0 || to >= P) continue;
        elem *place = cache + to * W;
        if (W % 8 == 0) {
            for (int w = threadIdx.x * 8; w < W; w += blockDim.x * 8) store8(place + w, load8(rows + w));
        } else {
            for (int w = threadIdx.x; w < W; w += blockDim.x) place[w] = rows[w];
        }
    }
}
