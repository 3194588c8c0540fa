package weights

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// file puts a header and size bytes of data together.
func file(header string, size int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, size)...)
}

func TestHostileHeaders(t *testing.T) {
	one := func(fields string) string { return `{"a":{` + fields + `}}` }
	two := func(a, b string) string {
		return fmt.Sprintf(
			`{"a":{"dtype":"U8","shape":[4],"data_offsets":%s},"b":{"dtype":"U8","shape":[4],"data_offsets":%s}}`, a, b)
	}
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty file", nil, "the file has 0 bytes, too few"},
		{"seven bytes", make([]byte, 7), "the file has 7 bytes, too few"},
		{"no header", make([]byte, 8), "does not start with '{'"},
		{"length beyond the file", binary.LittleEndian.AppendUint64(nil, 3),
			"the header claims 3 bytes but only 0 follow"},
		{"header over 100 MB", binary.LittleEndian.AppendUint64(nil, 100_000_001),
			"claims 100000001 bytes, more than the allowed 100000000"},
		{"length of all ones", bytes.Repeat([]byte{255}, 16), "claims 18446744073709551615 bytes, more than"},
		{"not UTF-8", file("{\"\xff\":1}", 0), "not valid UTF-8"},
		{"leading space", file(` {}`, 0), "does not start with '{'"},
		{"a list", file(`[]`, 0), "does not start with '{'"},
		{"cut JSON", file(`{"a":`, 0), "header: byte 6: expected a value, found the end of the text"},
		{"text after the end", file(`{}{}`, 0),
			"header: byte 3: expected the end of the text, found '{' behind the value"},
		{"NUL padding", file("{}\x00\x00", 0), "header: byte 3: expected the end of the text"},
		{"tensor is a number", file(`{"a":1}`, 0), `"a": expected an object, found 1 (byte 6)`},
		{"metadata is not text", file(`{"__metadata__":{"a":1}}`, 0), "expected a string, found 1"},
		{"metadata key twice", file(`{"__metadata__":{"a":"","a":""}}`, 0), `duplicate name "a"`},
		{"metadata twice", file(`{"__metadata__":{},"__metadata__":{}}`, 0), `duplicate name "__metadata__"`},
		{"duplicate tensor",
			file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0), `duplicate name "a"`},
		{"duplicate by escape",
			file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0), `duplicate name "a"`},
		{"field twice", file(one(`"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]`), 1),
			`duplicate name "dtype"`},
		{"unknown field", file(one(`"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1`), 1), `unknown field "x"`},
		{"missing field", file(one(`"dtype":"U8","shape":[1]`), 1), "dtype, shape and data_offsets are all needed"},
		{"unknown dtype", file(one(`"dtype":"F128","shape":[1],"data_offsets":[0,16]`), 16),
			`"a": unknown dtype "F128"`},
		{"dtype in lower case", file(one(`"dtype":"f32","shape":[1],"data_offsets":[0,4]`), 4), `unknown dtype "f32"`},
		{"negative dimension", file(one(`"dtype":"U8","shape":[-1],"data_offsets":[0,1]`), 1),
			"shape: -1 is not a non-negative integer"},
		{"fraction", file(one(`"dtype":"U8","shape":[1.5],"data_offsets":[0,1]`), 1),
			"shape: 1.5 is not a non-negative integer"},
		{"exponent", file(one(`"dtype":"U8","shape":[1e3],"data_offsets":[0,1]`), 1),
			"shape: 1e3 is not a non-negative integer"},
		{"text dimension", file(one(`"dtype":"U8","shape":["1"],"data_offsets":[0,1]`), 1),
			`expected a number, found "1" (byte 31)`},
		{"nested shape", file(one(`"dtype":"U8","shape":[[1]],"data_offsets":[0,1]`), 1),
			"expected a number, found a list (byte 29)"},
		{"dimension over int64", file(one(`"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]`), 1),
			"dimension 9223372036854775808 is too large"},
		{"dimension over uint64", file(one(`"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1]`), 1),
			"not a non-negative integer of 64 bits"},
		{"rank 9", file(one(`"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]`), 1),
			"shape: more than 8 numbers"},
		{"shape product overflows", file(one(`"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]`), 0),
			"the size of shape [4294967296 4294967296] overflows"},
		{"byte size overflows", file(one(`"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]`),
			0), "overflows"},
		{"three offsets", file(one(`"dtype":"U8","shape":[1],"data_offsets":[0,1,2]`), 1),
			"data_offsets: more than 2 numbers"},
		{"one offset", file(one(`"dtype":"U8","shape":[1],"data_offsets":[0]`), 1),
			"data_offsets has 1 numbers, expected 2"},
		{"backwards", file(one(`"dtype":"U8","shape":[1],"data_offsets":[1,0]`), 1),
			"data_offsets [1,0] run backwards"},
		{"size does not fit the shape", file(one(`"dtype":"F32","shape":[2,3],"data_offsets":[0,20]`), 20),
			"F32 of shape [2 3] takes 24 bytes, data_offsets [0,20] give 20"},
		{"beyond the file", file(one(`"dtype":"F32","shape":[2],"data_offsets":[0,8]`), 7),
			"lie beyond the 7 bytes of data"},
		{"huge offset", file(one(`"dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615]`),
			1), "lie beyond the 1 bytes"},
		{"overlap", file(two("[0,4]", "[2,6]"), 6), `tensors "a" and "b" overlap at data offset 2`},
		{"same bytes twice", file(two("[0,4]", "[0,4]"), 4), `tensors "a" and "b" overlap at data offset 0`},
		{"gap", file(two("[0,4]", "[5,9]"), 9), `gap of 1 bytes before tensor "b"`},
		{"gap at the start", file(two("[1,5]", "[5,9]"), 9), `gap of 1 bytes before tensor "a"`},
		{"trailing data", file(two("[0,4]", "[4,8]"), 9), "1 bytes after the last tensor belong to none"},
		{"data without tensors", file(`{}`, 1), "1 bytes after the last tensor belong to none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.safetensors")
			if err := os.WriteFile(path, c.data, 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := Open(path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, expected %q and the path", err, c.want)
			}
		})
	}
}

