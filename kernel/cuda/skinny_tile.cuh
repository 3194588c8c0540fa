// skinny_tile.cuh: what the skinny_tile_* kernels share: a tile of weights times a tile of the rows of X, to the bits of skinny.cuh.
// skinny.cuh adds a number of D in a fixed order: 16 parts, of which part p has the pieces of 128 inner values that begin at 128 p + 2048 i;
// four parts are added, then the four sums. Here a warp takes one part after the other, so D has the same bits, and the weights and X
// are read once for a whole tile: that pays from 17 rows on.
// A piece of X, or of weights as elem, lies in shared memory as 16-byte units [4][rows][4], so that the eight lanes which read together find
// different banks. Unit (j, t) of a row is what lane t of four multiplies in round j. Three pieces are under way. Codes become elem one piece
// ahead of the tensor cores, by the thread that loaded them.
// In the kernels of four blocks a tile the blocks are a cluster. Each adds four of the parts, and a quarter of the tile's rows of X for all.
#pragma once
#include "skinny.cuh"

constexpr int STAGES = 3, PARTS = 16, ROUND = PARTS * PIECE;

// What a launch computes: D_i = alpha X W_i^T + beta D_i, or with `gated` D_0 = silu(X W_0^T) (X W_1^T).
struct Job {
    void *d[3];
    int N[3], M, K, f32, gated;
    float alpha, beta;
};

// Where the pieces of some parts begin, part by part.
struct Pieces {
    int part, end, k, K;
    __device__ __forceinline__ Pieces(int first, int end, int K) : part(first), end(end), k(first * PIECE), K(K) {}
    __device__ __forceinline__ bool more() const { return part < end && k < K; }
    // Goes to the next piece and tells whether it is of another part.
    __device__ __forceinline__ bool next() {
        k += ROUND;
        if (k < K) return false;
        part++, k = part * PIECE;
        return true;
    }
};

// Index of the 16-byte unit (j, t) of row r, of R rows.
__device__ __forceinline__ int unit_at(int j, int r, int t, int R) { return (j * R + (r ^ (j & 1))) * 4 + (t ^ (j & 2)); }

// The rows of W of a tile of BN: of one D_i, or half of the gate's and half of up's.
template <int BN>
struct Columns {
    int of[2], n0, N;   // the weight of the tile's first and second half; D's column that the tile begins with
    bool gated;
    __device__ __forceinline__ Columns(const Job &job, int tile) : gated(job.gated) {
        int first = 0;
        n0 = tile * (gated ? BN / 2 : BN);
        if (!gated)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int wide = (job.N[i] + BN - 1) / BN * BN;
                if (first == i && n0 >= wide) n0 -= wide, first = i + 1;
            }
        of[0] = first, of[1] = gated ? 1 : first;
        N = first == 0 ? job.N[0] : first == 1 ? job.N[1] : job.N[2];
    }
    // The row of its weight that row r of the tile is.
    __device__ __forceinline__ int row(int r) const { return min(n0 + (gated && r >= BN / 2 ? r - BN / 2 : r), N - 1); }
};

template <typename T>
__device__ __forceinline__ T pick(int i, const T &a, const T &b, const T &c) { return i == 0 ? a : i == 1 ? b : c; }

// Dense weights: every thread loads one 16-byte unit of each HOP-th row of a piece.
template <int BN, int THREADS>
struct DenseTile {
    static constexpr bool CODES = false;
    static constexpr int HOP = THREADS / 16, EACH = BN / HOP, STAGE = BN * PIECE * 2, SHARED = STAGES * STAGE;
    const elem *w[3];
    const uint4 *from[2];
    uint32_t at[EACH], to, base;
    // Which of a row's units lane t multiplies in round j: unit 4 j + t.
    static __device__ __forceinline__ int round_of(int u) { return u >> 2; }
    static __device__ __forceinline__ int lane_of(int u) { return u & 3; }
    __device__ __forceinline__ void begin(const Columns<BN> &c, int K, uint32_t shared) {
        int r = threadIdx.x >> 4, u = threadIdx.x & 15;
#pragma unroll
        for (int i = 0; i < 2; i++) from[i] = (const uint4 *)pick(c.of[i], w[0], w[1], w[2]);
#pragma unroll
        for (int i = 0; i < EACH; i++) at[i] = c.row(r + i * HOP) * (K / 8) + u;
        base = shared, to = shared + unit_at(u >> 2, r, u & 3, BN) * 16;
    }
    __device__ __forceinline__ void load(int stage, int k, int K) {
        bool there = k + (int)(threadIdx.x & 15) * 8 < K;
        int ahead = there ? k / 8 : 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) cp16(to + stage * STAGE + i * HOP * 64, from[2 * i / EACH] + at[i] + ahead, there);
    }
    __device__ __forceinline__ uint32_t tile(int stage, int) const { return base + stage * STAGE; }
    struct Piece {};
    __device__ __forceinline__ Piece piece(int) const { return {}; }
    __device__ __forceinline__ void load_scales(int, int) {}
    __device__ __forceinline__ void dequantise(const Piece &, int, int) const {}
};

