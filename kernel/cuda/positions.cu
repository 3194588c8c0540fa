// positions.cu: the positions of tokens, moved by an offset where their sequence is longer than a limit.
// Layout: moved, positions [M] int32, of tokens first and on; cu [S+1] int32 row numbers where sequences start, rising, entries may repeat. A thread takes a
// token and finds its sequence by bisection. Grid-stride.
// Bytes: 8 a token. Goal: latency; a call a step.
#include "common.cuh"

// Grid: any; block: any.
extern "C" __global__ void __launch_bounds__(256) positions_by_length(int *moved, const int *positions, const int *cu, int M, int S, int limit, int offset,
                                                                      int first) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < M; i += gridDim.x * blockDim.x) {
        int lo = 0, hi = S + 1;   // the first entry above first + i is in [lo, hi]
        while (lo < hi) {
            int mid = (lo + hi) / 2;
            if (cu[mid] <= first + i) lo = mid + 1;
            else hi = mid;
        }
        bool inside = lo > 0 && lo <= S;
        moved[i] = positions[i] + (inside && cu[lo] - cu[lo - 1] > limit ? offset : 0);
    }
}
