package gguf

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"math"
	"os"
	"testing"
)

// references are numbers and what ggml makes of them; testdata/make.py writes them.
func references(t *testing.T) (x []float32, types map[Type][2]string) {
	t.Helper()
	packed, err := os.Open("testdata/quants.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close() //nolint:errcheck // read only
	z, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Numbers []byte
		Types   map[string]struct {
			Bytes []byte
			Back  string `json:"back_sha256"`
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	x = make([]float32, len(file.Numbers)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(file.Numbers[4*i:]))
	}
	types = map[Type][2]string{}
	for typ := range storages {
		if r, ok := file.Types[typ.String()]; ok {
			types[typ] = [2]string{base64.StdEncoding.EncodeToString(r.Bytes), r.Back}
		}
	}
	return x, types
}

// TestQuantisersEqualGGML: every byte, and what the bytes stand for.
func TestQuantisersEqualGGML(t *testing.T) {
	x, types := references(t)
	if len(types) != 7 {
		t.Fatalf("%d types have a reference", len(types))
	}
	for typ, want := range types {
		y := make([]byte, len(x)/typ.Block()*typ.BlockBytes())
		typ.Quantise(x, y)
		ref, err := base64.StdEncoding.DecodeString(want[0])
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(y, ref) {
			at := 0
			for at < len(y) && y[at] == ref[at] {
				at++
			}
			t.Errorf("%v: byte %d of block %d differs", typ, at%typ.BlockBytes(), at/typ.BlockBytes())
		}
		back := make([]float32, len(x))
		typ.Dequantise(ref, back)
		sum := sha256.New()
		for _, v := range back {
			binary.Write(sum, binary.LittleEndian, v+0) //nolint:errcheck // a hash never fails
		}
		if got := hex.EncodeToString(sum.Sum(nil)); got != want[1] {
			t.Errorf("%v: other numbers come back", typ)
		}
	}
}

// TestPlainTypes: F32, F16 and BF16 there and back, rounded to nearest even.
func TestPlainTypes(t *testing.T) {
	for _, c := range []struct {
		typ     Type
		x, back float32
	}{
		{F32, 1.0000001, 1.0000001}, {F16, 1 + 1.0/2048, 1}, {F16, 1 + 3.0/2048, 1 + 2.0/1024}, {F16, -65504, -65504},
		{F16, 65520, float32(math.Inf(1))},
		{F16, 0x1p-24, 0x1p-24}, {F16, 0x1p-26, 0}, {BF16, 1 + 1.0/256, 1}, {BF16, 1 + 3.0/256, 1 + 2.0/128},
		{BF16, 1e38, 0x1.2cp126},
	} {
		y, back := make([]byte, c.typ.BlockBytes()), []float32{0}
		c.typ.Quantise([]float32{c.x}, y)
		if c.typ.Dequantise(y, back); back[0] != c.back {
			t.Errorf("%v: %v comes back as %v, want %v", c.typ, c.x, back[0], c.back)
		}
	}
}

// TestErrorFalls: more bits change less.
func TestErrorFalls(t *testing.T) {
	x := make([]float32, 4096)
	for i := range x {
		x[i] = float32(math.Sin(float64(i)*12.9898)) * float32(1+i%7)
	}
	last := math.Inf(1)
	for _, typ := range []Type{Q4_0, Q4_K, Q5_K, Q6_K, Q8_0, BF16, F16, F32} {
		y, back := make([]byte, len(x)/typ.Block()*typ.BlockBytes()), make([]float32, len(x))
		typ.Quantise(x, y)
		typ.Dequantise(y, back)
		var wrong float64
		for i := range x {
			d := float64(back[i]) - float64(x[i])
			wrong += d * d
		}
		if typ != BF16 && wrong >= last {
			t.Errorf("%v: the square error is %g, with fewer bits it was %g", typ, wrong, last)
		}
		if typ != BF16 {
			last = wrong
		}
	}
}
