//go:build linux

package gemm

import (
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// guarded returns n values that end where a page begins which must not be
// touched.
func guarded[T Float](t *testing.T, n int) []T {
	t.Helper()
	page, each := os.Getpagesize(), int(unsafe.Sizeof(T(0)))
	size := (each*n + page - 1) / page * page
	mem, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mprotect(mem[size:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&mem[size-each*n])), n)
}

// No operand is read past its last value: the next page would fault.
func TestNothingIsReadPastTheEnd(t *testing.T) {
	onPath(t, func(t *testing.T) {
		p := newPool(t, 1)
		r := rand.New(rand.NewPCG(2, 2))
		for _, m := range []int{1, 3, 5, 7, 13, 100} {
			for _, n := range []int{1, 3, 8, 17, 31, 33, 100} {
				for _, k := range []int{1, 5, 8, 17, 63, 100} {
					multiplyGuarded[float32](t, p, r, m, n, k)
					multiplyGuarded[float64](t, p, r, m, n, k)
				}
			}
		}
	})
}

func multiplyGuarded[T Float](t *testing.T, p *Pool, r *rand.Rand, m, n, k int) {
	t.Helper()
	a, b, c := guarded[T](t, m*k), guarded[T](t, n*k), guarded[T](t, m*n)
	copy(a, fill[T](m*k, r))
	copy(b, fill[T](n*k, r))
	for trans := range 4 {
		s := shape{transA: trans&1 == 1, transB: trans&2 == 2, m: m, n: n, k: k}
		lda, ldb, ldc := s.strides()
		Gemm(p, s.transA, s.transB, m, n, k, 1, a, lda, b, ldb, 1, c, ldc)
	}
}
