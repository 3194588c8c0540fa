package source

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow is the most memory that a zstd file may require for decompression: the most that `zstd --long` uses by
// default.
const maxWindow = 128 << 20

// packedError is the error of a damaged compressed file.
type packedError struct {
	format string
	err    error
}

func (e *packedError) Error() string { return e.format + ": " + e.err.Error() }
func (e *packedError) Unwrap() error { return e.err }

// unpack returns the contents of a gzip or zstd file as a stream; nil if the file is neither.
func unpack(in *bufio.Reader, head []byte) (io.Reader, func(), error) {
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, nil, inPlainWords(&packedError{"gzip", err})
		}
		return unpacking{"gzip", z, in}, func() {}, nil
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")),
		// a skippable frame, with which pzstd begins
		len(head) > 4 && head[0]&0xf0 == 0x50 && string(head[1:4]) == "\x2a\x4d\x18":
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, inPlainWords(&packedError{"zstd", err})
		}
		return unpacking{"zstd", z, in}, z.Close, nil
	}
	return nil, func() {}, nil
}

// unpacking marks the errors of a decompressor.
type unpacking struct {
	format string
	r      io.Reader
	file   *bufio.Reader
}

func (u unpacking) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &packedError{u.format, err}
	}
	return n, err
}

// inPlainWords explains the error of a compressed file; an error of the disk stays unchanged.
func inPlainWords(err error) error {
	var packed *packedError
	if !errors.As(err, &packed) {
		return err
	}
	var corrupt flate.CorruptInputError
	format, cause := packed.format, packed.err
	switch {
	case errors.Is(cause, io.ErrUnexpectedEOF):
		return &FileError{0, "the file ends in the middle of its " + format + " data: it is cut off"}
	case errors.Is(cause, gzip.ErrChecksum), errors.Is(cause, zstd.ErrCRCMismatch):
		return &FileError{0, "the file's " + format + " data is damaged: its checksum does not match"}
	case errors.Is(cause, gzip.ErrHeader):
		return &FileError{0, "the file's " + format + " header is damaged, or something else follows its data"}
	case errors.Is(cause, zstd.ErrWindowSizeExceeded), errors.Is(cause, zstd.ErrDecoderSizeExceeded):
		return &FileError{0, fmt.Sprintf("the file's zstd window is larger than %s: compress it again with a smaller "+
			"one", byteSize(maxWindow))}
	case errors.As(cause, &corrupt), zstdDamage(cause):
		return &FileError{0, "the file's " + format + " data is damaged"}
	}
	return cause
}

// zstdDamage reports whether an error means that the bytes are not valid zstd.
func zstdDamage(err error) bool {
	for _, known := range []error{zstd.ErrMagicMismatch, zstd.ErrReservedBlockType, zstd.ErrCompressedSizeTooBig,
		zstd.ErrBlockTooSmall,
		zstd.ErrUnexpectedBlockSize, zstd.ErrUnknownDictionary, zstd.ErrFrameSizeExceeded, zstd.ErrFrameSizeMismatch, zstd.ErrWindowSizeTooSmall} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}
