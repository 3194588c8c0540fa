//go:build gpu && linux

package cuda

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
	"sort"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/kernel/simd"
)

// goldens are bitsandbytes' own numbers, shared with package quant.
type goldens struct {
	data []byte
	head map[string]struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
}

func openGoldens(t *testing.T) goldens {
	return goldensOf(t, "../../quant/testdata/nf4.safetensors.gz")
}

func goldensOf(t *testing.T, path string) goldens {
	b, err := os.ReadFile(path)
	if err == nil && filepath.Ext(path) == ".gz" {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(b)); err == nil {
			b, err = io.ReadAll(z)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(b)
	g := goldens{data: b[8+n:]}
	if err := json.Unmarshal(b[8:8+n], &g.head); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g goldens) bytes(name string) []byte {
	h, ok := g.head[name]
	if !ok {
		panic("golden " + name)
	}
	return g.data[h.Offsets[0]:h.Offsets[1]]
}

// nf4Input returns the bytes of the n values that bitsandbytes quantised in a case, and their type as kernels name it.
// The last word of the case is the type: float32 values are in g, or are a weight of model; bfloat16 and float16 values
// are the float32 values rounded.
func nf4Input(g, model goldens, c string) (input []byte, kind string, n int) {
	dot := strings.LastIndex(c, ".")
	name := c[:dot] + ".float32.input"
	if _, ok := g.head[name]; ok {
		input = g.bytes(name)
	} else {
		input = model.bytes(c[:dot])
	}
	n = len(input) / 4
	if c[dot:] == ".float32" {
		return input, "f32", n
	}
	kind, to := "bf16", simd.ToBF16
	if c[dot:] == ".float16" {
		kind, to = "f16", simd.ToF16
	}
	rounded := make([]byte, 0, 2*n)
	for i := range n {
		v := math.Float32frombits(binary.LittleEndian.Uint32(input[4*i:]))
		rounded = binary.LittleEndian.AppendUint16(rounded, to(v))
	}
	return rounded, kind, n
}

func TestNF4Goldens(t *testing.T) {
	r := newHarness(t, 64<<20)
	g := openGoldens(t)
	model := goldensOf(t, "../../configs/assets/stories260K/model.safetensors")
	var cases []string
	for k := range g.head {
		if c, ok := strings.CutSuffix(k, ".packed"); ok {
			cases = append(cases, c)
		}
	}
	sort.Strings(cases)
	for _, c := range cases {
		input, kind, n := nf4Input(g, model, c)
		blocks := (n + 63) / 64
		offset := g.bytes(c + ".nested.offset")
		out := r.repeat(func() [][]byte {
			packed, absmax := r.out("packed", int64((n+1)/2)), r.out("absmax", int64(4*blocks))
			r.run(NF4Quantise("nf4_quantise_"+kind, int64(n)), packed, absmax, in(r, "w", input),
				int64(n))
			scale8, scale2, off := r.out("scale8", int64(blocks)), r.out("scale2", int64(4*((blocks+255)/256))),
				r.out("offset", 4)
			code, table := in(r, "code", g.bytes("nf4.code")), in(r, "map", g.bytes("dynamic.signed"))
			r.run(Sum("nf4", "nf4_offset"), off, absmax, i32(blocks))
			mean := get[byte](r, off, 4)
			offset := in(r, "golden offset", offset)
			r.run(NF4Nest(blocks), scale8, scale2, absmax, table, offset, i32(blocks))
			w32, n32, w16, n16 := r.out("w32", int64(4*n)), r.out("n32", int64(4*n)), r.out("w16", int64(2*n)),
				r.out("n16", int64(2*n))
			r.run(NF4Dequantise("nf4_dequantise_f32", int64(n)), w32, packed, code, absmax, int64(n))
			r.run(NF4Dequantise("nf4_dequantise", int64(n)), w16, packed, code, absmax, int64(n))
			r.run(NF4Dequantise("nf4_dequantise_nested_f32", int64(n)), n32, packed, code, scale8, table,
				in(r, "golden scale2", g.bytes(c+".nested.absmax2")), offset, int64(n))
			r.run(NF4Dequantise("nf4_dequantise_nested", int64(n)), n16, packed, code, scale8, table, scale2, offset,
				int64(n))
			return [][]byte{get[byte](r, packed, (n+1)/2), get[byte](r, absmax, 4*blocks), get[byte](r, scale8, blocks),
				get[byte](r, scale2, 4*((blocks+255)/256)),
				mean, get[byte](r, w32, 4*n), get[byte](r, n32, 4*n), get[byte](r, w16, 2*n), get[byte](r, n16, 2*n)}
		})
		for i, name := range []string{".packed", ".absmax", ".nested.absmax_u8", ".nested.absmax2"} {
			if !bytes.Equal(out[i], g.bytes(c+name)) {
				t.Errorf("%s%s differs", c, name)
			}
		}
		for i, name := range []string{".dequantised", ".nested.dequantised"} {
			if sum := sha256.Sum256(out[5+i]); !bytes.Equal(sum[:], g.bytes(c+name+".sha256")) {
				t.Errorf("%s%s differs", c, name)
			}
		}
		a, b := f32Floats(out[4])[0], f32Floats(offset)[0]
		if math.Abs(a-b) > math.Abs(b)*1.2e-7 {
			t.Errorf("%s: offset %v, want %v to the last place", c, a, b)
		}
		for i, name := range []string{".dequantised", ".nested.dequantised"} {
			want := f32Floats(out[5+i]) // which the digest above compares
			for k, got := range bfFloats(out[7+i]) {
				if got != round(want[k]) {
					t.Fatalf("%s%s in bf16: value %d is %v, want %v", c, name, k, got, round(want[k]))
				}
			}
		}
	}
	if len(cases) < 10 {
		t.Errorf("only %d cases", len(cases))
	}
}

// Sizes that are no multiple of a block, of 8 or of 2, and one that spans many blocks of threads.
func TestNF4Sizes(t *testing.T) {
	r := newHarness(t, 256<<20)
	g := openGoldens(t)
	code := f32Floats(g.bytes("nf4.code"))
	for _, n := range []int{1, 7, 63, 64, 65, 8191, 8200, 1000003} {
		blocks := (n + 63) / 64
		var w []float64
		out := r.repeat(func() [][]byte {
			wb, wf := r.random(n, 0.02)
			w = wf
			packed, absmax, back := r.out("packed", int64((n+1)/2)), r.out("absmax", int64(4*blocks)),
				r.out("back", int64(2*n))
			r.run(NF4Quantise("nf4_quantise_bf16", int64(n)), packed, absmax, in(r, "w", wb), int64(n))
			r.run(NF4Dequantise("nf4_dequantise", int64(n)), back, packed, in(r, "code", g.bytes("nf4.code")), absmax,
				int64(n))
			return [][]byte{get[byte](r, packed, (n+1)/2), get[byte](r, absmax, 4*blocks), get[byte](r, back, 2*n)}
		})
		absmax, back := f32Floats(out[1]), bfFloats(out[2])
		for i := range w {
			c := out[0][i/2] >> 4
			if i%2 == 1 {
				c = out[0][i/2] & 15
			}
			if want := round(float64(float32(code[c]) * float32(absmax[i/64]))); back[i] != want {
				t.Fatalf("n %d: value %d is %v, want %v", n, i, back[i], want)
			}
			if math.Abs(back[i]-w[i]) > 0.17*absmax[i/64] {
				t.Fatalf("n %d: value %d came back as %v from %v, absmax %v", n, i, back[i], w[i], absmax[i/64])
			}
		}
		if n%2 == 1 && out[0][n/2]&15 != 7 {
			t.Errorf("n %d: the missing last value has code %d, want 7", n, out[0][n/2]&15)
		}
	}
}

// TestNF4NotFinite: one number that is not finite makes its block's absmax and the mean not finite, and nothing else.
func TestNF4NotFinite(t *testing.T) {
	r := newHarness(t, 64<<20)
	const n = 100003
	for _, bad := range []uint16{0x7fc0, 0xffc1, 0x7f80, 0xff80} {
		for _, at := range []int{0, 63, 64, 50000, n - 1} {
			out := r.repeat(func() [][]byte {
				w, _ := r.random(n, 0.02)
				w[at] = bad
				packed, absmax, mean := r.out("packed", (n+1)/2), r.out("absmax", 4*((n+63)/64)), r.out("mean", 4)
				r.run(NF4Quantise("nf4_quantise_bf16", n), packed, absmax, in(r, "w", w), int64(n))
				r.run(Sum("nf4", "nf4_offset"), mean, absmax, i32((n+63)/64))
				return [][]byte{get[byte](r, absmax, 4*((n+63)/64)), get[byte](r, mean, 4)}
			})
			finite := func(x float64) bool { return x-x == 0 }
			for i, x := range f32Floats(out[0]) {
				if finite(x) != (i != at/64) {
					t.Errorf("pattern %x at %d: absmax of block %d is %v", bad, at, i, x)
				}
			}
			if m := f32Floats(out[1])[0]; finite(m) {
				t.Errorf("pattern %x at %d: the mean is %v", bad, at, m)
			}
		}
	}
}
