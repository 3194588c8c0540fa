//go:build linux || darwin

package dataset

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps the first size bytes of a file read-only.
func mapFile(f *os.File, size int64) (data []byte, unmap func(), err error) {
	data, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	_ = unix.Madvise(data, unix.MADV_RANDOM) // rows are read in a shuffled order
	return data, func() { _ = unix.Munmap(data) }, nil
}

// lockNow takes the lock of a file for as long as it is open: errHeld where another process has it, another error where
// the file system has no locks.
func lockNow(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return errHeld
	}
	return err
}

// identify tells a file from another at the same path. Changed is the time that no program can set.
func identify(f *os.File) (identity, bool) {
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return identity{}, false
	}
	return identity{
		Size: s.Size, Device: uint64(s.Dev), Inode: s.Ino, Modified: s.Mtim.Nano(), Changed: s.Ctim.Nano(),
	}, true
}