// Codes: a thread loads 32 neighbours, 16 bytes, of a row, or of one row in each half of the tile.
template <int BN, int THREADS, bool NESTED>
struct CodesTile {
    static constexpr bool CODES = true;
    static constexpr int EACH = BN * 4 / THREADS, STAGE = BN * PIECE / 2, TILE = BN * PIECE * 2, SHARED = STAGES * STAGE + 2 * TILE;
    Codes<NESTED> w[3];
    Tables tables;
    const uint8_t *codes[EACH], *scale8[EACH];
    const float *scale[EACH];
    float shift[EACH], outer[EACH];
    int inner[EACH];
    uint32_t block[EACH];
    uint32_t base;
    const float *table;   // in shared memory: 16 numbers, and 256 of nested scales
    static __device__ __forceinline__ int round_of(int u) { return u & 3; }
    static __device__ __forceinline__ int lane_of(int u) { return u >> 2; }
    __device__ __forceinline__ int row(int i) const { return (threadIdx.x >> 2) + i * (THREADS / 4); }
    __device__ __forceinline__ void begin(const Columns<BN> &c, int K, uint32_t shared) {
        __shared__ float all[16 + 256];
        for (int i = threadIdx.x; i < (NESTED ? 272 : 16); i += THREADS) all[i] = i < 16 ? tables.code[i] : tables.map[i - 16];
        table = all, base = shared;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int of = row(i) >= BN / 2 ? c.of[1] : c.of[0], t = threadIdx.x & 3;
            int64_t n = c.row(row(i));
            codes[i] = pick(of, w[0].codes, w[1].codes, w[2].codes) + n * (K / 2) + t * 16;
            block[i] = (uint32_t)n * (K / 64) + (t >> 1);
            if (NESTED) scale8[i] = pick(of, w[0].scale8, w[1].scale8, w[2].scale8), scale[i] = pick(of, w[0].scale2, w[1].scale2, w[2].scale2), shift[i] = *pick(of, w[0].offset, w[1].offset, w[2].offset);
            else scale[i] = pick(of, w[0].absmax, w[1].absmax, w[2].absmax);
        }
    }
    __device__ __forceinline__ void load(int stage, int k, int K) {
        bool there = k + (int)(threadIdx.x & 3) * 32 < K;
#pragma unroll
        for (int i = 0; i < EACH; i++) cp16(base + stage * STAGE + (threadIdx.x + i * THREADS) * 16, codes[i] + (there ? k / 2 : 0), there);
    }
    // Reads the scales of a piece, as stored.
    __device__ __forceinline__ void load_scales(int k, int K) {
        bool there = k + (int)(threadIdx.x & 3) * 32 < K;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            uint32_t b = block[i] + k / 64;
            inner[i] = -1, outer[i] = 0.f;
            if (there) {
                if (NESTED) inner[i] = scale8[i][b], outer[i] = scale[i][b >> 8];
                else outer[i] = scale[i][b];
            }
        }
    }
    struct Piece {
        uint4 q[EACH];
        float scale[EACH];
    };
    // Reads a piece whose codes have come and whose scales are read.
    __device__ __forceinline__ Piece piece(int stage) const {
        Piece p;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(p.q[i].x), "=r"(p.q[i].y), "=r"(p.q[i].z), "=r"(p.q[i].w) : "r"(base + stage * STAGE + (threadIdx.x + i * THREADS) * 16) : "memory");
            p.scale[i] = !NESTED ? outer[i] : inner[i] < 0 ? 0.f : __fadd_rn(__fmul_rn(table[16 + max(inner[i], 0)], outer[i]), shift[i]);
        }
        return p;
    }
    // Writes the units of round j of a piece to tile 0 or 1.
    __device__ __forceinline__ void dequantise(const Piece &p, int j, int to) const {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            uint4 v = weights(j == 0 ? p.q[i].x : j == 1 ? p.q[i].y : j == 2 ? p.q[i].z : p.q[i].w, table, p.scale[i]);
            asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(tile(0, to) + unit_at(j, row(i), threadIdx.x & 3, BN) * 16), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
        }
    }
    __device__ __forceinline__ uint32_t tile(int, int which) const { return base + STAGES * STAGE + which * TILE; }
};

