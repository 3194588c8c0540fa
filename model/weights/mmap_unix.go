//go:build unix

package weights

import (
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/internal/rescue"
)

// mapFile maps a regular file read-only. Reading it after it was shortened is a
// panic that rescue.Do makes a ChangedError; replacing the file by a rename, as
// Write does, is safe.
func mapFile(path string) (data []byte, unmap func() error, err error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	size := info.Size()
	switch {
	case size == 0:
		return nil, func() error { return nil }, nil // a mapping cannot be empty
	case size > math.MaxInt:
		return nil, nil, fmt.Errorf("%s: %d bytes do not fit this machine's address space", path, size)
	}
	data, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", path, err)
	}
	forget := rescue.Mapped(path, data)
	return data, func() error { forget(); return unix.Munmap(data) }, nil
}

// release drops the whole pages of part, which lies in a mapping.
func release(mapped, part []byte) {
	page := uintptr(unix.Getpagesize())
	base, end := uintptr(unsafe.Pointer(unsafe.SliceData(mapped))), uintptr(len(mapped))
	from := uintptr(unsafe.Pointer(unsafe.SliceData(part))) - base
	to := from + uintptr(len(part))
	if from > end || to > end {
		return // of another file
	}
	from, to = from/page*page, min((to+page-1)/page*page, end)
	unix.Madvise(mapped[from:to], unix.MADV_DONTNEED) //nolint:errcheck // it is advice
}
