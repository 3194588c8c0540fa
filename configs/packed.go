package configs

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"time"
)

// packedEnding follows the name of an asset that is stored in gzip and read as if it were not.
const packedEnding = ".gzip"

// unpacking is a file system whose files with packedEnding are read without it, unpacked in memory.
type unpacking struct{ fs.FS }

// Open opens a file under its name without packedEnding.
func (u unpacking) Open(name string) (fs.File, error) {
	f, err := u.FS.Open(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	packed, missing := u.FS.Open(name + packedEnding)
	if missing != nil {
		return nil, err
	}
	defer packed.Close() //nolint:errcheck // it is in memory
	in, err := gzip.NewReader(packed)
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", name, err)
	}
	data, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", name, err)
	}
	return unpackedFile{bytes.NewReader(data), path.Base(name)}, nil
}

// unpackedFile is an open file of unpacking, and what is known of it.
type unpackedFile struct {
	*bytes.Reader
	name string
}

// Stat returns the file itself.
func (f unpackedFile) Stat() (fs.FileInfo, error) { return f, nil }

// Close has nothing to release.
func (unpackedFile) Close() error { return nil }

// Name returns the last part of the file's path.
func (f unpackedFile) Name() string { return f.name }

// Mode returns the mode of embedded files: regular, read only.
func (unpackedFile) Mode() fs.FileMode { return 0o444 }

// ModTime returns the zero time, as embedded files do.
func (unpackedFile) ModTime() time.Time { return time.Time{} }

// IsDir returns false.
func (unpackedFile) IsDir() bool { return false }

// Sys returns nil.
func (unpackedFile) Sys() any { return nil }
