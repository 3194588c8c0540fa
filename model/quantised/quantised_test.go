package quantised

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
)

// source is a checkpoint whose tensors a test changes.
type source map[string]weights.Tensor

func (s source) Names() []string {
	var names []string
	for name := range s {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s source) Tensor(name string) (weights.Tensor, bool) { t, ok := s[name]; return t, ok }

func folder(t testing.TB, name string) source {
	t.Helper()
	return open(t, "prequantised/"+name+"/model.safetensors")
}

// open reads a golden's tensors.
func open(t testing.TB, path string) source {
	t.Helper()
	f, err := weights.Open(golden.Path(t, path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	s := source{}
	for _, name := range f.Names() {
		s[name], _ = f.Tensor(name)
	}
	return s
}

var (
	nested = model.Quantization{Method: model.BitsAndBytes, Bits: 4, Type: "nf4", DoubleQuant: true}
	plain  = model.Quantization{Method: model.BitsAndBytes, Bits: 4, Type: "nf4"}
	eight  = model.Quantization{Method: model.BitsAndBytes, Bits: 8}
)

const (
	up      = "model.layers.0.mlp.up_proj.weight"
	upState = up + ".quant_state.bitsandbytes__nf4"
)

func TestBrokenFolders(t *testing.T) {
	edit := func(name, old, new string) func(s source) {
		return func(s source) {
			x := s[name]
			if !bytes.Contains(x.Data, []byte(old)) {
				t.Fatalf("%s has no %s: %s", name, old, x.Data)
			}
			x.Data = bytes.Replace(x.Data, []byte(old), []byte(new), 1)
			x.Shape = []int{len(x.Data)}
			s[name] = x
		}
	}
	without := func(names ...string) func(s source) {
		return func(s source) {
			for _, name := range names {
				if _, ok := s[name]; !ok {
					t.Fatalf("there is no %s", name)
				}
				delete(s, name)
			}
		}
	}
	for _, c := range []struct {
		folder string
		q      *model.Quantization
		break_ func(s source)
		want   string
	}{
		{"nf4_nested", &nested, without(up + ".absmax"), up + ".absmax is missing: " + up +
			" can't be dequantised without it"},
		{"nf4_nested", &nested, without(up + ".quant_map"), up + ".quant_map is missing: " + up + " can't"},
		{"nf4_nested", &nested, without(up + ".nested_absmax"), up + ".nested_absmax is missing: " + up + " can't"},
		{"nf4_nested", &nested, without(up + ".nested_quant_map"), up + ".nested_quant_map is missing: " +
			up + " can't"},
		{"nf4_nested", &nested, without(up), up + " is missing: " + up + " can't"},
		{"nf4_nested", &nested, without(upState), "quantised weights: " + up + " is quantised, but " + upState +
			" is missing"},
		{"nf4", &plain, without(upState, up+".absmax", up+".quant_map"), "quantised weights: " + up +
			" is quantised, but " + upState + " is missing"},
		{"int8", &eight, without("model.layers.0.mlp.up_proj.SCB"), "model.layers.0.mlp.up_proj.SCB is missing: " +
			up + " can't"},
		{"int8", &eight, without(up), "model.layers.0.mlp.up_proj.SCB belongs to no quantised weight: " +
			"model.layers.0.mlp.up_proj.weight as I8 is missing"},
		{"int8", &eight, func(s source) {
			x := s["model.layers.0.mlp.up_proj.weight_format"]
			x.Data = []byte{2}
			s[x.Name] = x
		}, "model.layers.0.mlp.up_proj.weight_format is not 0: only weights in rows are read"},
		{"nf4_nested", &nested, edit(upState, `"blocksize": 64`, `"blocksize": 128`), upState +
			" has blocks of 128 weights; blocks of 64 are supported"},
		{"nf4_nested", &nested, edit(upState, `"nested_blocksize": 256`, `"nested_blocksize": 512`), upState +
			" has scales in blocks of 512"},
		{"nf4_nested", &nested, edit(upState, `"nf4"`, `"fp4"`), upState +
			` has quant_type "fp4"; config.json has bnb_4bit_quant_type "nf4"`},
		{"nf4_nested", &nested, edit(upState, `"bfloat16"`, `"int4"`), upState + ` has dtype "int4"`},
		{"nf4_nested", &nested, edit(upState, `"shape": [516, 32]`, `"shape": [516, 33]`), up +
			" has 8256 bytes of codes, not 8514 for the shape [516 33]"},
		{"nf4_nested", &nested, edit(upState, `"shape": [516, 32]`, `"shape": [16512]`), upState +
			": shape is [16512]; a quantised weight is a matrix"},
		{"nf4_nested", &nested, edit(upState, `"shape": [516, 32]`, `"shape": [-1, 32]`), upState +
			": shape is [-1 32]"},
		{"nf4_nested", &nested, edit(upState, `{`, `[`), upState + ": "},
		{"nf4_nested", &nested, func(s source) {
			x := s[up+".absmax"]
			x.DType = weights.F32
			s[x.Name] = x
		}, up + ".absmax is F32, not U8"},
		{"nf4", &plain, func(s source) {
			x := s[up+".absmax"]
			x.Shape = []int{257}
			s[x.Name] = x
		}, up + ".absmax has 257 elements, not 258"},
		{"nf4", &plain, func(s source) {
			x := s[up+".quant_map"]
			x.Data = make([]byte, len(x.Data))
			s[x.Name] = x
		}, up + ".quant_map is not the table of nf4"},
		{"nf4", &nested, func(source) {}, "has scales in blocks of 0; config.json has bnb_4bit_use_double_quant"},
		{"nf4_nested", &plain, func(source) {},
			"has scales in 8 bits; config.json has bnb_4bit_use_double_quant false"},
		{"fp4", &plain, func(source) {}, `has quant_type "fp4"; config.json has bnb_4bit_quant_type "nf4"`},
		{"original", &plain, func(source) {}, "no weight is quantised, though config.json has a quantization_config"},
		{"nf4", nil, func(source) {}, "is bitsandbytes', but config.json has no quantization_config"},
	} {
		s := folder(t, c.folder)
		c.break_(s)
		_, err := Open(s, c.q)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v\nwant %s", err, c.want)
		}
	}
}

// TestTableOfItsOwn: a folder whose scales are codes into another table than bitsandbytes' two keeps them as numbers;
// with that of its CUDA code they stay codes. The values are the table's.
func TestTableOfItsOwn(t *testing.T) {
	for _, c := range []struct {
		lowest float32
		nested bool
		is     quant.NestedMap
	}{{-1, true, quant.MapCPU}, {-0.99296874, true, quant.MapCUDA}, {-0.75, false, quant.MapCPU}} {
		s := folder(t, "nf4_nested")
		x := s[up+".nested_quant_map"]
		x.Data = bytes.Clone(x.Data)
		binary.LittleEndian.PutUint32(x.Data, math.Float32bits(c.lowest))
		s[x.Name] = x
		codes := s[up+".absmax"]
		codes.Data = bytes.Clone(codes.Data)
		codes.Data[3] = 0 // the code of the lowest entry
		s[codes.Name] = codes
		ck, err := Open(s, &nested)
		if err != nil {
			t.Fatal(err)
		}
		cfg := *ck.Config(up)
		if cfg.DoubleQuant != c.nested || cfg.Map != c.is {
			t.Errorf("lowest %v: stored as %+v", c.lowest, cfg)
		}
		p, _ := ck.Packed(up)
		want := float32(c.lowest*p.Absmax2[0]) + p.Offset
		if p.Scale(3) != want {
			t.Errorf("lowest %v: a scale is %v, want %v", c.lowest, p.Scale(3), want)
		}
		for _, part := range cfg.Parts(p.Rows, p.Cols) {
			if part.Floats != nil && part.Suffix == ".absmax" && part.Floats(&p)[3] != want {
				t.Errorf("lowest %v: the part %s has %v, want %v", c.lowest, part.Suffix, part.Floats(&p)[3], want)
			}
		}
	}
}

// TestRenamedFolders: the names that count are the network's, whatever the file calls its tensors.
func TestRenamedFolders(t *testing.T) {
	for name, q := range map[string]*model.Quantization{"nf4_nested": &nested, "int8": &eight} {
		s, renamed := folder(t, name), source{}
		for old, x := range s {
			renamed[strings.Replace(old, "model.", "model.language_model.", 1)] = x
		}
		ck, err := Open(renamed, q)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if ck.Quantised() != 7 {
			t.Errorf("%s: %d quantised weights, want 7", name, ck.Quantised())
		}
	}
}

// TestBytesStayInTheFile: what is packed lies in the file's memory.
func TestBytesStayInTheFile(t *testing.T) {
	for name, q := range map[string]*model.Quantization{"nf4": &plain, "nf4_nested": &nested, "int8": &eight} {
		s := folder(t, name)
		ck, err := Open(s, q)
		if err != nil {
			t.Fatal(err)
		}
		n := testing.AllocsPerRun(10, func() {
			if _, ok := ck.Packed(up); !ok {
				t.Error("it is not packed")
			}
		})
		if p, _ := ck.Packed(up); n > 0 || &p.Codes[0] != &s[up].Data[0] {
			t.Errorf("%s: %v allocations, codes of their own", name, n)
		}
	}
}

// FuzzState: no state makes the reader panic, and what it takes is consistent.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [516, 32], ` +
		`"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.5}`))
	f.Add([]byte(`{"quant_type": "nf4", "blocksize": 0, "dtype": "bfloat16", "shape": [1, 1099511627776]}`))
	f.Add([]byte(`{"shape": [9223372036854775807, 9223372036854775807]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := source{
			"x.weight":        {Name: "x.weight", DType: weights.U8, Shape: []int{32, 1}, Data: make([]byte, 32)},
			"x.weight.absmax": {Name: "x.weight.absmax", DType: weights.F32, Shape: []int{1}, Data: make([]byte, 4)},
			"x.weight.quant_map": {Name: "x.weight.quant_map", DType: weights.F32, Shape: []int{16},
				Data: make([]byte, 64)},
		}
		m := s["x.weight.quant_map"]
		for i, v := range quant.Schemes["nf4"].(quant.Tabled).Table() {
			binary.LittleEndian.PutUint32(m.Data[4*i:], math.Float32bits(v))
		}
		name := "x.weight.quant_state.bitsandbytes__nf4"
		s[name] = weights.Tensor{Name: name, DType: weights.U8, Shape: []int{len(raw)}, Data: raw}
		c, err := Open(s, &plain)
		if err != nil {
			return
		}
		p, ok := c.Packed("x.weight")
		if !ok || (p.Len()+1)/2 != 32 || p.Blocks() != 1 {
			t.Errorf("%s is taken: %d weights in %d blocks", raw, p.Len(), p.Blocks())
		}
		p.Dequantise(make([]float32, p.Len()))
	})
}

// TestStorageTypes: bnb_4bit_quant_storage lets codes pass for numbers of another type; the bytes are the same.
func TestStorageTypes(t *testing.T) {
	s := folder(t, "nf4_nested")
	ck, err := Open(s, &nested)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := ck.Packed(up)
	for d, size := range map[weights.DType]int{weights.BF16: 2, weights.F32: 4, weights.F64: 8, weights.I8: 1} {
		x := s[up]
		x.DType, x.Shape = d, []int{len(x.Data) / size, 1}
		s[up] = x
		ck, err := Open(s, &nested)
		if err != nil {
			t.Fatalf("%v: %v", d, err)
		}
		if p, ok := ck.Packed(up); !ok || !slices.Equal(p.Codes, want.Codes) {
			t.Errorf("%v: other codes", d)
		}
	}
}
