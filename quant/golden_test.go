package quant

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/kernel/simd"
)

// tensor is one of a reference file. DType is the SafeTensors name; Data is little endian.
type tensor struct {
	DType string
	Shape []int
	Data  []byte
}

func unzipped(raw []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// readTensors returns a SafeTensors file as name -> tensor: this package may import
// no other of the module's.
func readTensors(t testing.TB, path string) map[string]tensor {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err == nil && filepath.Ext(path) == ".gz" {
		raw, err = unzipped(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(raw)
	var header map[string]json.RawMessage
	if err := json.Unmarshal(raw[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	out := map[string]tensor{}
	for name, text := range header {
		if name == "__metadata__" {
			continue
		}
		var e struct {
			DType   string
			Shape   []int
			Offsets [2]uint64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(text, &e); err != nil {
			t.Fatal(err)
		}
		out[name] = tensor{e.DType, e.Shape, raw[8+n+e.Offsets[0] : 8+n+e.Offsets[1]]}
	}
	return out
}

func floats(t testing.TB, x tensor) []float32 {
	t.Helper()
	var out []float32
	switch x.DType {
	case "F32":
		for i := 0; i < len(x.Data); i += 4 {
			out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(x.Data[i:])))
		}
	case "BF16":
		for i := 0; i < len(x.Data); i += 2 {
			out = append(out, math.Float32frombits(uint32(binary.LittleEndian.Uint16(x.Data[i:]))<<16))
		}
	case "F16":
		for i := 0; i < len(x.Data); i += 2 {
			out = append(out, fromHalf(binary.LittleEndian.Uint16(x.Data[i:])))
		}
	default:
		t.Fatalf("no floats in %s", x.DType)
	}
	return out
}

func fromHalf(h uint16) float32 {
	exp, frac := int(h>>10&31), float64(h&1023)
	v := math.Ldexp(frac, -24)
	if exp > 0 {
		v = math.Ldexp(1024+frac, exp-25)
	}
	return float32(math.Copysign(v, 1-2*float64(h>>15)))
}

// sameBits fails at the first value that differs in any bit.
func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: value %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// sameDigest fails where the SHA-256 of the values' little-endian bytes is not want.
func sameDigest(t *testing.T, what string, got []float32, want []byte) {
	t.Helper()
	raw := make([]byte, 0, 4*len(got))
	for _, v := range got {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	if sum := sha256.Sum256(raw); !bytes.Equal(sum[:], want) {
		t.Errorf("%s: the SHA-256 of the values is %x, want %x", what, sum, want)
	}
}

func ulps(a, b float32) int {
	d := int(math.Float32bits(a)) - int(math.Float32bits(b))
	return max(d, -d)
}

func TestTablesAreBitsandbytes(t *testing.T) {
	g := readTensors(t, "testdata/nf4.safetensors.gz")
	sameBits(t, "nf4 table", nf4Table[:], floats(t, g["nf4.code"]))
	sameBits(t, "nf4 thresholds", nf4Thresholds[:15], floats(t, g["nf4.thresholds"]))
	sameBits(t, "dynamic table", NestedTable[:], floats(t, g["dynamic.signed"]))
}

const stories = "../configs/assets/stories260K/model.safetensors"

// input returns what bitsandbytes quantised in a case, and its rows and columns. The last word of the case is the type:
// float32 values are in g, or are a weight of model; bfloat16 and float16 values are the float32 values rounded.
func input(t testing.TB, g, model map[string]tensor, key string) (x []float32, rows, cols int) {
	t.Helper()
	dot := strings.LastIndex(key, ".")
	in, ok := g[key[:dot]+".float32.input"]
	if !ok {
		in = model[key[:dot]]
	}
	x = floats(t, in)
	for i, v := range x {
		switch key[dot:] {
		case ".bfloat16":
			x[i] = simd.FromBF16(simd.ToBF16(v))
		case ".float16":
			x[i] = simd.FromF16(simd.ToF16(v))
		}
	}
	return x, in.Shape[0], in.Shape[1]
}

func TestGoldenCases(t *testing.T) {
	g := readTensors(t, "testdata/nf4.safetensors.gz")
	model := readTensors(t, stories)
	cases := 0
	for name := range g {
		key, ok := strings.CutSuffix(name, ".packed")
		if !ok {
			continue
		}
		cases++
		t.Run(key, func(t *testing.T) {
			x, rows, cols := input(t, g, model, key)
			p, err := Quantise(x, rows, cols, Config{Bits: 4, Type: "nf4", BlockSize: 64})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(p.Codes, g[key+".packed"].Data) {
				t.Error("packed bytes differ")
			}
			sameBits(t, "absmax", p.Absmax, floats(t, g[key+".absmax"]))
			y := make([]float32, len(x))
			p.Dequantise(y)
			sameDigest(t, "dequantised", y, g[key+".dequantised.sha256"].Data)

			nested, err := Quantise(x, rows, cols, Default())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(nested.Codes, p.Codes) {
				t.Error("nested: packed bytes differ from the plain ones")
			}
			if !slices.Equal(nested.AbsmaxU8, g[key+".nested.absmax_u8"].Data) {
				t.Error("nested absmax codes differ")
			}
			// The reference's offset is a float32 mean in its own order of
			// summation: one ulp, and absmax2 moves as much, rounded once.
			offset := floats(t, g[key+".nested.offset"])[0]
			if ulps(nested.Offset, offset) > 1 {
				t.Errorf("offset %v, want %v", nested.Offset, offset)
			}
			want2 := floats(t, g[key+".nested.absmax2"])
			for i, a := range nested.Absmax2 {
				if nested.Offset == offset && a != want2[i] ||
					math.Abs(float64(a-want2[i])) > math.Abs(float64(nested.Offset-offset)) && ulps(a, want2[i]) > 1 {
					t.Errorf("absmax2[%d] = %v, want %v", i, a, want2[i])
				}
			}
			nested.Offset, nested.Absmax2 = offset, want2
			restored := make([]float32, nested.Blocks())
			for i := range restored {
				restored[i] = nested.Scale(i)
			}
			sameBits(t, "restored absmax", restored, floats(t, g[key+".nested.absmax_restored"]))
			nested.Dequantise(y)
			sameDigest(t, "nested dequantised", y, g[key+".nested.dequantised.sha256"].Data)
		})
	}
	if cases != 15 {
		t.Errorf("%d cases, want 15", cases)
	}
}

// stored returns a weight that bitsandbytes serialised.
func stored(t testing.TB, g map[string]tensor, name string) Packed {
	t.Helper()
	var state struct {
		Type   string `json:"quant_type"`
		Block  int    `json:"blocksize"`
		Shape  []int
		Nested int     `json:"nested_blocksize"`
		Offset float64 `json:"nested_offset"`
	}
	if err := json.Unmarshal(g[name+".quant_state.bitsandbytes__nf4"].Data, &state); err != nil {
		t.Fatal(err)
	}
	p := Packed{Scheme: Schemes[state.Type], Rows: state.Shape[0], Cols: state.Shape[1], BlockSize: state.Block,
		Codes: g[name].Data}
	if state.Nested == 0 {
		p.Absmax = floats(t, g[name+".absmax"])
		return p
	}
	if state.Nested != NestedBlock {
		t.Fatalf("%s: scales in blocks of %d", name, state.Nested)
	}
	p.AbsmaxU8, p.Absmax2, p.Table2 = g[name+".absmax"].Data, floats(t, g[name+".nested_absmax"]),
		floats(t, g[name+".nested_quant_map"])
	p.Offset = float32(state.Offset)
	return p
}

// The parts of a weight have the names, types, sizes and contents of bitsandbytes' tensors.
func TestPartsAreBitsandbytes(t *testing.T) {
	for run, nested := range map[string]bool{"qlora_nf4": false, "qlora_nf4_double": true} {
		g := readTensors(t, "../internal/golden/testdata/train/"+run+"/base_nf4.safetensors.gz")
		weights := 0
		for name := range g {
			if !strings.HasSuffix(name, ".weight") {
				continue
			}
			weights++
			p := stored(t, g, name)
			c := Config{Bits: 4, Type: "nf4", BlockSize: 64, DoubleQuant: nested}
			bytes := int64(0)
			for _, part := range c.Parts(p.Rows, p.Cols) {
				var got []float32
				bytes += int64(part.Len)
				if part.Floats != nil {
					got = part.Floats(&p)
					bytes += 3 * int64(part.Len)
				} else {
					for _, b := range part.Bytes(&p) {
						got = append(got, float32(b))
					}
				}
				want := []float32{p.Offset} // which the file has in its state
				if part.Suffix != ".nested_offset" {
					x := g[name+part.Suffix]
					if (x.DType == "F32") != (part.Floats != nil) {
						t.Errorf("%s%s is %s", name, part.Suffix, x.DType)
					}
					if want = nil; x.DType == "F32" {
						want = floats(t, x)
					} else {
						for _, b := range x.Data {
							want = append(want, float32(b))
						}
					}
				}
				if len(got) != part.Len {
					t.Errorf("%s%s has %d elements, %d are declared", name, part.Suffix, len(got), part.Len)
				}
				sameBits(t, name+part.Suffix, got, want)
			}
			if bytes != p.Bytes() || c.Size(p.Rows, p.Cols) != p.Bytes() {
				t.Errorf("%s: %d bytes in parts, %d stored, %d said", name, bytes, p.Bytes(), c.Size(p.Rows, p.Cols))
			}
		}
		if weights != 35 {
			t.Errorf("%s: %d weights, want 35", run, weights)
		}
	}
}

// The declared lengths are those of the packed weight, for whole blocks and short ones.
func TestPartsHaveTheirLength(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {3, 7}, {1, 64}, {128, 128}, {129, 128}, {257, 191}} {
		for _, nested := range []bool{false, true} {
			c := Config{Bits: 4, Type: "nf4", BlockSize: 64, DoubleQuant: nested}
			p := mustQuantise(t, random(size[0]*size[1], 5), size[0], size[1], c)
			for _, part := range c.Parts(size[0], size[1]) {
				have := 0
				if part.Floats != nil {
					have = len(part.Floats(&p))
				} else {
					have = len(part.Bytes(&p))
				}
				if have != part.Len {
					t.Errorf("%v: %s has %d elements, %d are declared", size, part.Suffix, have, part.Len)
				}
			}
			if c.Size(size[0], size[1]) != p.Bytes() {
				t.Errorf("%v: %d bytes, %d are said", size, p.Bytes(), c.Size(size[0], size[1]))
			}
		}
	}
}

// Files made by bitsandbytes' CUDA kernels, from the project anamnesis.
func TestCUDAReferences(t *testing.T) {
	paths, err := filepath.Glob("testdata/*_nf4*.bin")
	if err != nil {
		t.Fatal(err)
	}
	if data := os.Getenv("TRAINER_DATA"); data != "" {
		more, err := filepath.Glob(filepath.Join(data, "nf4/bnb_reference/*_nf4*.bin"))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, more...)
	}
	if len(paths) < 2 {
		t.Fatalf("only %d reference files", len(paths))
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var head [9]int
		for i := range head {
			head[i] = int(binary.LittleEndian.Uint32(raw[4*i:]))
		}
		at := 40
		part := func(size int) []byte { at += size; return raw[at-size : at] }
		codes, scales, table := part(head[3]), part(head[4]), tensor{"F32", nil, part(head[5])}
		absmax2, nestedTable, want := tensor{"F32", nil, part(head[6])}, tensor{"F32", nil, part(head[7])},
			part(head[8])
		p := Packed{Scheme: Schemes["nf4"], Rows: 1, Cols: head[1], BlockSize: head[2], Codes: codes}
		sameBits(t, "table", floats(t, table), nf4Table[:])
		if head[0] == 2 {
			p.Table2 = floats(t, nestedTable)
			sameBits(t, "nested table", p.Table2, MapCUDA.Table())
			p.AbsmaxU8, p.Absmax2 = scales, floats(t, absmax2)
			p.Offset = math.Float32frombits(binary.LittleEndian.Uint32(raw[36:]))
		} else {
			p.Absmax = floats(t, tensor{"F32", nil, scales})
		}
		if len(p.Codes) != (head[1]+1)/2 || len(p.Absmax)+len(p.AbsmaxU8) != p.Blocks() {
			t.Fatalf("%s: %d bytes of codes and %d scales for %d weights", path, len(p.Codes),
				len(p.Absmax)+len(p.AbsmaxU8), head[1])
		}
		y := make([]float32, p.Len())
		p.Dequantise(y)
		for i, v := range y {
			if got, want := toBF16(v), binary.LittleEndian.Uint16(want[2*i:]); got != want {
				t.Fatalf("%s: value %d is %#x, want %#x", path, i, got, want)
			}
		}
	}
}

// toBF16 rounds to nearest even.
func toBF16(v float32) uint16 {
	b := math.Float32bits(v)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// Every projection of a whole model, quantised here and by bitsandbytes.
func TestModelQuantised(t *testing.T) {
	model := readTensors(t, stories)
	for run, nested := range map[string]bool{"qlora_nf4": false, "qlora_nf4_double": true} {
		g := readTensors(t, "../internal/golden/testdata/train/"+run+"/base_nf4.safetensors.gz")
		offsets, weights := 0, 0
		for name, w := range model {
			if _, ok := g[name]; !ok {
				continue
			}
			weights++
			want := stored(t, g, name)
			got := mustQuantise(t, floats(t, w), w.Shape[0], w.Shape[1],
				Config{Bits: 4, Type: "nf4", BlockSize: 64, DoubleQuant: nested})
			if !slices.Equal(got.Codes, want.Codes) || !slices.Equal(got.AbsmaxU8, want.AbsmaxU8) {
				t.Errorf("%s %s: codes differ", run, name)
			}
			sameBits(t, name, got.Absmax, want.Absmax)
			if d := ulps(got.Offset, want.Offset); d > 1 {
				t.Errorf("%s %s: offset is %d ulps off", run, name, d)
			} else {
				offsets += d
			}
		}
		if weights != 35 {
			t.Errorf("%s: %d weights, want 35", run, weights)
		}
		t.Logf("%s: %d of %d offsets differ by one ulp (another order of summation)", run, offsets, weights)
	}
}
