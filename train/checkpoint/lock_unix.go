//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package checkpoint

import (
	"errors"
	"os"
	"syscall"
)

// systemLock locks a file for this process without waiting. flock covers NFS too: Linux turns it into a lock on the
// server.
func systemLock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errHeld
		case errors.Is(err, syscall.ENOLCK), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EOPNOTSUPP),
			errors.Is(err, syscall.EINVAL):
			return errNoLocks
		}
		return err
	}
}

// processExists reports whether this machine has a process of that number.
func processExists(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// drop removes the lock file and releases the lock.
func (l *Lock) drop() error {
	// before the lock is released, so that a process waiting for the old file sees that it is gone
	err := os.Remove(l.path)
	if l.file != nil {
		err = errors.Join(err, l.file.Close())
	}
	return err
}
