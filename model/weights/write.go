package weights

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

// Encode returns a safetensors file with tensors and meta (nil = no __metadata__). The result does not depend on the
// order of tensors and equals that of the safetensors crate: metadata first (keys sorted), tensors by falling alignment
// of their type, then by name, header padded with spaces to 8 bytes.
func Encode(tensors []Tensor, meta map[string]string) ([]byte, error) {
	var b bytes.Buffer
	size := headerGuess(tensors)
	for _, t := range tensors {
		size += len(t.Data)
	}
	b.Grow(size)
	if err := encodeTo(&b, tensors, meta, ownData); err != nil {
		return nil, fmt.Errorf("encode safetensors: %w", err)
	}
	return b.Bytes(), nil
}

// EncodeTo writes what Encode returns.
func EncodeTo(w io.Writer, tensors []Tensor, meta map[string]string) error {
	if err := encodeTo(w, tensors, meta, ownData); err != nil {
		return fmt.Errorf("encode safetensors: %w", err)
	}
	return nil
}

// EncodeFloat32s does what Encode does for F32 tensors whose values are given by name instead of as Data.
func EncodeFloat32s(tensors []Tensor, meta map[string]string, values map[string][]float32) ([]byte, error) {
	size, buf := 0, []byte(nil)
	for _, v := range values {
		size += 4 * len(v)
	}
	var b bytes.Buffer
	b.Grow(headerGuess(tensors) + size)
	err := encodeTo(&b, tensors, meta, func(t Tensor, w io.Writer) error {
		buf = slices.Grow(buf[:0], 4*len(values[t.Name]))
		for _, x := range values[t.Name] {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(x))
		}
		_, err := w.Write(buf)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("encode safetensors: %w", err)
	}
	return b.Bytes(), nil
}

// headerGuess returns an upper estimate of a header's length: a buffer that has to grow holds the bytes twice for a
// moment.
func headerGuess(tensors []Tensor) int { return 4096 + 256*len(tensors) }

// Write stores tensors and meta in Encode's layout. It writes a temporary file in path's folder, syncs it and renames
// it, so that path has either its old content or all of the new.
func Write(path string, tensors []Tensor, meta map[string]string) error {
	return WriteEach(path, tensors, meta, ownData)
}

// Data writes a tensor's data in any number of pieces.
type Data func(t Tensor, w io.Writer) error

// WriteEach does what Write does, for tensors whose data is produced while writing: it calls data once for each tensor,
// in the order of the file, instead of using Data. If the disk is too full, it returns an *atomicfile.FullError with
// the file's size.
func WriteEach(path string, tensors []Tensor, meta map[string]string, data Data) error {
	size := int64(headerGuess(tensors))
	for _, t := range tensors {
		n, _ := byteSize(t.DType, t.Shape)
		size += int64(n)
	}
	err := replaceFile(path, func(w io.Writer) error { return encodeTo(w, tensors, meta, data) })
	if err = atomicfile.Room(err, path, size); err != nil {
		return fmt.Errorf("write safetensors file %s: %w", path, err)
	}
	return nil
}

// EncodeEach writes a safetensors file to w, of tensors whose data is produced while writing; see WriteEach.
func EncodeEach(w io.Writer, tensors []Tensor, meta map[string]string, data Data) error {
	return encodeTo(w, tensors, meta, data)
}

func ownData(t Tensor, w io.Writer) error {
	_, err := w.Write(t.Data)
	return err
}

// replaceFile writes a new file beside path, syncs it and renames it to path.
func replaceFile(path string, write func(io.Writer) error) (err error) {
	if err := atomicfile.Check(path); err != nil {
		return err
	}
	f, err := createBeside(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()           //nolint:errcheck // the first error is what matters
			os.Remove(f.Name()) //nolint:errcheck // likewise
		}
	}()
	if err = write(f); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = atomicfile.Install(f.Name(), path); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(path))
}

