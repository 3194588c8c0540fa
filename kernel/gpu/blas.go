//go:build gpu && linux

package gpu

// cuBLASLt through dlopen: own declarations of the functions used, no NVIDIA header.

/*
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { R_32F = 0, R_16F = 2, R_16BF = 14, R_8F_E4M3 = 28, COMPUTE_32F = 68, COMPUTE_32F_FAST_TF32 = 77 };
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, PREF_WORKSPACE = 1, PREF_REDUCTION = 3, PREF_ALIGN_A = 5, ALGO_REDUCTION = 3 };
enum { DESC_SCALE_FIRST = 17, DESC_SCALE_SECOND = 18, DESC_MODE_FIRST = 31, DESC_MODE_SECOND = 32 };
enum { MODE_OUTER_VECTOR = 3 };
enum { REDUCE_IN_PLACE = 1, REDUCE_FP32 = 2 };
enum { CANDIDATES = 8 };

typedef struct { uint64_t algo[8]; size_t workspace; int status; float waves; int reserved[4]; } heuristic_t;
static struct {
	size_t (*version)(void);
	int (*create)(void **);
	int (*desc_create)(void **, int, int), (*desc_set)(void *, int, const void *, size_t);
	int (*layout_create)(void **, int, uint64_t, uint64_t, int64_t);
	int (*pref_create)(void **), (*pref_set)(void *, int, const void *, size_t), (*pref_destroy)(void *);
	int (*heuristic)(void *, void *, void *, void *, void *, void *, void *, int, heuristic_t *, int *);
	int (*algo_get)(const void *, int, void *, size_t, size_t *);
	int (*algo_check)(void *, void *, void *, void *, void *, void *, const void *, heuristic_t *);
	int (*matmul)(void *, void *, const void *, uintptr_t, void *, uintptr_t, void *, const void *, uintptr_t, void *,
		uintptr_t, void *, const void *, uintptr_t, size_t, void *);
	int (*desc_destroy)(void *), (*layout_destroy)(void *);
} lt;

static const char *lt_load(void *lib) {
#define GET(field, sym) if (!(*(void **)&lt.field = dlsym(lib, #sym))) return #sym;
	GET(version, cublasLtGetVersion) GET(create, cublasLtCreate)
	GET(desc_create, cublasLtMatmulDescCreate) GET(desc_set, cublasLtMatmulDescSetAttribute) GET(desc_destroy,
		cublasLtMatmulDescDestroy)
	GET(layout_create, cublasLtMatrixLayoutCreate) GET(layout_destroy, cublasLtMatrixLayoutDestroy)
	GET(pref_create, cublasLtMatmulPreferenceCreate) GET(pref_set,
		cublasLtMatmulPreferenceSetAttribute) GET(pref_destroy, cublasLtMatmulPreferenceDestroy)
	GET(heuristic, cublasLtMatmulAlgoGetHeuristic) GET(algo_get, cublasLtMatmulAlgoConfigGetAttribute)
	GET(algo_check, cublasLtMatmulAlgoCheck) GET(matmul, cublasLtMatmul)
	return 0;
}
static size_t lt_version(void) { return lt.version(); }
static void *lt_symbol(void) { return (void *)lt.version; }
static int lt_create(void **h) { return lt.create(h); }

typedef struct {
	void *handle, *desc, *first, *second, *out;
	uint64_t algo[8];
	float alpha, beta;
	size_t workspace;
} gemm_t;

// Says where the scales of 8-bit operands lie: one fp32 for each row of A, and for each row of B as stored.
static int gemm_scales(gemm_t *g, uintptr_t a, uintptr_t b) {
	int32_t mode = MODE_OUTER_VECTOR;
	int r;
	if ((r = lt.desc_set(g->desc, DESC_MODE_FIRST, &mode, sizeof mode)) ||
		(r = lt.desc_set(g->desc, DESC_MODE_SECOND, &mode, sizeof mode)) ||
		(r = lt.desc_set(g->desc, DESC_SCALE_FIRST, &b, sizeof b))) return r;
	return lt.desc_set(g->desc, DESC_SCALE_SECOND, &a, sizeof a);
}

// The library counts columns first, so D[M,N] row-major is D' [N,M] there and the operands change places.
// Returns 1000*step + status on failure.
static int gemm_describe(gemm_t *g, int M, int N, int K, int transA, int transB, int64_t lda, int64_t ldb, int64_t ldd,
	int in, int out, int tf32) {
	int r;
	if ((r = lt.desc_create(&g->desc, tf32 ? COMPUTE_32F_FAST_TF32 : COMPUTE_32F, R_32F))) return 1000 + r;
	if ((r = lt.desc_set(g->desc, DESC_TRANSA, &transB, sizeof transB)) ||
		(r = lt.desc_set(g->desc, DESC_TRANSB, &transA, sizeof transA))) return 2000 + r;
	if (in == R_8F_E4M3 && (r = gemm_scales(g, 256, 256))) return 2500 + r; // the heuristics want addresses, any
	if ((r = lt.layout_create(&g->first, in, transB ? K : N, transB ? N : K, ldb)) ||
	    (r = lt.layout_create(&g->second, in, transA ? M : K, transA ? K : M, lda)) ||
	    (r = lt.layout_create(&g->out, out, N, M, ldd))) return 3000 + r;
	return 0;
}
// Finds the algorithms that repeat bit for bit, those that the heuristics expect to be fastest first: no reduction in
// place (its order is not fixed), partial sums in fp32.
static int gemm_candidates(gemm_t *g, int align, uint64_t (*found)[8], int *count) {
	void *pref;
	heuristic_t best[CANDIDATES];
	int r, n = 0, mask = REDUCE_FP32;
	uint32_t a = align;
	*count = 0;
	if ((r = lt.pref_create(&pref))) return 4000 + r;
	if (!(r = lt.pref_set(pref, PREF_WORKSPACE, &g->workspace, sizeof g->workspace)) &&
		!(r = lt.pref_set(pref, PREF_REDUCTION, &mask, sizeof mask)))
		for (int i = 0; i < 4 && !r; i++) r = lt.pref_set(pref, PREF_ALIGN_A + i, &a, sizeof a);
	if (!r) r = lt.heuristic(g->handle, g->desc, g->first, g->second, g->out, g->out, pref, CANDIDATES, best, &n);
	lt.pref_destroy(pref);
	if (r) return 5000 + r;
	for (int i = 0; i < n; i++) {
		int scheme = 0;
		size_t len;
		if (best[i].status || best[i].workspace > g->workspace) continue;
		if (lt.algo_get(best[i].algo, ALGO_REDUCTION, &scheme, sizeof scheme, &len) ||
			(scheme & REDUCE_IN_PLACE)) continue;
		memcpy(found[(*count)++], best[i].algo, sizeof g->algo);
	}
	return *count ? 0 : 6000 + n;
}
static int gemm_check(gemm_t *g) {
	heuristic_t h;
	int r = lt.algo_check(g->handle, g->desc, g->first, g->second, g->out, g->out, g->algo, &h);
	if (r) return 7000 + r;
	return h.workspace > g->workspace ? 8000 : 0;
}
static int gemm_run(gemm_t *g, uintptr_t D, uintptr_t A, uintptr_t B, uintptr_t ws, void *stream) {
	return lt.matmul(g->handle, g->desc, &g->alpha, B, g->first, A, g->second, &g->beta, D, g->out, D, g->out, g->algo,
		ws, g->workspace, stream);
}
static void gemm_free(gemm_t *g) {
	if (g->out) lt.layout_destroy(g->out);
	if (g->second) lt.layout_destroy(g->second);
	if (g->first) lt.layout_destroy(g->first);
	if (g->desc) lt.desc_destroy(g->desc);
	free(g);
}
*/
import "C"

