// attention.cuh: what the attention kernels share: tiles in shared memory, tensor-core GEMMs, the mask.
#pragma once
#include "common.cuh"

__device__ __forceinline__ float exp2_fast(float x) {   // -inf gives 0
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// A soft cap of scores: tanh(scale score / cap), which the softmax then takes times cap in place of scale. f is cap_factor(scale, cap).
__device__ __forceinline__ float cap_factor(float scale, float cap) { return scale / cap * 2.885390081777927f; }
__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// 2^x + 1 for x up to 30, and of 30 above, where tanh is 1 all the same; NaN stays.
__device__ __forceinline__ float exp2_plus1(float x) {
    asm("min.NaN.f32 %0, %0, 0f41F00000;" : "+f"(x));
    return exp2_fast(x) + 1.f;
}
__device__ __forceinline__ float capped(float score, float f) { return fmaf(-2.f, reciprocal(exp2_plus1(score * f)), 1.f); }
// Four at once, TOGETHER with one reciprocal: special functions run at a sixteenth of the rate of multiplications. It
// takes registers that not all kernels have.
template <bool TOGETHER = true>
__device__ __forceinline__ void capped4(float &a, float &b, float &c, float &d, float f) {
    if (!TOGETHER) {
        a = capped(a, f), b = capped(b, f), c = capped(c, f), d = capped(d, f);
        return;
    }
    float x = exp2_plus1(a * f), y = exp2_plus1(b * f), z = exp2_plus1(c * f), w = exp2_plus1(d * f);
    float xy = x * y, zw = z * w, r = -2.f * reciprocal(xy * zw), rxy = r * zw, rzw = r * xy;
    a = fmaf(rxy, y, 1.f);
    b = fmaf(rxy, x, 1.f);
    c = fmaf(rzw, w, 1.f);
    d = fmaf(rzw, z, 1.f);
}

// A tile holds rows of DP values, padded by 8: a row is then an odd number of 16-byte units, and the eight rows of an
// ldmatrix lie in different banks.
template <int DP>
struct Tile {
    static constexpr int LD = DP + 8;
    __device__ static constexpr int bytes(int rows) { return rows * LD * 2; }
};

// Loads rows [row, row+ROWS) of a [M, ...] matrix whose rows are ld values apart, D values of each; rows beyond M and values
// beyond D become zero.
template <int DP, int ROWS, int THREADS>
__device__ __forceinline__ void load_tile(uint32_t dst, const elem *src, int row, int M, int D, int64_t ld) {
    constexpr int UNITS = DP / 8, LD = Tile<DP>::LD;
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * UNITS; i += THREADS) {
        int r = i / UNITS, c = i % UNITS;
        bool valid = row + r < M && c * 8 < D;
        cp16(dst + (r * LD + c * 8) * 2, src + (valid ? (int64_t)(row + r) * ld + c * 8 : 0), valid);
    }
}

// acc[MT][NT] += A[16 MT rows, DP] B[8 NT rows, DP]^T, both tiles in shared memory; a: the warp's first row of A, b: first row of B.
template <int DP, int MT, int NT>
__device__ __forceinline__ void mma_abt(float (&acc)[MT][NT][4], uint32_t a, uint32_t b) {
    constexpr int LD = Tile<DP>::LD;
    int lane = threadIdx.x & 31;
    uint32_t pa = a + ((lane & 15) * LD + (lane >> 4) * 8) * 2;
    uint32_t pb = b + (((lane & 7) + (lane >> 4) * 8) * LD + (lane >> 3 & 1) * 8) * 2;
#pragma unroll
    for (int k = 0; k < DP; k += 16) {
        uint32_t fa[MT][4];
#pragma unroll
        for (int i = 0; i < MT; i++) ldmatrix4(fa[i], pa + (i * 16 * LD + k) * 2);
#pragma unroll
        for (int j = 0; j < NT; j += 2) {
            uint32_t fb[4];
            ldmatrix4(fb, pb + (j * 8 * LD + k) * 2);
#pragma unroll
            for (int i = 0; i < MT; i++) {
                mma(acc[i][j], fa[i], fb[0], fb[1]);
                mma(acc[i][j + 1], fa[i], fb[2], fb[3]);
            }
        }
    }
}

