//go:build gpu && linux

package cuda

import (
	"bytes"
	"math"
	"testing"
)

// functions are the bytes of bitsandbytes' CPU functions for FP4 and int8.
const functions = "../../internal/golden/testdata/prequantised/functions.safetensors.gz"

var functionCases = map[string]string{"normal": "f32", "zeros": "f32", "outlier": "f32", "ties": "f32", "tiny": "f32",
	"bf16": "bf16", "f16": "f16"}

// TestInt8Goldens: int8_dequantise makes bitsandbytes' values, rounded once, and writes nothing else.
func TestInt8Goldens(t *testing.T) {
	r := newHarness(t, 16<<20)
	g := goldensOf(t, functions)
	for c := range functionCases {
		shape := g.head[c+".input"].Shape
		rows, cols := shape[0], shape[1]
		want := f32Floats(g.bytes(c + ".int8.dequantised"))
		out := r.repeat(func() [][]byte {
			w := r.out("w", int64(2*rows*cols))
			r.run(Int8Dequantise(rows, cols), w, in(r, "code", g.bytes(c+".int8.cb")),
				in(r, "scale", g.bytes(c+".int8.scb")), int32(cols))
			return [][]byte{get[byte](r, w, 2*rows*cols)}
		})
		for i, got := range bfFloats(out[0]) {
			if got != round(want[i]) {
				t.Fatalf("%s: value %d is %v, want %v", c, i, got, round(want[i]))
			}
		}
	}
}

// TestInt8Sizes: rows that are no multiple of 8, and rows of several blocks.
func TestInt8Sizes(t *testing.T) {
	r := newHarness(t, 256<<20)
	for _, s := range [][2]int{{1, 1}, {3, 7}, {5, 8}, {2, 2049}, {3, 2056}, {1000, 1000}, {7, 100003}} {
		rows, cols := s[0], s[1]
		code, scale := make([]byte, rows*cols), make([]float32, rows)
		for i := range code {
			code[i] = byte(i*37 + i/251)
		}
		for i := range scale {
			scale[i] = 0.01 * float32(i+1)
		}
		out := r.repeat(func() [][]byte {
			w := r.out("w", int64(2*rows*cols))
			r.run(Int8Dequantise(rows, cols), w, in(r, "code", code), in(r, "scale", scale), int32(cols))
			return [][]byte{get[byte](r, w, 2*rows*cols)}
		})
		for i, got := range bfFloats(out[0]) {
			step := float32(7.874015718698502e-3)
			if want := round(float64(float32(float32(int8(code[i]))*scale[i/cols]) * step)); got != want {
				t.Fatalf("%v: value %d is %v, want %v", s, i, got, want)
			}
		}
	}
}

// TestNF4FP4Goldens: FP4 is packed as bitsandbytes' CPU function does, from every type, and dequantised to its values.
func TestNF4FP4Goldens(t *testing.T) {
	r := newHarness(t, 16<<20)
	g := goldensOf(t, functions)
	code := append([]byte{}, g.bytes("fp4.code")...)
	for c, kind := range functionCases {
		shape := g.head[c+".input"].Shape
		n := shape[0] * shape[1]
		blocks := (n + 63) / 64
		out := r.repeat(func() [][]byte {
			packed, absmax, w := r.out("packed", int64(n/2)), r.out("absmax", int64(4*blocks)), r.out("w", int64(4*n))
			r.run(NF4Quantise("nf4_quantise_fp4_"+kind, int64(n)), packed, absmax, in(r, "x", g.bytes(c+".input")),
				int64(n))
			r.run(NF4Dequantise("nf4_dequantise_f32", int64(n)), w, packed, in(r, "code", code), absmax, int64(n))
			return [][]byte{get[byte](r, packed, n/2), get[byte](r, absmax, 4*blocks), get[byte](r, w, 4*n)}
		})
		if !bytes.Equal(out[0], g.bytes(c+".fp4.packed")) || !bytes.Equal(out[1], g.bytes(c+".fp4.absmax")) {
			t.Errorf("%s: packed otherwise", c)
		}
		want := f32Floats(g.bytes(c + ".fp4.dequantised"))
		for i, got := range f32Floats(out[2]) {
			if math.Abs(got-want[i]) > 2e-7*math.Abs(want[i]) { // the device's table is package quant's in a run
				t.Fatalf("%s: value %d is %v, want %v", c, i, got, want[i])
			}
		}
	}
}
