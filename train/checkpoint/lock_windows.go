package checkpoint

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

// systemLock locks a byte far after the end of a file without waiting: other processes cannot read locked bytes, and
// they read who the holder is.
func systemLock(f *os.File) error {
	far := windows.Overlapped{OffsetHigh: 1 << 30}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, &far)
	switch {
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION), errors.Is(err, windows.ERROR_IO_PENDING):
		return errHeld
	case errors.Is(err, windows.ERROR_NOT_SUPPORTED), errors.Is(err, windows.ERROR_INVALID_FUNCTION),
		errors.Is(err, windows.ERROR_CALL_NOT_IMPLEMENTED):
		return errNoLocks
	}
	return err
}

// processExists reports whether this machine has a process of that number.
func processExists(pid int) bool {
	h, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(pid))
	if err != nil {
		return !errors.Is(err, windows.ERROR_INVALID_PARAMETER) // access denied means that another user owns it
	}
	defer windows.CloseHandle(h) // nothing was changed
	state, err := windows.WaitForSingleObject(h, 0)
	return err != nil || state != windows.WAIT_OBJECT_0
}

// drop releases the lock and removes its file, in this order: an open file cannot be removed. A file that remains is
// open in another process, which reads it, or which owns the folder now and removes the file itself.
func (l *Lock) drop() error {
	locked := l.file != nil
	if locked {
		if err := l.file.Close(); err != nil {
			return err
		}
	}
	err := atomicfile.WhileInUse(func() error { return os.Remove(l.path) })
	if errors.Is(err, fs.ErrNotExist) || locked && errors.Is(err, windows.ERROR_SHARING_VIOLATION) {
		err = nil
	}
	return err
}