// createBeside creates a file next to path with the umask's permissions, which os.CreateTemp would restrict.
func createBeside(path string) (*os.File, error) {
	dir, base := filepath.Split(path)
	for i := 0; ; i++ {
		name := dir + "." + base + "." + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(i) + ".tmp"
		f, err := atomicfile.Create(name, 0o666)
		if !errors.Is(err, fs.ErrExist) || i == 1000 {
			return f, err
		}
	}
}

func encodeTo(w io.Writer, tensors []Tensor, meta map[string]string, data Data) error {
	sorted := slices.Clone(tensors)
	slices.SortFunc(sorted, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(b.DType, a.DType), cmp.Compare(a.Name, b.Name))
	})
	header, err := encodeHeader(sorted, meta)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for _, t := range sorted {
		counted := counter{w: w}
		if err := data(t, &counted); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if size, _ := byteSize(t.DType, t.Shape); size != counted.n {
			return fmt.Errorf("tensor %q: %d bytes of data for %s of shape %v", t.Name, counted.n, t.DType, t.Shape)
		}
	}
	return nil
}

// counter counts the bytes written through it.
type counter struct {
	w io.Writer
	n uint64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += uint64(n)
	return n, err
}

// encodeHeader returns the length field and the padded JSON.
func encodeHeader(sorted []Tensor, meta map[string]string) ([]byte, error) {
	b := append(make([]byte, 8, 1024), '{')
	if meta != nil {
		b = append(b, `"`+metadataKey+`":{`...)
		for i, k := range slices.Sorted(maps.Keys(meta)) {
			if !utf8.ValidString(k) || !utf8.ValidString(meta[k]) {
				return nil, fmt.Errorf("metadata %q is not valid UTF-8", k)
			}
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(append(appendString(b, k), ':'), meta[k])
		}
		b = append(b, '}')
	}
	seen := make(map[string]bool, len(sorted))
	at := uint64(0)
	for _, t := range sorted {
		size, ok := byteSize(t.DType, t.Shape)
		switch {
		case t.Name == metadataKey || !utf8.ValidString(t.Name):
			return nil, fmt.Errorf("tensor name %q is not allowed", t.Name)
		case seen[t.Name]:
			return nil, fmt.Errorf("duplicate tensor %q", t.Name)
		case t.DType.Size() == 0:
			return nil, fmt.Errorf("tensor %q: unknown dtype %s", t.Name, t.DType)
		case len(t.Shape) > maxRank:
			return nil, fmt.Errorf("tensor %q: %d dimensions, at most %d are allowed", t.Name, len(t.Shape), maxRank)
		case !ok:
			return nil, fmt.Errorf("tensor %q: the size of shape %v overflows or is negative", t.Name, t.Shape)
		}
		seen[t.Name] = true
		if len(b) > len("xxxxxxxx{") {
			b = append(b, ',')
		}
		b = append(appendString(b, t.Name), `:{"dtype":"`+t.DType.String()+`","shape":[`...)
		for i, n := range t.Shape {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(n), 10)
		}
		b = append(b, `],"data_offsets":[`...)
		b = append(strconv.AppendUint(b, at, 10), ',')
		at += size
		b = append(strconv.AppendUint(b, at, 10), `]}`...)
	}
	b = append(b, '}')
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	if len(b)-8 > maxHeader {
		return nil, fmt.Errorf("the header takes %d bytes, more than the allowed %d", len(b)-8, maxHeader)
	}
	binary.LittleEndian.PutUint64(b, uint64(len(b)-8))
	return b, nil
}

var shortEscapes = map[byte]byte{'"': '"', '\\': '\\', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}

// appendString writes s as JSON with only the required escapes; encoding/json escapes more, and the bytes would differ
// from the crate's.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		c := s[i]
		if e, ok := shortEscapes[c]; ok {
			b = append(b, '\\', e)
		} else if c < ' ' {
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return append(b, '"')
}
