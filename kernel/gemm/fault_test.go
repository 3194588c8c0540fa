//go:build linux || darwin

package gemm

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/kernel/simd"
)

// TestShortenedMapping: vector code on the pool's workers that reads a mapped file which was cut off is an error that
// names the file, and the pool serves on.
func TestShortenedMapping(t *testing.T) {
	const size, parts = 1 << 20, 64
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(data) //nolint:errcheck // a test
	defer rescue.Mapped(path, data)()
	if err := f.Truncate(size / 2); err != nil {
		t.Fatal(err)
	}
	halves := unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(data))), size/2)
	singles := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(data))), size/4)
	loops := simd.Best[float32]()
	pool := NewPool(4)
	defer pool.Close()
	out := make([]float32, size/2)
	for name, read := range map[string]func(i int){
		"bf16": func(i int) {
			loops.FromBF16(out[i*len(out)/parts:(i+1)*len(out)/parts],
				halves[i*len(halves)/parts:(i+1)*len(halves)/parts])
		},
		"dot": func(i int) {
			n := len(singles) / parts
			out[i] = loops.Dot(singles[i*n:(i+1)*n],
				singles[i*n:(i+1)*n])
		},
		"go": func(i int) { out[i] = singles[(i+1)*len(singles)/parts-1] },
	} {
		err := rescue.Do(func() error { pool.Parallel(parts, read); return nil })
		var changed *rescue.ChangedError
		if !errors.As(err, &changed) || changed.Path != path {
			t.Errorf("%s: %v", name, err)
		}
		if err := rescue.Do(func() error { pool.Parallel(parts, func(i int) { out[i] = 1 }); return nil }); err != nil {
			t.Errorf("%s: the pool afterwards: %v", name, err)
		}
	}
}
