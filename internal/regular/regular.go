// Package regular opens regular files and refuses everything else before it reads: a named pipe that nobody writes to
// would block for ever. What it reads whole is never a Git LFS pointer, which stands where a file was not fetched.
package regular

import (
	"bytes"
	"errors"
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
	data, err := os.ReadFile(path)
	return content(path, data, err)
}

// ReadFS reads a whole regular file of fsys.
func ReadFS(fsys fs.FS, path string) ([]byte, error) {
	if info, err := fs.Stat(fsys, path); err == nil {
		if err := Check(path, info); err != nil {
			return nil, err
		}
	}
	data, err := fs.ReadFile(fsys, path)
	return content(path, data, err)
}

// IsPointer says what a Git LFS pointer is and what to do, behind a file's name and "is".
const IsPointer = "a Git LFS pointer, not the content: run `git lfs pull` in the folder"

// Pointer reports whether a file that begins with head is a Git LFS pointer. 32 bytes are enough.
func Pointer(head []byte) bool {
	return bytes.HasPrefix(head, []byte("version https://git-lfs")) ||
		bytes.HasPrefix(head, []byte("version https://hawser.github.c"))
}

// content is what was read of a file, or an error where it is a Git LFS pointer.
func content(path string, data []byte, err error) ([]byte, error) {
	if err == nil && Pointer(data) {
		return nil, fmt.Errorf("%s is %s", path, IsPointer)
	}
	return data, err
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

// CheckPath refuses what is there and is no file: opening a named pipe waits for ever.
func CheckPath(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // whoever opens it says so
	case err != nil:
		return err
	}
	return Check(path, info)
}
