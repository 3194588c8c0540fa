package gguf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

// sample is a header with every kind of value.
func sample() Header {
	return Header{KVs: []KV{
		{"general.architecture", "llama"}, {"a.bool", true}, {"a.u32", uint32(7)}, {"a.i32", int32(-7)},
		{"a.u64", uint64(1) << 40}, {"a.f32", float32(1e-5)},
		{"a.strings", []string{"", "a", "▁b"}}, {"a.floats", []float32{1, float32(math.Inf(-1))}},
		{"a.ints", []int32{-1, 2}}, {"a.uints", []uint32{1}},
		{"a.bools", []bool{true, false}}, {"a.bytes", []uint8{1, 2, 3}},
	}, Tensors: []Tensor{{"w", Q8_0, []int{64, 3}}, {"n", F32, []int{5}}, {"e", Q4_K, []int{256, 2, 2}}}}
}

// fill writes tensor i of sample.
func fill(h Header) func(i int, w io.Writer) error {
	return func(i int, w io.Writer) error {
		_, err := w.Write(bytes.Repeat([]byte{byte(i + 1)}, int(h.Tensors[i].Bytes())))
		return err
	}
}

func TestWriteAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	h := sample()
	if err := Write(context.Background(), path, filepath.Dir(path), h, false, fill(h)); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !reflect.DeepEqual(f.KVs, h.KVs) || !reflect.DeepEqual(f.Tensors, h.Tensors) {
		t.Errorf("read back %v, want %v", f.Header, h)
	}
	if f.Value("a.u32") != uint32(7) || f.Value("b") != nil {
		t.Error("values by their keys")
	}
	for i := range h.Tensors {
		data, err := io.ReadAll(f.Data(i))
		if err != nil || int64(len(data)) != h.Tensors[i].Bytes() ||
			bytes.Count(data, []byte{byte(i + 1)}) != len(data) {
			t.Errorf("tensor %d: %d bytes, %v", i, len(data), err)
		}
	}
	info, _ := os.Stat(path)
	if size, _ := h.Size(); size != info.Size() {
		t.Errorf("the size is said to be %d, the file has %d", size, info.Size())
	}
}

