package quantised

import (
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/weights"
)

var mxfp4 = model.Quantization{Method: model.MXFP4, Bits: 4, Type: "mxfp4"}

const (
	down       = "model.layers.1.mlp.experts.down_proj"
	downBlocks = down + "_blocks"
	downScales = down + "_scales"
)

func released(t testing.TB, name string) source {
	t.Helper()
	return open(t, "mxfp4/"+name+".safetensors")
}

// TestMXFP4IsTransformersParameter: a stack of experts has the shape and the numbers of the parameter that transformers
// makes of it, read in one piece or in pieces that begin and end anywhere, and the bytes that the file has.
func TestMXFP4IsTransformersParameter(t *testing.T) {
	ref := golden.Open(t, golden.Path(t, "mxfp4/logits.safetensors"))
	for name, shape := range map[string][]int{"gpt_oss_mxfp4": {4, 64, 32}, "gpt_oss_mxfp4_wide": {3, 32, 64}} {
		s := released(t, name)
		c, err := Open(s, &mxfp4)
		if err != nil {
			t.Fatal(err)
		}
		x, ok := c.Tensor(down)
		if !ok || !slices.Equal(x.Shape, shape) || x.DType != weights.BF16 || c.Quantised() != 4 ||
			slices.Contains(c.Names(), downBlocks) || !slices.Contains(c.Names(), down) {
			t.Errorf("%s: %v, %d quantised weights, names %v", name, x, c.Quantised(), c.Names())
		}
		want := ref.Floats(name + ".down_proj")
		got := make([]float32, len(want))
		for _, first := range []int{len(got), 1} {
			for from, step := 0, first; from < len(got); step = step*7%1009 + 1 {
				to := min(from+step, len(got))
				if err := c.Float32s(down, from, got[from:to]); err != nil {
					t.Fatal(err)
				}
				from = to
			}
			if !slices.Equal(golden.Numbers(got), want) {
				t.Errorf("%s: read from pieces of %d, other numbers", name, first)
			}
		}
		if err := c.Float32s(down, 1, got); err == nil {
			t.Errorf("%s: more numbers are read than there are", name)
		}
		if m, ok := c.MXFP4(down); !ok || &m.Codes[0] != &s[downBlocks].Data[0] ||
			&m.Scales[0] != &s[downScales].Data[0] || m.Rows != shape[0]*shape[2] || m.Cols != shape[1] {
			t.Errorf("%s: the bytes are not the file's: [%d,%d]", name, m.Rows, m.Cols)
		}
	}
}

func TestBrokenMXFP4(t *testing.T) {
	shaped := func(name string, d weights.DType, shape ...int) func(s source) {
		return func(s source) { x := s[name]; x.DType, x.Shape = d, shape; s[name] = x }
	}
	for want, edit := range map[string]func(s source){
		downScales + " is missing: " + down + " can't be dequantised without it": func(s source) {
			delete(s, downScales)
		},
		downBlocks + " is missing, the codes that " + downScales + " scales": func(s source) {
			delete(s, downBlocks)
		},
		downScales + " has the shape [4 2 32], not [4 32 2], a scale for each block": shaped(downScales,
			weights.U8, 4, 2, 32),
		downBlocks + " has the shape [4 32 2 15]: its blocks have 30 weights, MXFP4's have 32": shaped(downBlocks,
			weights.U8, 4, 32, 2, 15),
		downBlocks + " has the shape [4 32 32], not [experts out in/32 16]": shaped(downBlocks, weights.U8, 4, 32, 32),
		downBlocks + " is BF16, not U8": shaped(downBlocks,
			weights.BF16, 4, 32, 2, 16),
		downScales + " is I8, not U8": shaped(downScales, weights.I8, 4, 32, 2),
		down + " is stored in numbers and in MXFP4: delete one of the two": func(s source) {
			s[down] = weights.Tensor{Name: down, DType: weights.BF16, Shape: []int{4, 64, 32}}
		},
		"no expert is in MXFP4, though config.json has quant_method mxfp4: the weights are of another model, or were " +
			"dequantised " +
			"(remove quantization_config from config.json then)": func(s source) {
			for _, name := range s.Names() {
				if strings.HasSuffix(name, endBlocks) || strings.HasSuffix(name, endScales) {
					delete(s, name)
				}
			}
		},
	} {
		s := released(t, "gpt_oss_mxfp4")
		edit(s)
		if _, err := Open(s, &mxfp4); err == nil || err.Error() != "quantised weights: "+want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	want := "the tensor model.layers.0.mlp.experts.down_proj_blocks is in MXFP4, but config.json has no " +
		"quantization_config: get config.json from where the weights are from"
	if _, err := Open(released(t, "gpt_oss_mxfp4"), nil); err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	s := released(t, "gpt_oss_mxfp4")
	x := s[downScales]
	x.Data = slices.Clone(x.Data)
	x.Data[5] = 255
	s[downScales] = x
	c, err := Open(s, &mxfp4)
	if err != nil {
		t.Fatal(err)
	}
	want = `dequantise "` + down + `": the scale of block 5 is NaN (255); a frozen weight must be finite`
	if err := c.Float32s(down, 0, make([]float32, 4*64*32)); err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

func FuzzMXFP4Shapes(f *testing.F) {
	f.Add([]byte{4, 32, 2, 16}, []byte{4, 32, 2})
	f.Add([]byte{1, 1, 1, 16, 1}, []byte{})
	f.Add([]byte{0, 3, 1, 16}, []byte{0, 3, 1})
	f.Fuzz(func(t *testing.T, blocks, scales []byte) {
		tensor := func(name string, shape []byte) weights.Tensor {
			x, size := weights.Tensor{Name: name, DType: weights.U8}, 1
			for _, n := range shape[:min(len(shape), 5)] {
				x.Shape = append(x.Shape, int(n%40))
				size *= int(n % 40)
			}
			x.Data = make([]byte, min(size, 1<<16))
			if size > len(x.Data) {
				t.Skip("too large")
			}
			return x
		}
		c, err := Open(source{"x_blocks": tensor("x_blocks", blocks), "x_scales": tensor("x_scales", scales)}, &mxfp4)
		if err != nil {
			return
		}
		x, _ := c.Tensor("x")
		if err := c.Float32s("x", 0, make([]float32, x.Len())); err != nil {
			t.Errorf("%v and %v: %v", blocks, scales, err)
		}
	})
}
