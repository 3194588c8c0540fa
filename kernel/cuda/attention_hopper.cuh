// attention_hopper.cuh: what the attention kernels for compute capability 9.0 share. Tiles lie as DP/64 boxes of 64 columns
// (hopper.cuh); the maps are three-dimensional: value of a head, head, row.
#pragma once
#include "attention.cuh"
#include "hopper.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Loads ROWS rows from `row` of one head as DP/64 boxes.
template <int DP, int ROWS>
__device__ __forceinline__ void load_boxes(uint32_t dst, const TensorMap *map, uint32_t barrier, int head, int row) {
#pragma unroll
    for (int j = 0; j < DP / 64; j++) copy_box(dst + j * ROWS * 128, map, barrier, j * 64, head, row);
}

// s[64,N] = A[64,DP] B[N,DP]^T; a: the warpgroup's first row in boxes of RA rows, b: first row in boxes of N rows.
template <int DP, int RA, int N>
__device__ __forceinline__ void scores(float (&s)[N / 2], uint32_t a, uint32_t b) {
    Wgmma<N, 0, 0, 1>::shared(s, operand(a), operand(b));
#pragma unroll
    for (int k = 1; k < DP / 16; k++) Wgmma<N, 0, 0, 0>::shared(s, operand(a + k / 4 * RA * 128 + k % 4 * 32), operand(b + k / 4 * N * 128 + k % 4 * 32));
}

// acc[64,DP] += P[64,N] B[N,DP]; P as packed by pack_rows, b: first row of B in boxes of N rows.
template <int DP, int N>
__device__ __forceinline__ void weighted(float (&acc)[DP / 2], const uint32_t (&p)[N / 4], uint32_t b) {
#pragma unroll
    for (int k = 0; k < N / 16; k++) Wgmma<DP, 0, 1, 0>::registers(acc, p + 4 * k, operand(b + k * 2048, N * 128));
}

// An accumulator as the elem left operand of the next GEMM: the layouts agree register by register.
template <int N>
__device__ __forceinline__ void pack_rows(uint32_t (&p)[N / 4], const float (&s)[N / 2]) {
#pragma unroll
    for (int i = 0; i < N / 4; i++) p[i] = pack2(s[2 * i], s[2 * i + 1]);
}

// Rows row and row+8 of a warpgroup's accumulator as elem; columns beyond D and rows beyond M are left out.
template <int DP>
__device__ __forceinline__ void store_head(elem *dst, const float (&acc)[DP / 2], float f0, float f1, int row, int M, int D, int64_t ld) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int r = row + 8 * h;
        if (r >= M) continue;
        float f = h ? f1 : f0;
#pragma unroll
        for (int j = 0; j < DP / 8; j++) {
            int c = j * 8 + lane % 4 * 2;
            if (c < D) *(uint32_t *)(dst + (int64_t)r * ld + c) = pack2(acc[4 * j + 2 * h] * f, acc[4 * j + 2 * h + 1] * f);
        }
    }
}
#endif
