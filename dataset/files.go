package dataset

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tierlora/tierlora/dataset/source"
	"github.com/tierlora/tierlora/internal/regular"
)

type opener func(path string) (io.ReadCloser, error)

// disk is the file system of the machine. Unlike os.DirFS it takes paths as users write them.
type disk struct{}

func (disk) Open(name string) (fs.File, error)          { return os.Open(name) }
func (disk) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }
func (disk) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// openIn returns a function that opens files of fsys, which can be read more than once.
func openIn(fsys fs.FS) opener {
	return func(path string) (io.ReadCloser, error) {
		info, err := fs.Stat(fsys, path)
		if err := checkFile(path, info, err); err != nil {
			return nil, err
		}
		return fsys.Open(path)
	}
}

// checkFile rejects a path that is not a regular file. If Stat fails, opening the file reports the error.
func checkFile(path string, info fs.FileInfo, err error) error {
	if err != nil {
		return nil
	}
	if err := regular.Check(path, info); err != nil {
		return fmt.Errorf("%w: write the rows into a file first", err)
	}
	return nil
}

// reading returns the options for reading a file; f is the file itself, since Parquet needs random access.
func (c Config) reading(ctx context.Context, path string, f io.Reader) source.Options {
	o := source.Options{Path: path, TextBy: c.TextBy, Rows: c.span}
	if at, ok := f.(io.ReaderAt); ok {
		if file, ok := f.(fs.File); ok {
			if info, err := file.Stat(); err == nil {
				o.At, o.Size = contextReaderAt{ctx, at}, info.Size()
			}
		}
	}
	return o
}

// slashed returns a path in the form in which patterns and folders are looked up.
func slashed(fsys fs.FS, path string) string {
	if _, ok := fsys.(disk); ok {
		return filepath.ToSlash(path)
	}
	return path
}