__device__ __forceinline__ uint4 shared_load4(uint32_t at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at) : "memory");
    return v;
}

// The blocks of a cluster.
__device__ __forceinline__ void cluster_meet() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
// Four floats at an address of shared memory of block `rank` of the cluster.
__device__ __forceinline__ float4 cluster_load4(uint32_t at, int rank) {
    float4 v = make_float4(0, 0, 0, 0);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("{\n.reg .u32 a;\nmapa.shared::cluster.u32 a, %4, %5;\nld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [a];\n}"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at), "r"(rank) : "memory");
#endif
    return v;
}

// Stores four neighbours, or those of them that are inside of D.
__device__ __forceinline__ void store_four(const Job &job, int of, int m, int n, const float *v) {
    int N = pick(of, job.N[0], job.N[1], job.N[2]);
    void *to = pick(of, job.d[0], job.d[1], job.d[2]);
    int64_t at = (int64_t)m * N + n;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        if (n + e >= N) break;
        float y = v[e] * job.alpha;
        if (job.f32) {
            float *d = (float *)to + at + e;
            *d = job.beta == 0.f ? y : fmaf(job.beta, *d, y);
        } else {
            elem *d = (elem *)to + at + e;
            *d = narrow(job.beta == 0.f ? y : fmaf(job.beta, widen(*d), y));
        }
    }
}
__device__ __forceinline__ void store_gated(const Job &job, int m, int n, const float *gate, const float *up) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
        if (n + e >= job.N[0]) break;
        float v = widen(narrow(gate[e]));
        ((elem *)job.d[0])[(int64_t)m * job.N[0] + n + e] = narrow(v * (1.f / (1.f + __expf(-v))) * widen(narrow(up[e])));
    }
}

// BN rows of weights, BM rows of X; a warp has 16 MT of the one and 8 NT of the other. CLUSTER: four blocks a tile.
template <int BN, int BM, int MT, int NT, bool CLUSTER, class W>
__device__ __forceinline__ void skinny_tile(const Job &job, const elem *x, W w) {
    constexpr int THREADS = 32 * (BN / (16 * MT)) * (BM / (8 * NT)), HOP = THREADS / 16, EACH = BM / HOP, X_STAGE = BM * PIECE * 2, LD = BN + 4;
    extern __shared__ __align__(128) uint8_t shared[];
    let_next_begin();
    int rank = CLUSTER ? (int)blockIdx.x & 3 : 0, M = job.M, K = job.K, m0 = blockIdx.y * BM;
    Columns<BN> columns(job, CLUSTER ? (int)blockIdx.x >> 2 : (int)blockIdx.x);
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    int wn = warp % (BN / (16 * MT)) * 16 * MT, wm = warp / (BN / (16 * MT)) * 8 * NT;
    uint32_t base = smem(shared), xto, xat[EACH], wfrom[4], xfrom[4];
    w.begin(columns, K, base + STAGES * X_STAGE);
    {
        int r = threadIdx.x >> 4, u = threadIdx.x & 15;
        xto = base + unit_at(W::round_of(u), r, W::lane_of(u), BM) * 16;
#pragma unroll
        for (int i = 0; i < EACH; i++) xat[i] = min(m0 + r + i * HOP, M - 1) * (K / 8) + u;   // rows beyond M are the last one again
    }
#pragma unroll
    for (int j = 0; j < 4; j++) wfrom[j] = unit_at(j, wn + g, t, BN) * 16, xfrom[j] = base + unit_at(j, wm + g, t, BM) * 16;
    auto load_x = [&](int stage, int k) {
        bool there = k + (int)(threadIdx.x & 15) * 8 < K;
        const uint4 *from = (const uint4 *)x + (there ? k / 8 : 0);
#pragma unroll
        for (int i = 0; i < EACH; i++) cp16(xto + stage * X_STAGE + i * HOP * 64, from + xat[i], there);
    };

    Pieces run(CLUSTER ? rank * 4 : 0, CLUSTER ? rank * 4 + 4 : PARTS, K), ahead = run, rows = run, scales = run;
#pragma unroll
    for (int s = 0; s < (W::CODES ? STAGES : STAGES - 1); s++)
        if (ahead.more()) w.load(s, ahead.k, K), ahead.next();
    if constexpr (W::CODES) {   // the first piece
        cp_commit();
        if (scales.more()) w.load_scales(scales.k, K), scales.next();
        cp_wait<0>();
        __syncthreads();   // the tables
        if (run.more()) {
            typename W::Piece p = w.piece(0);
#pragma unroll
            for (int j = 0; j < 4; j++) w.dequantise(p, j, 0);
        }
        if (scales.more()) w.load_scales(scales.k, K), scales.next();
    }
    wait_for_earlier();
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (rows.more()) load_x(s, rows.k), rows.next();
        cp_commit();
    }
    float acc[MT][NT][4], four[MT][NT][4], all[CLUSTER ? 1 : MT][NT][4];
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                acc[i][j][e] = four[i][j][e] = 0.f;
                if (!CLUSTER) all[i][j][e] = 0.f;
            }
    int at = 0, into = STAGES - 1, which = 0;   // stages of this piece and of the one that is loaded; tile of elem
