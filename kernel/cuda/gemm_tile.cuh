// gemm_tile.cuh: one block's tile of a GEMM by mma.sync, as gemm.cu's header has it.
#pragma once
#include "gemm.cuh"

// A stage's tile of one operand: ROWS x COLS values as stored, its 16-byte units permuted so that the 8 rows an ldmatrix reads
// lie in different banks. A thread always loads the same column of every HOP-th row, so an address is one addition away from
// the one before. HOP is a power of two: the permutation stays where it is 8 or more, else an exclusive-or of a constant turns it.
template <int ROWS, int COLS, int THREADS>
struct Operand {
    static constexpr int UNITS = COLS / 8, HOP = THREADS / UNITS;
    const elem *from;
    int64_t hop;
    int r, c;
    // Byte of the 16-byte unit u of row r.
    static __device__ __forceinline__ uint32_t at(int r, int u) { return r * COLS * 2 + (u ^ (UNITS >= 8 ? r & 7 : r >> 1 & 3)) * 16; }
    __device__ __forceinline__ Operand(const elem *src, int64_t ld, int row, int col) {
        r = threadIdx.x / UNITS;
        c = threadIdx.x % UNITS * 8;
        from = src + (row + r) * ld + col + c;
        hop = HOP * ld;
    }
    // Where the thread's j-th unit is, of which the permutation would have it at p.
    static __device__ __forceinline__ uint8_t *turned(uint8_t *dst, uint8_t *p, int j) { return HOP < 8 ? dst + ((p - dst) ^ (j * HOP & 7) * 16) : p; }
    // rows, cols: how many of the tile's are inside the matrix; ahead: values to add to the first tile's address.
    __device__ __forceinline__ void load(uint8_t *dst, int64_t ahead, int rows, int cols, bool aligned) const {
        const elem *p = from + ahead;
        uint8_t *unit = dst + at(r, c / 8);
#pragma unroll
        for (int j = 0; j < ROWS / HOP; j++, p += hop, unit += HOP * COLS * 2) {
            uint8_t *to = turned(dst, unit, j);
            bool valid = r + j * HOP < rows && c < cols;
            if (aligned) {
                cp16(smem(to), valid ? p : from, valid);
            } else {
                uint4 u = make_uint4(0, 0, 0, 0);
#pragma unroll
                for (int k = 0; k < 8; k++)
                    if (valid && c + k < cols) ((elem *)&u)[k] = p[k];
                *(uint4 *)to = u;
            }
        }
    }
};

// Operand whose row l is the row source[l] / per of a matrix of `tokens` rows, zero where it has none. Tiles are loaded one after the
// other from the first row on, ahead counts rows; an index is read a tile before its row.
template <int ROWS, int COLS, int THREADS>
struct GatheredOperand {
    typedef Operand<ROWS, COLS, THREADS> Tile;
    static constexpr int UNITS = Tile::UNITS, HOP = Tile::HOP;
    const elem *from;
    const int *source;
    int64_t ld;
    int per, tokens, r, c, next[ROWS / HOP];
    __device__ __forceinline__ GatheredOperand(const elem *x, int64_t ld, const int *source, int per, int tokens, int rows, int col) : source(source), ld(ld), per(per), tokens(tokens) {
        r = threadIdx.x / UNITS;
        c = threadIdx.x % UNITS * 8;
        from = x + col + c;
        look(0, rows);
    }
    __device__ __forceinline__ void look(int64_t ahead, int rows) {
#pragma unroll
        for (int j = 0; j < ROWS / HOP; j++) next[j] = r + j * HOP < rows ? source[ahead + r + j * HOP] : -1;
    }
    __device__ __forceinline__ void load(uint8_t *dst, int64_t ahead, int rows, int cols, bool aligned) {
        uint8_t *unit = dst + Tile::at(r, c / 8);
#pragma unroll
        for (int j = 0; j < ROWS / HOP; j++, unit += HOP * COLS * 2) {
            uint8_t *to = Tile::turned(dst, unit, j);
            int token = next[j] / per;
            bool valid = next[j] >= 0 && token < tokens && c < cols;
            const elem *p = valid ? from + token * ld : from;
            if (aligned) {
                cp16(smem(to), p, valid);
            } else {
                uint4 u = make_uint4(0, 0, 0, 0);
#pragma unroll
                for (int k = 0; k < 8; k++)
                    if (valid && c + k < cols) ((elem *)&u)[k] = p[k];
                *(uint4 *)to = u;
            }
        }
        look(ahead + ROWS, rows - ROWS);
    }
};

