//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package atomicfile

import (
	"io/fs"
	"os"
)

// openPlain opens a file and refuses one that is not what its name says: a link is followed by the system here, but is
// another file than the one that Lstat finds.
func openPlain(path string, flag int, perm fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	opened, err := f.Stat()
	if err == nil {
		var named fs.FileInfo
		if named, err = os.Lstat(path); err == nil && !os.SameFile(opened, named) {
			if err = checkInfo(path, named); err == nil {
				err = &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist} // another file has the name by now
			}
		}
	}
	if err != nil {
		f.Close() //nolint:errcheck // nothing was changed
		return nil, err
	}
	return f, nil
}

// names is how many names a file has, which is not looked at here.
func names(fs.FileInfo) int { return 1 }