// acc[MT][W/8] += P[16 MT rows, 8 NT] B[8 NT rows, W columns from b on]; P is an accumulator of mma_abt, rounded to elem here.
template <int DP, int W, int MT, int NT>
__device__ __forceinline__ void mma_pb(float (&acc)[MT][W / 8][4], const float (&p)[MT][NT][4], uint32_t b) {
    constexpr int LD = Tile<DP>::LD;
    int lane = threadIdx.x & 31;
    uint32_t pb = b + (((lane & 7) + (lane >> 3 & 1) * 8) * LD + (lane >> 4) * 8) * 2;
#pragma unroll
    for (int k = 0; k < NT; k += 2) {
        uint32_t fa[MT][4];
#pragma unroll
        for (int i = 0; i < MT; i++) {
            fa[i][0] = pack2(p[i][k][0], p[i][k][1]);
            fa[i][1] = pack2(p[i][k][2], p[i][k][3]);
            fa[i][2] = pack2(p[i][k + 1][0], p[i][k + 1][1]);
            fa[i][3] = pack2(p[i][k + 1][2], p[i][k + 1][3]);
        }
#pragma unroll
        for (int d = 0; d < W; d += 16) {
            uint32_t fb[4];
            ldmatrix4t(fb, pb + (k * 8 * LD + d) * 2);
#pragma unroll
            for (int i = 0; i < MT; i++) {
                mma(acc[i][d / 8], fa[i], fb[0], fb[1]);
                mma(acc[i][d / 8 + 1], fa[i], fb[2], fb[3]);
            }
        }
    }
}

// Sequences lie one after the other: sequence s holds rows cu[s] .. cu[s+1]-1, cu [B+1] int32 rises, entries may repeat.
// Rows from cu[B] on form a sequence of their own. Returns the s of a row: the last with cu[s] <= row.
__device__ __forceinline__ int sequence_of(const int *cu, int B, int row) {
    int lo = 0, hi = B;   // cu[lo] <= row
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (cu[mid] <= row) lo = mid;
        else hi = mid - 1;
    }
    return lo;
}
// First key that a query row sees: its sequence's start, or window-1 rows back.
__device__ __forceinline__ int first_key(const int *cu, int B, int row, int window) {
    int start = cu[sequence_of(cu, B, row)];
    return window > 0 ? max(start, row - window + 1) : start;
}
// Last query row that sees a key row.
__device__ __forceinline__ int last_query(const int *cu, int B, int row, int M, int window) {
    int s = sequence_of(cu, B, row), end = (s == B ? M : cu[s + 1]) - 1;
    return window > 0 ? min(end, row + window - 1) : end;
}

// Sequences may continue others: prefix[s] is the sequence whose keys come before those of sequence s, if it is from 0 to s-1. All that
// continue one sequence follow it, and it has no prefix. So a row sees [first, hole0) and [hole1, row], and its key is seen by the rows
// from itself to the last sequence that continues its own.
struct Branch {
    int first, hole0, hole1;   // hole0 = hole1 = 2^30: no prefix
};
__device__ __forceinline__ Branch branch_of(const int *cu, const int *prefix, int B, int row) {
    int s = sequence_of(cu, B, row), p = s < B ? prefix[s] : -1, own = cu[s];
    if (p < 0 || p >= s) return Branch{own, 1 << 30, 1 << 30};
    return Branch{cu[p], cu[p + 1], own};
}
// Last query row that sees a key row.
__device__ __forceinline__ int last_branch(const int *cu, const int *prefix, int B, int row, int M) {
    int s = sequence_of(cu, B, row), t = s;
    if (s == B) return M - 1;
    while (t + 1 < B && prefix[t + 1] == s) t++;
    return cu[t + 1] - 1;
}
// Last query row that sees a key of rows row0 .. row1, which may hold keys of a prefix and of the sequences that continue it.
__device__ __forceinline__ int last_of_tile(const int *cu, const int *prefix, int B, int row0, int row1, int M) {
    int s = sequence_of(cu, B, row1), p = s < B ? prefix[s] : -1;
    return last_branch(cu, prefix, B, p >= 0 && p < s && cu[p + 1] > row0 ? cu[p] : row1, M);
}
// Last query row that sees every key of rows row0 .. row1 which is not after it.
__device__ __forceinline__ int least_of_tile(const int *cu, const int *prefix, int B, int row0, int row1, int M) {
    int s = sequence_of(cu, B, row0), last = last_branch(cu, prefix, B, row0, M);
    return s < B && cu[s + 1] <= row1 ? min(last, last_branch(cu, prefix, B, cu[s + 1], M)) : last;
}
// The tiles of BN keys that a tile of query rows sees, the hole of its first row left out: no later row of the tile sees a key there.
struct Walk {
    int n0, before, skip, n;   // first tile, tiles before the hole, tiles in it, tiles in all
    __device__ __forceinline__ Walk(Branch b, int BN, int end) {
        n0 = b.first / BN;
        int all = (end + BN - 1) / BN - n0;
        if (b.hole0 == 1 << 30) {
            before = n = all;
            skip = 0;
            return;
        }
        before = (b.hole0 + BN - 1) / BN - n0;
        skip = max(b.hole1 / BN - n0 - before, 0);
        n = all - skip;
    }
    __device__ __forceinline__ int tile(int i) const { return n0 + i + (i >= before ? skip : 0); }
};

