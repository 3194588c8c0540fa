// Package regular opens regular files and refuses everything else before it reads: a named pipe that nobody writes to
// would block for ever.
package regular

import (
	"fmt"
	"io/fs"
	"os"
)

// Open opens a regular file for reading, or a symbolic link to one.
func Open(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil {
		if err := Check(path, info); err != nil {
			return nil, err
		}
	}
	return os.Open(path)
}

// ReadFile reads a whole regular file.
func ReadFile(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil {
		if err := Check(path, info); err != nil {
			return nil, err
		}
	}
	return os.ReadFile(path)
}

// ReadFS reads a whole regular file of fsys.
func ReadFS(fsys fs.FS, path string) ([]byte, error) {
	if info, err := fs.Stat(fsys, path); err == nil {
		if err := Check(path, info); err != nil {
			return nil, err
		}
	}
	return fs.ReadFile(fsys, path)
}

// Check says what path is if it is no regular file; info is of what a symbolic link leads to.
func Check(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return fmt.Errorf("%s is %s, want a regular file", path, Kind(info))
}

// Kind words what a file is: "a named pipe (FIFO)".
func Kind(info fs.FileInfo) string {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return "a regular file"
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe (FIFO)"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	default:
		return fmt.Sprintf("of mode %v", mode.Type())
	}
}