// D's tile at row0, col0 over the inner values k0 to k1; D begins at element out0 of out and is fp32 where f32 says so. Block 32 WARPS_M WARPS_N, dynamic shared memory
// STAGES stages of 2 BK (BM + BN) bytes; BK and STAGES change no order of sums.
// ob loads the tiles of b, whose rows lie ldb of what it counts in apart; fb: by 16 bytes at once.
template <bool TA, bool TB, int BM, int BN, int WARPS_M, int WARPS_N, int BK = 32, int STAGES = 4, class B>
__device__ __forceinline__ void gemm_tile_of(void *out, int64_t out0, const elem *a, B ob, bool fb, int M, int N, int row0, int col0, int k0, int k1, int64_t lda, int64_t ldb, int64_t ldd,
                                             float alpha, float beta, bool f32) {
    constexpr int THREADS = 32 * WARPS_M * WARPS_N, MT = BM / WARPS_M / 16, NT = BN / WARPS_N / 8;
    constexpr int SIZE_A = BM * BK * 2, SIZE_B = BN * BK * 2;
    typedef Operand<TA ? BK : BM, TA ? BM : BK, THREADS> OperandA;
    typedef Operand<TB ? BN : BK, TB ? BK : BN, THREADS> OperandB;
    extern __shared__ __align__(1024) uint8_t shared[];
    int steps = max(0, (k1 - k0 + BK - 1) / BK);
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, wm = warp % WARPS_M * 16 * MT, wn = warp / WARPS_M * 8 * NT;
    bool fa = (((uint64_t)a & 15) | (lda & 7) | ((TA ? M : k1) & 7)) == 0;
    OperandA oa(a, lda, TA ? k0 : row0, TA ? row0 : k0);
    auto load = [&](int s) {
        uint8_t *at = shared + s % STAGES * (SIZE_A + SIZE_B);
        int left = k1 - k0 - s * BK;
        oa.load(at, TA ? s * BK * lda : s * BK, TA ? left : M - row0, TA ? M - row0 : left, fa);
        ob.load(at + SIZE_A, TB ? s * BK : s * BK * ldb, TB ? N - col0 : left, TB ? left : N - col0, fb);
    };
    // This lane's ldmatrix addresses inside a stage; steps along a row of units are exclusive-ors.
    uint32_t pa = TA ? OperandA::at((lane & 7) + (lane >> 4) * 8, wm / 8 + (lane >> 3 & 1)) : OperandA::at(wm + (lane & 15), lane >> 4);
    uint32_t pb = TB ? OperandB::at(wn + (lane & 7) + (lane >> 4) * 8, lane >> 3 & 1) : OperandB::at((lane & 7) + (lane >> 3 & 1) * 8, wn / 8 + (lane >> 4));
    uint32_t ra[2][MT][4], rb[2][NT / 2][4];
    auto fetch = [&](int s, int k, int to) { // the values of step k of 16 of stage s
        uint32_t sa = smem(shared) + s % STAGES * (SIZE_A + SIZE_B), sb = sa + SIZE_A;
#pragma unroll
        for (int i = 0; i < MT; i++) {
            if (TA) ldmatrix4t(ra[to][i], sa + (pa ^ i * 32) + k * 16 * BM * 2);
            else ldmatrix4(ra[to][i], sa + (pa ^ k * 32) + i * 16 * BK * 2);
        }
#pragma unroll
        for (int j = 0; j < NT / 2; j++) {
            if (TB) ldmatrix4(rb[to][j], sb + (pb ^ k * 32) + j * 16 * BK * 2);
            else ldmatrix4t(rb[to][j], sb + (pb ^ j * 32) + k * 16 * BN * 2);
        }
    };
    float acc[MT][NT][4];
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++) acc[i][j][0] = acc[i][j][1] = acc[i][j][2] = acc[i][j][3] = 0.f;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) load(s);
        cp_commit();
    }
    cp_wait<STAGES - 2>();
    __syncthreads();
    if (steps > 0) fetch(0, 0, 0);
    for (int s = 0; s < steps; s++) {
        if (s + STAGES - 1 < steps) load(s + STAGES - 1); // over the stage that all left at the last barrier
        cp_commit();
#pragma unroll
        for (int k = 0; k < BK / 16; k++) {
            if (k + 1 < BK / 16) {
                fetch(s, k + 1, (k + 1) % 2);
            } else {
                cp_wait<STAGES - 2>();
                __syncthreads();
                if (s + 1 < steps) fetch(s + 1, 0, (k + 1) % 2);
            }
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < NT; j++) mma(acc[i][j], ra[k % 2][i], rb[k % 2][j / 2][j % 2 * 2], rb[k % 2][j / 2][j % 2 * 2 + 1]);
        }
    }
    cp_wait<0>();
    float *o32 = (float *)out;
    elem *o16 = (elem *)out;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int r = row0 + wm + i * 16 + h * 8 + lane / 4;
            if (r >= M) continue;
            store_row<NT>(o32, o16, f32, beta, out0 + r * ldd, col0 + wn, N, [&](int j, int e) { return alpha * acc[i][j][2 * h + e]; });
        }
}

// The same with b [k1,N], or of TB [N,k1], in rows of ldb.
template <bool TA, bool TB, int BM, int BN, int WARPS_M, int WARPS_N, int BK = 32, int STAGES = 4>
__device__ void gemm_tile(void *out, int64_t out0, const elem *a, const elem *b, int M, int N, int row0, int col0, int k0, int k1, int64_t lda, int64_t ldb, int64_t ldd,
                          float alpha, float beta, bool f32) {
    bool fb = (((uint64_t)b & 15) | (ldb & 7) | ((TB ? k1 : N) & 7)) == 0;
    Operand<TB ? BN : BK, TB ? BK : BN, 32 * WARPS_M * WARPS_N> ob(b, ldb, TB ? col0 : k0, TB ? k0 : col0);
    gemm_tile_of<TA, TB, BM, BN, WARPS_M, WARPS_N, BK, STAGES>(out, out0, a, ob, fb, M, N, row0, col0, k0, k1, lda, ldb, ldd, alpha, beta, f32);
}
