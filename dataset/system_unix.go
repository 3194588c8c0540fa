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

// lockNow locks a file as long as it is open. It returns errHeld if another process holds the lock, and another error
// if the file system has no locks.
func lockNow(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return errHeld
	}
	return err
}

// identify returns the identity of a file. No program can set its Changed time.
func identify(f *os.File) (identity, bool) {
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return identity{}, false
	}
	return identity{
		Size: s.Size, Device: uint64(s.Dev), Inode: s.Ino, Modified: s.Mtim.Nano(), Changed: s.Ctim.Nano(),
	}, true
}
