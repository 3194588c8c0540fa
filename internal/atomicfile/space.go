package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// FullError is a file that there is no room for: the disk is full, or a quota or a limit on the size of files is
// reached.
type FullError struct {
	Path   string
	Needed int64 // bytes of the file, or of what was to be added to it
	Free   int64 // bytes on its disk; -1 = not known
	Err    error // what the system said; nil = nothing was written, because it would not have fitted
}

func (e *FullError) Error() string {
	free := "the free space of its disk is not known"
	if e.Free >= 0 {
		free = bytesText(e.Free) + " are free on its disk"
	}
	text := fmt.Sprintf("no room for %s: %s are needed, %s", e.Path, bytesText(e.Needed), free)
	if errors.Is(e.Err, syscall.EFBIG) {
		text += ", but a limit on the size of files is reached (ulimit -f)"
	} else if e.Err != nil {
		text += " (" + e.Err.Error() + ")"
	}
	return text
}

func (e *FullError) Unwrap() error { return e.Err }

// bytesText writes bytes exactly, and shortened where they are many.
func bytesText(n int64) string {
	exact := strconv.FormatInt(n, 10) + " bytes"
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%s (%.1f GiB)", exact, float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%s (%.1f MiB)", exact, float64(n)/(1<<20))
	}
	return exact
}

// Room makes an error of a failure to write so many bytes into a file a *FullError where there was no room for them.
// Any other error, and nil, stays as it is.
func Room(err error, path string, needed int64) error {
	var full *FullError
	if err == nil || errors.As(err, &full) || !isFull(err) {
		return err
	}
	if of := (*os.PathError)(nil); errors.As(err, &of) {
		err = of.Err // its path may be a temporary one
	}
	full = &FullError{path, needed, -1, err}
	if free, ok := Free(filepath.Dir(path)); ok {
		full.Free = free
	}
	return full
}

// Free is the bytes that this user may still write into a folder that is there. ok is false where nobody says.
func Free(dir string) (free int64, ok bool) { return freeBytes(dir) }