func TestOddButValid(t *testing.T) {
	for _, header := range []string{
		`{}`, `{}     `, "{}\n", `{"__metadata__":{}}`,
		`{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}`,
		`{"a":{"data_offsets":[0,0],"shape":[0,4,18],"dtype":"I64"}, "b" : ` +
			`{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`,
	} {
		if _, err := Decode(file(header, 0)); err != nil {
			t.Errorf("%s: %v", header, err)
		}
	}
}

func TestOpenRefusesNonFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "is a folder, want a regular file") {
		t.Errorf("a folder: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "none")); !os.IsNotExist(err) && !strings.Contains(err.Error(),
		"no such file") {
		t.Errorf("an absent file: %v", err)
	}
}

// FuzzOpen: no input may panic, and what is accepted must survive being written
// and read again with the same bytes.
func FuzzOpen(f *testing.F) {
	python, err := os.ReadFile("testdata/python.safetensors")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(python)
	f.Add(file(`{}`, 0))
	f.Add(file(`{"a":{"dtype":"F32",}}`, 0))
	f.Add(file(`{"a":{"dtype":[1],"shape":{"b":2}}}`, 0))
	f.Add(file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8))
	f.Add(file(
		`{"__metadata__":{"a":"b"},"a":{"dtype":"F16","shape":[1,2],"data_offsets":[1,5]},"b":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}`, 5))
	f.Add(file(`{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		in, err := Decode(data)
		if err != nil {
			return
		}
		var tensors []Tensor
		for _, name := range in.Names() {
			tensor, _ := in.Tensor(name)
			tensors = append(tensors, tensor)
			if tensor.DType == F32 || tensor.DType == BF16 {
				if err := Float32s(tensor, make([]float32, tensor.Len())); err != nil {
					t.Fatal(err)
				}
			}
		}
		first, err := Encode(tensors, in.Metadata())
		if err != nil {
			t.Fatalf("accepted, but: %v", err)
		}
		again, err := Decode(first)
		if err != nil {
			t.Fatalf("our own bytes: %v", err)
		}
		for i := range tensors {
			back, _ := again.Tensor(tensors[i].Name)
			if back.DType != tensors[i].DType || fmt.Sprint(back.Shape) != fmt.Sprint(tensors[i].Shape) ||
				!bytes.Equal(back.Data, tensors[i].Data) {
				t.Fatalf("%q changed", tensors[i].Name)
			}
			tensors[i] = back
		}
		second, err := Encode(tensors, again.Metadata())
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("a second writing differs (%v)", err)
		}
	})
}