import (
	"fmt"
	"os"
	"sync"
	"unsafe"
)

// BLAS is cuBLASLt, opened at run time.
type BLAS struct {
	Path, Version string
	handle        unsafe.Pointer
}

var opened struct { // the function table is the process's, so the first library found serves
	sync.Mutex
	blas *BLAS
}

// OpenBLAS opens cuBLASLt, for one device: the file named by TRAINER_CUBLASLT if set, else in dir if not empty, else
// where the loader, a toolkit or Python's packages have it. The version of the driver's own major number is preferred.
func OpenBLAS(dir string) (*BLAS, error) {
	opened.Lock()
	defer opened.Unlock()
	if opened.blas != nil {
		return opened.blas.another(), nil
	}
	var lib unsafe.Pointer
	var err error
	if file := os.Getenv("TRAINER_CUBLASLT"); file != "" {
		lib, err = openLibrary("", file)
		if err != nil {
			return nil, fmt.Errorf("TRAINER_CUBLASLT: %w", err)
		}
	} else {
		if dir != "" {
			lib, _ = openLibrary(dir, bySoname("libcublasLt.so", DriverVersion())...) // not there: look elsewhere
		}
		if lib == nil {
			if lib, err = openLibrary("", bySoname("libcublasLt.so", DriverVersion())...); err != nil {
				return nil, err
			}
		}
	}
	if missing := C.lt_load(lib); missing != nil {
		return nil, fmt.Errorf("the cuBLASLt library found lacks %s", C.GoString(missing))
	}
	v := int(C.lt_version())
	opened.blas = &BLAS{Path: pathOf(C.lt_symbol()), Version: fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)}
	return opened.blas.another(), nil
}

// another returns the library for one device: a handle belongs to the device that it was made on.
func (b *BLAS) another() *BLAS { return &BLAS{Path: b.Path, Version: b.Version} }

// libraryTypes are the library's numbers of the storage types.
var libraryTypes = [...]C.int{BF16: C.R_16BF, F32: C.R_32F, F16: C.R_16F, E4M3: C.R_8F_E4M3}

// PlannedGemm is a Gemm with its algorithm chosen, ready to run. It lives until Free.
type PlannedGemm struct {
	Gemm
	Workspace int64
	g         *C.gemm_t
}

// use returns the choice for a shape, nil where there is none yet.
func (a *Algorithms) use(key string) []byte {
	if a.used == nil {
		a.used = map[string]bool{}
	}
	a.used[key] = true
	return a.Choice[key]
}

