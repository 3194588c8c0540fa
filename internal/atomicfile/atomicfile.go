// Package atomicfile is how the program writes files: either the old one is there or the whole new one, whatever
// happens in between, and only what may be written to is (rule.go).
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Write replaces a file: a temporary one beside it is written, synced and renamed. The error is a *FullError where the
// disk has no room for it, and an ErrNotOurs where something else than a regular file is there.
func Write(path string, data []byte) error { return WritePrivate(path, data, 0o644) }

// WritePrivate is Write with the permissions of the file.
func WritePrivate(path string, data []byte, perm fs.FileMode) error {
	if err := Check(path); err != nil {
		return err
	}
	return Room(write(path, data, perm), path, int64(len(data)))
}

func write(path string, data []byte, perm fs.FileMode) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		var named *fs.PathError
		if errors.As(err, &named) {
			named.Path = path // not the temporary name
		}
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(perm)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = Install(f.Name(), path)
	}
	if err == nil {
		err = SyncDir(dir)
	}
	return err
}

// Rename is os.Rename, which on Windows waits a moment for others that have the file open, or one inside the folder.
func Rename(from, to string) error { return WhileInUse(func() error { return os.Rename(from, to) }) }

// Install gives a whole file its name, where Check lets that be written to.
func Install(from, path string) error {
	if err := Check(path); err != nil {
		return err
	}
	return Rename(from, path)
}

// SyncDir makes the names in a folder durable, where the system can.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // folders can't be synced there
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