// What a query row sees, from first(row) to last(row), as the forward pass asks it. A row without a key has a first beyond all keys.
// OwnKeys: queries and keys are the same rows.
struct OwnKeys {
    static constexpr bool ALL = true, PREFIXES = false;   // every row sees a key
    const int *cu;
    int B, M, window;
    __device__ __forceinline__ int first(int row) const { return first_key(cu, B, min(row, M - 1), window); }
    __device__ __forceinline__ int last(int row) const { return row; }
    __device__ __forceinline__ int all(int, int firstb) const { return firstb; }   // the key from which on rows a to b see the same: first rises
    __device__ __forceinline__ bool none(int, int) const { return false; }
    __device__ __forceinline__ int begin(int row0, int BN) const { return first(row0) / BN * BN; }   // of the first tile of keys
    __device__ __forceinline__ int end(int row0, int BM) const { return min(row0 + BM, M); }         // of the last row's keys
    __device__ __forceinline__ int rows(int) const { return M; }                                     // of k and v that may be read
};
// CacheKeys: one sequence, whose queries q0 .. q1-1 are its last keys of k0 .. k1-1. Tiles of keys begin with the sequence or the window,
// so where it lies in a cache reaches no number, and what lies behind its keys is not read.
struct CacheKeys {
    static constexpr bool ALL = false, PREFIXES = false;
    int q0, q1, k0, k1, window;
    __device__ __forceinline__ CacheKeys(const int *cuq, const int *cuk, int M, int N, int window_)
        : q0(max(cuq[0], 0)), q1(min(cuq[1], M)), k0(min(max(cuk[0], 0), N)), k1(min(max(cuk[1], 0), N)), window(window_) {}
    __device__ __forceinline__ int last(int row) const { return row + k1 - q1; }
    __device__ __forceinline__ int first(int row) const {
        return row < q0 || row >= q1 || last(row) < k0 ? 1 << 30 : window > 0 ? max(k0, last(row) - window + 1) : k0;
    }
    __device__ __forceinline__ int all(int firsta, int firstb) const { return max(firsta, firstb); }
    __device__ __forceinline__ bool none(int row0, int BM) const { return row0 >= q1 || row0 + BM <= q0 || end(row0, BM) <= k0; }
    __device__ __forceinline__ int begin(int row0, int) const {
        int last0 = last(max(row0, q0));
        return window > 0 ? max(k0, last0 - window + 1) : k0;
    }
    __device__ __forceinline__ int end(int row0, int BM) const { return last(min(row0 + BM, q1) - 1) + 1; }
    __device__ __forceinline__ int rows(int end) const { return end; }
};

// PrefixKeys: OwnKeys of sequences that may continue others, without a window.
struct PrefixKeys {
    static constexpr bool ALL = true, PREFIXES = true;
    const int *cu, *prefix;
    int B, M;
    __device__ __forceinline__ Branch branch(int row) const { return branch_of(cu, prefix, B, min(row, M - 1)); }
    __device__ __forceinline__ int own(int row) const { return cu[sequence_of(cu, B, min(row, M - 1))]; }
    __device__ __forceinline__ int first(int row) const { return branch(row).first; }
    __device__ __forceinline__ int last(int row) const { return row; }
    __device__ __forceinline__ int all(int, int firstb) const { return firstb; }
    __device__ __forceinline__ bool none(int, int) const { return false; }
    __device__ __forceinline__ int begin(int row0, int BN) const { return first(row0) / BN * BN; }
    __device__ __forceinline__ int end(int row0, int BM) const { return min(row0 + BM, M); }
    __device__ __forceinline__ int rows(int) const { return M; }
};

// The keys of a tile that need no mask although they lie before the last row's own: those that all rows a to b of a tile see in their
// common prefix.
struct Clean {
    int from, to;
    __device__ __forceinline__ Clean(Branch a, Branch b)
        : from(a.first == b.first ? b.first : 1 << 30), to(min(a.hole0, b.hole0)) {}
    __device__ __forceinline__ bool holds(int key0, int BN) const { return key0 >= from && key0 + BN <= to; }
};

// Zeros for rows that see nothing, of one head; lse is the head's.
template <int THREADS>
__device__ __forceinline__ void zero_tile(elem *o, float *lse, int row0, int rows, int M, int D, int64_t ldo) {
    int n = min(rows, M - row0);
    for (int i = threadIdx.x; i < n * D; i += THREADS) o[(row0 + i / D) * ldo + i % D] = narrow(0.f);
    for (int i = threadIdx.x; i < n; i += THREADS) lse[row0 + i] = 0.f;
}

// Writes 16 MT rows of an accumulator of W columns (from column c0 of the matrix) as elem, times a factor a row; columns beyond
// D and rows beyond M are left out.
template <int W, int MT>
__device__ __forceinline__ void store_rows(elem *dst, const float (&acc)[MT][W / 8][4], const float (&factor)[MT][2], int row, int M, int c0, int D, int64_t ld) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int r = row + i * 16 + h * 8 + lane / 4;
            if (r >= M) continue;
#pragma unroll
            for (int d = 0; d < W / 8; d++) {
                int c = c0 + d * 8 + lane % 4 * 2;
                if (c < D) *(uint32_t *)(dst + (int64_t)r * ld + c) = pack2(acc[i][d][2 * h] * factor[i][h], acc[i][d][2 * h + 1] * factor[i][h]);
            }
        }
}
