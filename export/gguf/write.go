package gguf

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

// ErrExists says that a file is there already.
var ErrExists = errors.New("it is there already")

// Size is how many bytes a file with this header has.
func (h Header) Size() (int64, error) {
	b, err := h.encode()
	size := int64(len(b))
	for _, t := range h.Tensors {
		size += padded(t.Bytes())
	}
	return size, err
}

// Write makes a file of a header and of the bytes that fill writes for tensor after tensor. It is written in the folder
// beside, on the same disk, read back and compared, and then gets its name; a run that fails or is stopped leaves
// nothing. The error is ErrExists where there is a file that may not be overwritten, and an *atomicfile.FullError where
// the disk has no room.
func Write(ctx context.Context, path, beside string, h Header, overwrite bool,
	fill func(i int, w io.Writer) error) error {
	if info, err := os.Lstat(path); err == nil && (!overwrite || info.IsDir()) {
		return ErrExists
	}
	if err := atomicfile.CheckOwn(path, "a GGUF file", Mark); err != nil {
		return err
	}
	size, err := h.Size()
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if free, ok := atomicfile.Free(dir); ok && free < size {
		return &atomicfile.FullError{Path: path, Needed: size, Free: free}
	}
	f, err := os.CreateTemp(beside, filepath.Base(path)+"-")
	if err != nil {
		var named *fs.PathError
		if errors.As(err, &named) {
			named.Path = path // not the temporary name
		}
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it has its name by then, or nobody wants it
	sums, err := write(ctx, f, h, fill)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = compare(ctx, f.Name(), h, sums)
	}
	if err == nil && !overwrite {
		if _, there := os.Lstat(path); there == nil { // since the look at the start
			err = ErrExists
		}
	}
	if err == nil {
		err = atomicfile.Install(f.Name(), path)
	}
	if err == nil {
		err = atomicfile.SyncDir(dir)
	}
	return atomicfile.Room(err, path, size)
}

type digest [sha256.Size]byte

// write gives the digests of the tensors' bytes.
func write(ctx context.Context, f io.Writer, h Header, fill func(i int, w io.Writer) error) ([]digest, error) {
	head, err := h.encode()
	if err != nil {
		return nil, err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	if _, err := w.Write(head); err != nil {
		return nil, err
	}
	sums := make([]digest, len(h.Tensors))
	for i, t := range h.Tensors {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c := &counter{w: w, sum: sha256.New()}
		if err := fill(i, c); err != nil {
			return nil, err
		}
		if c.n != t.Bytes() {
			return nil, fmt.Errorf("tensor %s: %d bytes were made of %d", t.Name, c.n, t.Bytes())
		}
		sums[i] = digest(c.sum.Sum(nil))
		if _, err := w.Write(make([]byte, padded(c.n)-c.n)); err != nil {
			return nil, err
		}
	}
	return sums, w.Flush()
}

type counter struct {
	w   io.Writer
	sum hash.Hash
	n   int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.sum.Write(b[:n])
	c.n += int64(n)
	return n, err
}

// compare reads a file back: the header must say what was meant, the tensors' bytes must be those that were written.
func compare(ctx context.Context, path string, h Header, sums []digest) error {
	const differs = "what was written is not what is read back, so the disk or the memory is at fault"
	f, err := Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", differs, err)
	}
	defer f.Close()
	want, err := h.encode()
	if err != nil {
		return err
	}
	if got, err := f.encode(); err != nil || !bytes.Equal(got, want) {
		return fmt.Errorf("%s: the header differs (%v)", differs, err)
	}
	for i, t := range f.Tensors {
		if err := ctx.Err(); err != nil {
			return err
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, f.Data(i)); err != nil {
			return fmt.Errorf("%s: tensor %s: %w", differs, t.Name, err)
		}
		if digest(sum.Sum(nil)) != sums[i] {
			return fmt.Errorf("%s: tensor %s differs", differs, t.Name)
		}
	}
	return nil
}
