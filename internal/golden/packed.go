package golden

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// packings are the endings of packed reference files: gzip, of the bytes in their order or of those at every second or
// fourth place together, zstd for the few that repeat themselves over more than gzip's 32 KiB, for a copy of
// another file a line with that file's place in testdata, for a file that resembles another such a line and the
// difference, for an adapter that is compared within a tolerance its values as multiples of FixedStep, and for a
// tokenizer.json zstd of its text without the tokens that its merges make. pack.py packs them.
var packings = []string{".gz", ".gz2", ".gz4", ".zst", ".same", ".near", ".fixed", ".bpe"}

// FixedStep is the distance of the values that a .fixed file can hold. Each is the reference's value rounded to the
// nearest, so a test that compares with one lowers its tolerance by FixedStep/2 and proves at least as much.
const FixedStep = 0x1p-14

// planes are how many places the bytes of a gzip file are sorted by.
var planes = map[string]int{".gz2": 2, ".gz4": 4}

// unpack is what the packed bytes of the file name hold.
func unpack(name string, packed []byte) ([]byte, error) {
	switch ending := filepath.Ext(name); ending {
	case ".zst":
		return unzstd(packed)
	case ".bpe":
		return withMerged(packed)
	case ".fixed":
		return unfixed(packed)
	default:
		return unzip(packed, planes[ending])
	}
}

func unzstd(packed []byte) ([]byte, error) {
	z, err := zstd.NewReader(nil)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	return z.DecodeAll(packed, nil)
}

// withMerged returns the tokenizer.json whose text packed holds without the last tokens of the vocabulary, which are
// the merges in their order.
func withMerged(packed []byte) ([]byte, error) {
	text, err := unzstd(packed)
	if err != nil {
		return nil, err
	}
	head, vocab, found := strings.Cut(string(text), "\n    \"vocab\": {\n")
	vocab, rest, foundMerges := strings.Cut(vocab, "\n    },\n    \"merges\": [\n")
	merges, tail, foundEnd := strings.Cut(rest, "\n    ]\n")
	if !found || !foundMerges || !foundEnd {
		return nil, fmt.Errorf("%d bytes hold no vocabulary before merges", len(text))
	}
	var b strings.Builder
	b.WriteString(head + "\n    \"vocab\": {\n" + vocab)
	id, separator := strings.Count(vocab, "\n")+1, "\n"
	for line := range strings.SplitSeq(merges, "\n") {
		token := strings.ReplaceAll(strings.TrimSuffix(strings.TrimSpace(line), ","), " ", "")
		fmt.Fprintf(&b, "%s      %s: %d", separator, token, id)
		id, separator = id+1, ",\n"
	}
	b.WriteString("\n    },\n    \"merges\": [\n" + merges + "\n    ]\n" + tail)
	return []byte(b.String()), nil
}

// unzip is what gzip's bytes hold, sorted by n places; 0 = in their order.
func unzip(packed []byte, n int) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	sorted, err := io.ReadAll(z)
	if err != nil || n == 0 {
		return sorted, err
	}
	b, from := make([]byte, len(sorted)), 0
	for place := range n {
		for i := place; i < len(b); i += n {
			b[i] = sorted[from]
			from++
		}
	}
	return b, nil
}

// unfixed returns the SafeTensors file of float32 tensors whose values packed holds as int16 multiples of FixedStep.
func unfixed(packed []byte) ([]byte, error) {
	b, err := unzip(packed, 2)
	if err != nil {
		return nil, err
	}
	if len(b) < 8 || binary.LittleEndian.Uint64(b) > uint64(len(b)-8) {
		return nil, fmt.Errorf("%d bytes hold no header", len(b))
	}
	head := 8 + int(binary.LittleEndian.Uint64(b))
	out := bytes.Clone(b[:head])
	for at := head; at+2 <= len(b); at += 2 {
		v := float32(int16(binary.LittleEndian.Uint16(b[at:]))) * FixedStep
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out, nil
}

// Unpacked is what the packed file at path holds.
func Unpacked(t testing.TB, path string) []byte {
	t.Helper()
	packed := ReadFile(t, path)
	if ending := filepath.Ext(path); ending == ".same" || ending == ".near" {
		place, difference, _ := bytes.Cut(packed, []byte("\n"))
		other := filepath.Join(Root(t), "internal", "golden", "testdata", filepath.FromSlash(string(place)))
		if ending == ".near" {
			return differing(t, path, Unpacked(t, other), difference)
		}
		path, packed = other, ReadFile(t, other)
	}
	b, err := unpack(path, packed)
	if err != nil {
		t.Fatalf("unpack %s: %v", path, err)
	}
	return b
}

// differing is what the file at path holds: packed is its difference from first.
func differing(t testing.TB, path string, first, packed []byte) []byte {
	t.Helper()
	b, err := unzip(packed, 4)
	if err == nil && len(b) != len(first) {
		err = fmt.Errorf("a difference of %d bytes from a file of %d", len(b), len(first))
	}
	if err != nil {
		t.Fatalf("unpack %s: %v", path, err)
	}
	for i := range b {
		b[i] ^= first[i]
	}
	return b
}

// unpackedFile writes what the packed file holds into a folder, under the file's name without the packing's ending.
func unpackedFile(t testing.TB, path, dir string) string {
	t.Helper()
	to := filepath.Join(dir, strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)))
	if err := os.WriteFile(to, Unpacked(t, path), 0o644); err != nil {
		t.Fatal(err)
	}
	return to
}

// unpackedFolder is the folder itself where nothing in it is packed, else a copy with all of it unpacked.
func unpackedFolder(t testing.TB, dir string) string {
	t.Helper()
	var files []string
	packed := false
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, path)
			packed = packed || slices.Contains(packings, filepath.Ext(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !packed {
		return dir
	}
	to := filepath.Join(t.TempDir(), filepath.Base(dir))
	for _, path := range files {
		place := filepath.Join(to, strings.TrimPrefix(filepath.Dir(path), dir))
		if err := os.MkdirAll(place, 0o755); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(packings, filepath.Ext(path)) {
			unpackedFile(t, path, place)
		} else if err := os.WriteFile(filepath.Join(place, filepath.Base(path)), ReadFile(t, path), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return to
}
