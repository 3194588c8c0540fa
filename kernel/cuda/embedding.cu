// embedding.cu: y[m] = table[ids[m]], or that times a factor.
// Layout: table [V,C] elem, ids [M] int32, y [M,C] elem. One block a row, 16 bytes a thread where C is a multiple of 8.
// An id outside 0..V-1 makes its row NaN: the loss shows it instead of a wrong row being read.
// Bytes: 4 a value. Goal: 80 % of copy.
// Elements: bf16, f16, f32.
#include "common.cuh"
#include "early.cuh"

template <bool SCALED>
__device__ void gather(elem *y, const elem *table, const int *ids, int V, int C, float scale) {
    let_next_begin();
    wait_for_earlier();
    int id = ids[blockIdx.x];
    bool there = id >= 0 && id < V;
    y += (int64_t)blockIdx.x * C;
    table += (int64_t)(there ? id : 0) * C;
    elem none = narrow(NANF);
    if (C % 8 == 0) {
        for (int c = threadIdx.x * 8; c < C; c += blockDim.x * 8) {
            Eight<elem> v = load8(table + c);
            if (SCALED) {
                float f[8];
                unpack(v, f);
#pragma unroll
                for (int k = 0; k < 8; k++) f[k] *= scale;
                v = pack(f);
            }
            if (!there) v = fill8(~0u);   // eight NaN
            store8(y + c, v);
        }
    } else {
        for (int c = threadIdx.x; c < C; c += blockDim.x) y[c] = !there ? none : SCALED ? narrow(widen(table[c]) * scale) : table[c];
    }
}

// Grid M.
extern "C" __global__ void __launch_bounds__(256) embedding_gather(elem *y, const elem *table, const int *ids, int V, int C) { gather<false>(y, table, ids, V, C, 1.f); }

// The same times scale, rounded once. Grid M.
extern "C" __global__ void __launch_bounds__(256) embedding_gather_scaled(elem *y, const elem *table, const int *ids, int V, int C, float scale) {
    gather<true>(y, table, ids, V, C, scale);
}
