package weights

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEncodeRefuses(t *testing.T) {
	byteTensor := func(name string) Tensor { return Tensor{Name: name, DType: U8, Shape: []int{1}, Data: []byte{1}} }
	for _, c := range []struct {
		tensors []Tensor
		meta    map[string]string
		want    string
	}{
		{[]Tensor{byteTensor("a"), byteTensor("a")}, nil, `duplicate tensor "a"`},
		{[]Tensor{byteTensor("__metadata__")}, nil, `tensor name "__metadata__" is not allowed`},
		{[]Tensor{byteTensor("\xff")}, nil, `tensor name "\xff" is not allowed`},
		{nil, map[string]string{"a": "\xff"}, `metadata "a" is not valid UTF-8`},
		{[]Tensor{{Name: "a", Shape: []int{1}, Data: []byte{1}}}, nil, "unknown dtype DType(0)"},
		{[]Tensor{{Name: "a", DType: F32, Shape: []int{2}, Data: make([]byte, 7)}}, nil,
			"7 bytes of data for F32 of shape [2]"},
		{[]Tensor{{Name: "a", DType: F32, Shape: []int{-1}}}, nil, "the size of shape [-1] overflows or is negative"},
		{[]Tensor{{Name: "a", DType: U8, Shape: make([]int, 9)}}, nil, "9 dimensions, at most 8"},
	} {
		if _, err := Encode(c.tensors, c.meta); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, expected %q", err, c.want)
		}
	}
}

func TestEncodeIsReproducible(t *testing.T) {
	a, b, c := tensor(t, "a", 1, 2), tensor(t, "b", 3), Tensor{Name: "c", DType: I64, Shape: []int{1},
		Data: make([]byte, 8)}
	meta := map[string]string{"z": "1", "a": "2", "m": "3", "b": "4"}
	first, err := Encode([]Tensor{a, b, c}, meta)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		again, err := Encode([]Tensor{c, b, a}, meta)
		if err != nil || !bytes.Equal(first, again) {
			t.Fatalf("order changes the bytes (%v)", err)
		}
	}
	if len(first)%8 != 4 || !bytes.HasPrefix(first[8:],
		[]byte(`{"__metadata__":{"a":"2","b":"4","m":"3","z":"1"},"c":`)) {
		t.Errorf("layout: %q", first)
	}
	if empty, err := Encode(nil, nil); err != nil || string(empty[8:]) != "{}      " {
		t.Errorf("nothing encodes to %q (%v)", empty, err)
	}
}

// TestWriteKeepsTheOld: a failed Write leaves the old file and nothing else, a
// good one replaces it even while it is mapped.
func TestWriteKeepsTheOld(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	if err := Write(path, []Tensor{tensor(t, "a", 1)}, nil); err != nil {
		t.Fatal(err)
	}
	mapped, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer mapped.Close()
	if err := Write(path, []Tensor{tensor(t, "a", 1), tensor(t, "a", 1)}, nil); err == nil ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("duplicate names: %v", err)
	}
	if err := Write(path, []Tensor{tensor(t, "a", 2, 3)}, nil); err != nil {
		t.Fatal(err)
	}
	var v [1]float32
	old, _ := mapped.Tensor("a")
	if err := Float32s(old, v[:]); err != nil || v[0] != 1 {
		t.Errorf("the mapped file changed: %v (%v)", v, err)
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 {
		t.Errorf("left in the folder: %v (%v)", list, err)
	}
	if err := Write(filepath.Join(dir, "no", "x.safetensors"), nil, nil); err == nil {
		t.Error("a missing folder is not an error")
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "folder"), nil, nil); err == nil {
		t.Error("writing over a folder is not an error")
	}
	if list, _ = os.ReadDir(dir); len(list) != 2 {
		t.Errorf("left in the folder: %v", list)
	}
}

// Values that are given apart, and a file that is written as it is made, are Encode's bytes.
func TestEncodeInParts(t *testing.T) {
	values := map[string][]float32{"b": {1, -2.5, 3}, "a": {0.1, 0.2, 0.3, 0.4}}
	var whole, apart []Tensor
	for _, name := range []string{"b", "a"} {
		x, err := FromFloat32s(name, F32, []int{len(values[name])}, values[name])
		if err != nil {
			t.Fatal(err)
		}
		whole, apart = append(whole, x), append(apart, Tensor{Name: name, DType: F32, Shape: x.Shape})
	}
	meta := map[string]string{"format": "pt"}
	want, err := Encode(whole, meta)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := EncodeFloat32s(apart, meta, values); err != nil || !bytes.Equal(got, want) {
		t.Errorf("values apart: %d bytes, %v, want %d", len(got), err, len(want))
	}
	var b bytes.Buffer
	if err := EncodeTo(&b, whole, meta); err != nil || !bytes.Equal(b.Bytes(), want) {
		t.Errorf("written: %d bytes, %v, want %d", b.Len(), err, len(want))
	}
	if _, err := EncodeFloat32s(apart, meta, map[string][]float32{"b": {1}}); err == nil {
		t.Error("missing values were accepted")
	}
}
