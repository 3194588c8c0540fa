package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// The rule for every file that the program writes: a path is written to where nothing is there, or where a regular file
// of this very name is. A symbolic link is not followed, and a device, a pipe, a socket or a folder is never replaced.
// A file that is opened and written in place has one name only: a hard link would change another file. Where a user
// chose the path, what is there must also be of the program's own making (CheckOwn). All files are opened by this
// package for writing; a test of internal/lint holds that.

// ErrNotOurs is the error of a path that the program must not write to: a link, no regular file, or a file of others.
var ErrNotOurs = errors.New("it is not replaced")

// refused is an ErrNotOurs in words.
type refused struct{ text string }

func (r *refused) Error() string        { return r.text }
func (r *refused) Is(target error) bool { return target == ErrNotOurs }

func refusef(format string, args ...any) error { return &refused{fmt.Sprintf(format, args...)} }

// Check is an error where a path may not be written to.
func Check(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return checkInfo(path, info)
}

func checkInfo(path string, info fs.FileInfo) error {
	mode := info.Mode()
	what := ""
	switch {
	case mode.IsRegular():
		return nil
	case mode&fs.ModeSymlink != 0:
		return refusef(
			"%s is a symbolic link, and no link is written through: name the file itself, or remove the link", path)
	case mode.IsDir():
		what = "a folder"
	case mode&fs.ModeNamedPipe != 0:
		what = "a named pipe (FIFO)"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	default:
		what = fmt.Sprintf("of mode %v", mode.Type())
	}
	return refusef("%s is %s, want a regular file", path, what)
}

// headBytes is how much of a file is looked at for a mark.
const headBytes = 4096

// CheckOwn is Check, and an error where a file is there that holds something but none of the marks in its first 4 KiB:
// who named the path may have meant another file. what names files of this kind: "a report".
func CheckOwn(path, what string, marks ...string) error {
	if err := Check(path); err != nil {
		return err
	}
	f, err := openPlain(path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // read only
	head := make([]byte, headBytes)
	n, err := io.ReadFull(f, head)
	if n == 0 && errors.Is(err, io.EOF) {
		return nil
	}
	for _, m := range marks {
		if bytes.Contains(head[:n], []byte(m)) {
			return nil
		}
	}
	return refusef(
		"%s is there and is not %s that this program wrote, so it is not replaced: name another file, or remove it",
		path, what)
}

// Open opens a file to read and write it in place, and makes it where there is none. Its content stays.
func Open(path string, perm fs.FileMode) (*os.File, error) {
	return openOwn(path, os.O_RDWR|os.O_CREATE, perm)
}

// Truncate opens a file to be written from its start, and makes it where there is none. What it held is gone.
func Truncate(path string, perm fs.FileMode) (*os.File, error) {
	f, err := openOwn(path, os.O_WRONLY|os.O_CREATE, perm)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(0); err != nil {
		f.Close() //nolint:errcheck // nothing was written
		return nil, err
	}
	return f, nil
}

// Append opens a file to be written at its end, and makes it where there is none.
func Append(path string, perm fs.FileMode) (*os.File, error) {
	return openOwn(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, perm)
}

// Create makes a file that must not be there; else the error is fs.ErrExist.
func Create(path string, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
}

// openOwn opens a file without following a link, and looks at what was opened before anything is changed.
func openOwn(path string, flag int, perm fs.FileMode) (*os.File, error) {
	if err := Check(path); err != nil {
		return nil, err
	}
	f, err := openPlain(path, flag, perm)
	if err != nil {
		if cerr := Check(path); errors.Is(cerr, ErrNotOurs) { // it became one meanwhile
			err = cerr
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkInfo(path, info)
	}
	if err == nil && names(info) > 1 {
		err = refusef("%s is also another file's name (a hard link), which would be changed with it: remove it, or "+
			"name another file", path)
	}
	if err != nil {
		f.Close() //nolint:errcheck // nothing was changed
		return nil, err
	}
	return f, nil
}