// TestFailedWriteLeavesNothing: whatever ends it, an old file stays and no other is left.
func TestFailedWriteLeavesNothing(t *testing.T) {
	h := sample()
	stopped, stop := context.WithCancel(context.Background())
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		ctx  context.Context
		fill func(i int, w io.Writer) error
		want string
	}{
		"stopped": {stopped, func(i int, w io.Writer) error { stop(); return fill(h)(i, w) }, "context canceled"},
		"broken":  {context.Background(), func(int, io.Writer) error { return broken }, "broken"},
		"short": {context.Background(), func(int, io.Writer) error {
			return nil
		}, "tensor w: 0 bytes were made of 204"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "m.gguf")
		if err := os.WriteFile(path, []byte(Mark+"old"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := Write(c.ctx, path, filepath.Dir(path), h, true, c.fill); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v", name, err)
		}
		entries, _ := os.ReadDir(dir)
		if old, _ := os.ReadFile(path); string(old) != Mark+"old" || len(entries) != 1 {
			t.Errorf("%s: the folder holds %v, the file %q", name, entries, old)
		}
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Write(context.Background(), path, filepath.Dir(path), h, false, fill(h)); !errors.Is(err, ErrExists) {
		t.Errorf("over a file that is there: %v", err)
	}
}

// TestChangedOnDisk: bytes that differ from what was written are found.
func TestChangedOnDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	h := sample()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	sums, err := write(context.Background(), f, h, fill(h))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := compare(context.Background(), path, h, sums); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(path)
	for name, at := range map[string]int{"tensor e differs": len(data) - 10, "the header differs": bytes.Index(data,
		[]byte("a.u64"))} {
		changed := bytes.Clone(data)
		changed[at] ^= 1
		if err := os.WriteFile(path, changed, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := compare(context.Background(), path, h, sums); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDiskFull(t *testing.T) {
	h := Header{Tensors: []Tensor{{"w", F32, []int{1 << 30, 1 << 20}}}}
	path := filepath.Join(t.TempDir(), "m.gguf")
	err := Write(context.Background(), path, filepath.Dir(path), h, false, fill(h))
	var full *atomicfile.FullError
	if !errors.As(err, &full) {
		t.Skipf("this system does not say what is free: %v", err)
	}
	if full.Path != path || full.Needed <= 4<<50 {
		t.Errorf("%v", err)
	}
}

func TestRefusedHeaders(t *testing.T) {
	for want, h := range map[string]Header{
		"stands there twice":                        {Tensors: []Tensor{{"a", F32, []int{1}}, {"a", F32, []int{1}}}},
		"no whole number of blocks of 256":          {Tensors: []Tensor{{"a", Q4_K, []int{64}}}},
		"0 dimensions":                              {Tensors: []Tensor{{"a", F32, nil}}},
		"every dimension must be 1 or more":         {Tensors: []Tensor{{"a", F32, []int{0}}}},
		"type 99 is not written":                    {Tensors: []Tensor{{"a", 99, []int{1}}}},
		"a name has 1 to 63 bytes":                  {Tensors: []Tensor{{strings.Repeat("a", 64), F32, []int{1}}}},
		`key "" is empty`:                           {KVs: []KV{{"", true}}},
		"key a: a value of type int is not written": {KVs: []KV{{"a", 1}}},
	} {
		if _, err := h.encode(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// encoded is a whole file.
func encoded(t testing.TB, h Header) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := write(context.Background(), &b, h, fill(h)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestBrokenFiles: each is refused, with the reason.
func TestBrokenFiles(t *testing.T) {
	good := encoded(t, sample())
	set := func(at int, with ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], with)
		return b
	}
	where := func(s string) int { return bytes.Index(good, []byte(s)) }
	for want, data := range map[string][]byte{
		"it does not begin with GGUF":                    set(0, 'X'),
		"it has version 9":                               set(4, 9),
		"it claims 18446744073709551615 tensors":         set(8, 255, 255, 255, 255, 255, 255, 255, 255),
		"the file ends within its header":                good[:where("a.bool")+8],
		"a text of 5 bytes does not fit into the 4 that": good[:100],
		"is cut short":                                   good[:len(good)-200],
		"stand behind the last tensor":                   append(bytes.Clone(good), make([]byte, 100)...),
		"values of type 77 are not read":                 set(where("a.bool")+6, 77),
		"a truth value is 2":                             set(where("a.bool")+10, 2),
		"lists of type 9 are not read":                   set(where("a.strings")+13, 9),
		"a list of 1099511627776 elements is too long":   set(where("a.floats")+16, 0, 0, 0, 0, 0, 1),
		"a list of 1048576 elements does not fit":        set(where("a.floats")+16, 0, 0, 16, 0, 0, 0),
		"a text of 1099511627777 bytes is too long":      set(where("general.arch")-8, 1, 0, 0, 0, 0, 1),
		"has 9 dimensions":                               set(where("w\x02\x00")+1, 9),
		"has a dimension of 0":                           set(where("w\x02\x00")+5, 0),
		`tensor "w" of F32 with the shape [1082130432 3] does not fit`: set(where("w\x02\x00")+5,
			append([]byte{0, 0, 128, 64, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}, 0)...),
		"begins at byte": set(where("w\x02\x00")+25, 32),
	} {
		if _, err := Read(bytes.NewReader(data), int64(len(data))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a folder: %v", err)
	}
}

// TestEveryByte: a file that ends anywhere is refused, and one of which any byte of the header is another is refused or
// is that other file, without a panic and with memory that is bounded by the file's size.
func TestEveryByte(t *testing.T) {
	good := encoded(t, sample())
	read := func(what string, data []byte) (*File, error) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f, err := Read(bytes.NewReader(data), int64(len(data)))
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<18+8*uint64(len(data)) {
			t.Errorf("%s: %d bytes of memory for %d of the file", what, n, len(data))
		}
		if err != nil && (len(err.Error()) > 400 || strings.Contains(err.Error(), "EOF")) {
			t.Errorf("%s: %v", what, err)
		}
		return f, err
	}
	for n := range good {
		if _, err := read(fmt.Sprintf("the first %d bytes", n), good[:n]); err == nil {
			t.Errorf("the first %d bytes are read as a file", n)
		}
	}
	header, err := sample().encode()
	if err != nil {
		t.Fatal(err)
	}
	for at := range header {
		for _, bits := range []byte{1, 0x80, 0xff} {
			data := bytes.Clone(good)
			data[at] ^= bits
			f, err := read(fmt.Sprintf("byte %d changed", at), data)
			if err != nil {
				continue
			}
			if again, err := f.encode(); err != nil || !bytes.Equal(again, data[:len(again)]) {
				t.Errorf("byte %d is %#x: another file is read (%v)", at, data[at], err)
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(encoded(f, sample()))
	f.Add([]byte("GGUF\x03\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Read(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		again, err := got.encode()
		if err != nil {
			t.Fatalf("read, but not written: %v", err)
		}
		if len(again) > len(data)+alignment {
			t.Errorf("a header of %d bytes was read from %d", len(again), len(data))
		}
	})
}