// Plan chooses the algorithm for a shape on the current device, from chosen when it holds one, or by the library's
// heuristics among those that repeat bit for bit, and notes it in chosen. Where chosen knows a faster algorithm that
// gives the same bits, that one runs. workspace is the scratch memory in bytes that Run will be given.
func (b *BLAS) Plan(g Gemm, workspace int64, chosen *Algorithms) (*PlannedGemm, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	g = g.packed()
	key := g.Key(workspace)
	if b.handle == nil {
		if r := C.lt_create(&b.handle); r != 0 {
			return nil, fmt.Errorf("start cuBLASLt %s (%s): status %d", b.Version, b.Path, int(r))
		}
	}
	p := &PlannedGemm{g, workspace, (*C.gemm_t)(C.calloc(1, C.sizeof_gemm_t))}
	p.g.handle, p.g.alpha, p.g.beta, p.g.workspace = b.handle, C.float(g.Alpha), C.float(g.Beta), C.size_t(workspace)
	bit := func(v bool) C.int {
		if v {
			return 1
		}
		return 0
	}
	fail := func(r C.int) error {
		p.Free()
		return fmt.Errorf("gemm %s: cuBLASLt %s: step %d status %d", key, b.Version, int(r)/1000, int(r)%1000)
	}
	if r := C.gemm_describe(p.g, C.int(g.M), C.int(g.N), C.int(g.K), bit(g.TransA), bit(g.TransB), C.int64_t(g.LDA),
		C.int64_t(g.LDB), C.int64_t(g.LDD),
		libraryTypes[g.In], libraryTypes[g.Out], bit(g.TF32)); r != 0 {
		return nil, fail(r)
	}
	if chosen != nil {
		if p.Use(chosen.use(key)) {
			p.Use(chosen.Fastest[key])
			return p, nil
		}
	}
	found, r := p.candidates()
	if r != 0 {
		return nil, fail(r)
	}
	p.Use(found[0])
	if chosen != nil {
		chosen.set(key, found[0])
	}
	return p, nil
}

// candidates returns the algorithms that repeat bit for bit, the heuristics' first choice first, or a status.
func (p *PlannedGemm) candidates() ([][]byte, C.int) {
	var found [C.CANDIDATES][8]C.uint64_t
	var count C.int
	if r := C.gemm_candidates(p.g, C.int(p.Align), &found[0], &count); r != 0 {
		return nil, r
	}
	each := make([][]byte, count)
	for i := range each {
		each[i] = append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&found[i])), algorithmBytes)...)
	}
	return each, 0
}

// Candidates returns the algorithms that repeat bit for bit, the heuristics' first choice first.
func (p *PlannedGemm) Candidates() ([][]byte, error) {
	found, r := p.candidates()
	if r != 0 {
		return nil, fmt.Errorf("gemm %s: cuBLASLt: step %d status %d", p.Key(p.Workspace), int(r)/1000, int(r)%1000)
	}
	return found, nil
}

// Use makes algorithm the one that runs and reports whether the library takes it for the shape. Where it does not, the
// one before stays.
func (p *PlannedGemm) Use(algorithm []byte) bool {
	if len(algorithm) != algorithmBytes {
		return false
	}
	before := p.g.algo
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&p.g.algo)), algorithmBytes), algorithm)
	if C.gemm_check(p.g) == 0 {
		return true
	}
	p.g.algo = before
	return false
}

// algorithmBytes is the size of the library's opaque algorithm.
const algorithmBytes = 64

// Run queues D = Alpha op(A) op(B) + Beta D. It allocates nothing.
func (p *PlannedGemm) Run(s *Stream, d, a, b, workspace Ptr) error {
	if (d|a|b)%Ptr(p.Align) != 0 {
		return fmt.Errorf("gemm %s: addresses %x %x %x are not aligned to %d bytes", p.Key(p.Workspace), d, a, b,
			p.Align)
	}
	if r := C.gemm_run(p.g, C.uintptr_t(d), C.uintptr_t(a), C.uintptr_t(b), C.uintptr_t(workspace),
		unsafe.Pointer(s.c())); r != 0 {
		return fmt.Errorf("gemm %s: cublasLtMatmul: status %d", p.Key(p.Workspace), int(r))
	}
	return nil
}

// RunScaled queues D = Alpha A Bᵀ + Beta D of E4M3 operands. scalesA holds an fp32 for each row of A, scalesB one for
// each row of B as stored. It allocates nothing.
func (p *PlannedGemm) RunScaled(s *Stream, d, a, b, scalesA, scalesB, workspace Ptr) error {
	if r := C.gemm_scales(p.g, C.uintptr_t(scalesA), C.uintptr_t(scalesB)); r != 0 {
		return fmt.Errorf("gemm %s: cuBLASLt: scales: status %d", p.Key(p.Workspace), int(r))
	}
	return p.Run(s, d, a, b, workspace)
}

// Free gives the host memory back.
func (p *PlannedGemm) Free() {
	if p != nil && p.g != nil {
		C.gemm_free(p.g)
		p.g = nil
	}
}