#pragma unroll 1
    while (run.more()) {
        cp_wait<STAGES - 2>();
        __syncthreads();
        if (rows.more()) load_x(into, rows.k), rows.next();
        if (ahead.more()) w.load(W::CODES ? at : into, ahead.k, K), ahead.next();
        cp_commit();
        into = into + 1 == STAGES ? 0 : into + 1;
        int part = run.part, here = at;
        bool ends = run.next();
        at = at + 1 == STAGES ? 0 : at + 1;
        bool more = run.more();
        uint32_t weights = w.tile(here, which);
        typename W::Piece p;
        if (W::CODES && more) p = w.piece(at);
        if (W::CODES && scales.more()) w.load_scales(scales.k, K), scales.next();
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint4 a[MT][2], b[NT];
#pragma unroll
            for (int i = 0; i < NT; i++) b[i] = shared_load4(xfrom[j] + here * X_STAGE + i * 512);
#pragma unroll
            for (int i = 0; i < MT; i++) a[i][0] = shared_load4(weights + wfrom[j] + i * 1024), a[i][1] = shared_load4(weights + wfrom[j] + i * 1024 + 512);
            if (W::CODES && more) w.dequantise(p, j, which ^ 1);   // of the next piece, while these come
#pragma unroll
            for (int i = 0; i < MT; i++) {
                uint32_t first[4] = {a[i][0].x, a[i][1].x, a[i][0].y, a[i][1].y}, second[4] = {a[i][0].z, a[i][1].z, a[i][0].w, a[i][1].w};
#pragma unroll
                for (int n = 0; n < NT; n++) mma(acc[i][n], first, b[n].x, b[n].y);
#pragma unroll
                for (int n = 0; n < NT; n++) mma(acc[i][n], second, b[n].z, b[n].w);
            }
        }
        which ^= 1;
        if (!ends) continue;
        bool last = CLUSTER || (part & 3) == 3 || !run.more();
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int j = 0; j < NT; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    four[i][j][e] += acc[i][j][e];
                    acc[i][j][e] = 0.f;
                    if (!CLUSTER && last) all[i][j][e] += four[i][j][e], four[i][j][e] = 0.f;
                }
    }
    cp_wait<0>();
    __syncthreads();
    float *tile = (float *)shared;   // [BM][LD]
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) tile[(wm + j * 8 + 2 * t + (e & 1)) * LD + wn + i * 16 + g + 8 * (e >> 1)] = CLUSTER ? four[i][j][e] : all[CLUSTER ? 0 : i][j][e];
    if (CLUSTER) cluster_meet();
    else __syncthreads();
    constexpr int MINE = CLUSTER ? BM / 4 : BM;
    int half = job.gated ? BN / 2 : BN, quads = half / 4;
    for (int i = threadIdx.x; i < MINE * quads; i += THREADS) {
        int r = rank * MINE + i / quads, n = i % quads * 4;
        if (m0 + r >= M) continue;
        float v[8];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (h == 1 && !job.gated) break;
            const float *from = tile + r * LD + n + h * half;
            if (CLUSTER) {
                float4 part[4];
#pragma unroll
                for (int q = 0; q < 4; q++) part[q] = cluster_load4(smem(from), q);
                v[4 * h] = v[4 * h + 1] = v[4 * h + 2] = v[4 * h + 3] = 0.f;
#pragma unroll
                for (int q = 0; q < 4; q++) v[4 * h] += part[q].x, v[4 * h + 1] += part[q].y, v[4 * h + 2] += part[q].z, v[4 * h + 3] += part[q].w;
            } else {
                float4 one = *(const float4 *)from;
                v[4 * h] = one.x, v[4 * h + 1] = one.y, v[4 * h + 2] = one.z, v[4 * h + 3] = one.w;
            }
        }
        if (job.gated) store_gated(job, m0 + r, columns.n0 + n, v, v + 4);
        else store_four(job, columns.of[0], m0 + r, columns.n0 + n, v);
    }
    if (CLUSTER) cluster_meet();   // the others read this block's tile until then
}
