//go:build linux || darwin

package rescue

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// shortened is a mapped file that was cut to nothing.
func shortened(t testing.TB, size int) (path string, data []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "mapped")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(data) })
	t.Cleanup(Mapped(path, data))
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	return path, data
}

// TestShortenedFile: a read of what is no longer there is an error that names the file.
func TestShortenedFile(t *testing.T) {
	path, data := shortened(t, 1<<16)
	sum := byte(0)
	err := Do(func() error {
		for _, b := range data {
			sum += b
		}
		return nil
	})
	var changed *ChangedError
	if !errors.As(err, &changed) || changed.Path != path {
		t.Errorf("%v, %d", err, sum)
	}
	out := make([]byte, len(data))
	if err := Do(func() error { copy(out, data); return nil }); !errors.As(err, &changed) { // copy is assembly
		t.Error(err)
	}
	said := make(chan error, 1)
	was := Fatal
	defer func() { Fatal = was }()
	Fatal = func(err error) { said <- err }
	Go(func() { copy(out, data) })
	if err := <-said; !errors.As(err, &changed) {
		t.Error(err)
	}
}

// BenchmarkDo is what a guarded call costs.
func BenchmarkDo(b *testing.B) {
	for b.Loop() {
		_ = Do(func() error { return nil })
	}
}
