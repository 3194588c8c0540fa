//go:build unix

package weights

import (
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/internal/rescue"
)

// mapFile maps a regular file read-only. Reading it after another process has truncated it is a panic that rescue.Do
// turns into a ChangedError; unchanged detects a write that keeps the length. Replacing the file by a rename, as Write
// does, is safe.
func mapFile(path string) (m mapping, err error) {
	f, err := regular.Open(path)
	if err != nil {
		return mapping{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return mapping{}, err
	}
	size := info.Size()
	switch {
	case size == 0:
		return mapping{unmap: func() error { return nil }}, nil // a mapping cannot be empty
	case size > math.MaxInt:
		return mapping{}, fmt.Errorf("%s: %d bytes do not fit this machine's address space", path, size)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return mapping{}, fmt.Errorf("map %s: %w", path, err)
	}
	forget := rescue.Mapped(path, data)
	return mapping{
		data:      data,
		unmap:     func() error { forget(); return unix.Munmap(data) },
		unchanged: func() error { return unchanged(path, info) },
	}, nil
}

// unchanged returns a ChangedError if the file at path was written to since it had the state was. A removed or replaced
// file is not a change: the mapping still shows the old one.
func unchanged(path string, was os.FileInfo) error {
	now, err := os.Stat(path)
	if err != nil || !os.SameFile(was, now) {
		return nil
	}
	if now.Size() != was.Size() || !now.ModTime().Equal(was.ModTime()) {
		return &rescue.ChangedError{Path: path}
	}
	return nil
}

// release drops the whole pages of part from memory. part lies in mapped.
func release(mapped, part []byte) {
	page := uintptr(unix.Getpagesize())
	base, end := uintptr(unsafe.Pointer(unsafe.SliceData(mapped))), uintptr(len(mapped))
	from := uintptr(unsafe.Pointer(unsafe.SliceData(part))) - base
	to := from + uintptr(len(part))
	if from > end || to > end {
		return // part of another file
	}
	from, to = from/page*page, min((to+page-1)/page*page, end)
	unix.Madvise(mapped[from:to], unix.MADV_DONTNEED) //nolint:errcheck // it is advice
}
