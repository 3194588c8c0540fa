package quantised

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/weights"
)

// releasedConfig parses a golden's quantization_config as part of a model's config.json.
func releasedConfig(t testing.TB, quantization json.RawMessage) (*model.Quantization, error) {
	t.Helper()
	var config map[string]json.RawMessage
	if err := json.Unmarshal(golden.ReadFile(t, golden.StoriesDir(t), "config.json"), &config); err != nil {
		t.Fatal(err)
	}
	config["quantization_config"] = quantization
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := families.ParseConfig(raw)
	return c.Quantization, err
}

func releasedConfigs(t testing.TB) map[string]json.RawMessage {
	t.Helper()
	var configs map[string]json.RawMessage
	golden.JSON(t, golden.Path(t, "released/configs.json"), &configs)
	return configs
}

// TestReleasedEqualTheirPackages checks that weights of every layout have, bit for bit, the numbers that the package
// which wrote the layout dequantises them to, read whole, in parts that begin and end anywhere, and through the
// names of
// a model.
func TestReleasedEqualTheirPackages(t *testing.T) {
	configs := releasedConfigs(t)
	if len(configs) < 19 {
		t.Fatalf("%d layouts", len(configs))
	}
	for name, config := range configs {
		t.Run(name, func(t *testing.T) {
			src := open(t, "released/"+name+".safetensors")
			want := src["want"]
			delete(src, "want")
			q, err := releasedConfig(t, config)
			if err != nil {
				t.Fatal(err)
			}
			c, err := Open(src, q)
			if err != nil {
				t.Fatal(err)
			}
			got, ok := c.Tensor("x.weight")
			if !ok || got.DType != want.DType || !slices.Equal(got.Shape, want.Shape) || got.Name != "x.weight" {
				t.Fatalf("%+v, want %v %v", got, want.DType, want.Shape)
			}
			if names := c.Names(); !slices.Equal(names, []string{"x.weight"}) || c.Dequantised() != 1 ||
				c.Quantised() != 0 {
				t.Errorf("tensors %v", names)
			}
			numbers, all := make([]float32, want.Len()), make([]float32, want.Len())
			if err := weights.Float32s(want, numbers); err != nil {
				t.Fatal(err)
			}
			for _, part := range [][2]int{{0, len(all)}, {1, 2}, {100, 300}, {128, 256}, {127, 1025}, {len(all) - 1,
				len(all)}, {5, 5}} {
				dst := make([]float32, part[1]-part[0])
				if err := c.Float32s("x.weight", part[0], dst); err != nil {
					t.Fatal(err)
				}
				for i, x := range dst {
					if w := numbers[part[0]+i]; math.Float32bits(x) != math.Float32bits(w) {
						t.Fatalf("elements %v: element %d is %v, want %v", part, part[0]+i, x, w)
					}
				}
			}
			if err := c.Float32s("x.weight", 1, all); err == nil {
				t.Error("elements beyond the end were read")
			}
		})
	}
}

// TestReleasedConfigs checks messages for quantization_configs that can't be read.
func TestReleasedConfigs(t *testing.T) {
	for config, want := range map[string]string{
		`{"quant_method": "fp8", "fmt": "e5m2"}`:                                                                         `quantization_config.fmt = "e5m2": 8-bit floats in e4m3 are read`,
		`{"quant_method": "fp8", "weight_block_size": [128]}`:                                                            "it is a list of two positive numbers, rows and columns",
		`{"quant_method": "fp8", "secret": 1}`:                                                                           "quantization_config.secret = 1: unknown key",
		`{"quant_method": "gptq", "bits": 3}`:                                                                            "= 3: GPTQ weights of 2, 4 and 8 bits are read; use the model that they were made from",
		`{"quant_method": "gptq", "checkpoint_format": "marlin"}`:                                                        `= "marlin": gptq and gptq_v2 are read`,
		`{"quant_method": "gptq", "rotation": "hadamard"}`:                                                               "weights whose inputs are rotated are not read",
		`{"quant_method": "awq", "bits": 8}`:                                                                             "= 8: AWQ weights have 4",
		`{"quant_method": "awq", "version": "gemv"}`:                                                                     `= "gemv": AWQ's gemm layout is read`,
		`{"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}`:                                                         `= "W4A8_AWQ": FP8, NVFP4 and MIXED_PRECISION are read`,
		`{"quant_method": "compressed-tensors", "format": "marlin-24"}`:                                                  `= "marlin-24": compressed-tensors' dense, float-quantized`,
		`{"quant_method": "compressed-tensors", "format": "pack-quantized", "sparsity_config": {"format": "sparse-24"}}`: "sparse and rotated weights are not read",
		`{"quant_method": "compressed-tensors", "format": "pack-quantized", "transform_config": {"config_groups": {"u": {"type": "hadamard"}}}}`: "sparse and rotated weights are not read",
		`{"quant_method": "compressed-tensors", "config_groups": []}`:                                                                            "config_groups",
		`{"quant_method": "hqq"}`: "weights that HQQ has quantised are not supported",
	} {
		if _, err := releasedConfig(t, json.RawMessage(config)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", config, err, want)
		}
	}
	for _, config := range []string{
		`{"quant_method": "compressed-tensors", "format": "pack-quantized", "sparsity_config": {"format": "dense"}, "transform_config": {}}`,
		`{"quant_method": "compressed-tensors", "format": "pack-quantized", "transform_config": {"config_groups": {}}}`,
		`{"quant_method": "gptq", "bits": 4, "rotation": null, "anything": {"of": "a writer"}}`,
	} {
		if _, err := releasedConfig(t, json.RawMessage(config)); err != nil {
			t.Errorf("%s: %v", config, err)
		}
	}
}

// TestBadReleasedWeights checks the messages for tensors that are missing or do not fit.
func TestBadReleasedWeights(t *testing.T) {
	configs := releasedConfigs(t)
	remove := func(name string) func(source) { return func(s source) { delete(s, name) } }
	change := func(name string, to func(*weights.Tensor)) func(source) {
		return func(s source) {
			x := s[name]
			x.Shape, x.Data = slices.Clone(x.Shape), slices.Clone(x.Data)
			to(&x)
			s[name] = x
		}
	}
	shape := func(dims ...int) func(*weights.Tensor) { return func(t *weights.Tensor) { t.Shape = dims } }
	dtype := func(d weights.DType) func(*weights.Tensor) { return func(t *weights.Tensor) { t.DType = d } }
	for _, c := range []struct {
		layout string
		spoil  func(source)
		want   string
	}{
		{"fp8_block", remove("x.weight_scale_inv"),
			"x.weight_scale is missing: the weight can't be dequantised without it"},
		{"fp8_block", change("x.weight_scale_inv", shape(4, 2)),
			"x.weight_scale_inv has the shape [4 2]: it gives no scale for each block of a weight of 32 x 128"},
		{"fp8_block", change("x.weight_scale_inv", shape(8)),
			"x.weight_scale_inv has the shape [8]: it gives no scale for each block of a weight of 32 x 128"},
		{"fp8_block", change("x.weight_scale_inv", dtype(weights.I64)),
			"x.weight_scale_inv is I64, not F32 or BF16 or F16 or U8"},
		{"fp8_block", change("x.weight", shape(4096)), "x.weight has the shape [4096]; a quantised weight is a matrix"},
		{"fp8_block", change("x.weight", shape(0, 128)),
			"x.weight has the shape [0 128]; a quantised weight is a matrix"},
		{"fp8_block", remove("x.weight"), "x.weight_scale_inv belongs to no quantised weight"},
		{"fp8_block", func(s source) {
			clear(s)
			s["y.weight"] = weights.Tensor{Name: "y.weight",
				DType: weights.BF16}
		},
			"no weight is quantised, though config.json has a quantization_config"},
		{"float8_channel", change("x.weight_scale", shape(16, 2)),
			"x.weight_scale has the shape [16 2]: it gives no scale"},
		{"int8", func(s source) {
			s["x.weight_zero_point"] = weights.Tensor{Name: "x.weight_zero_point", DType: weights.I8, Shape: []int{3},
				Data: make([]byte, 3)}
		}, "x.weight_zero_point is I8 with 3 elements, not I8 with 32"},
		{"pack4", remove("x.weight_shape"), "x.weight_shape is missing"},
		{"pack4", change("x.weight_shape", func(t *weights.Tensor) {
			binary.LittleEndian.PutUint64(t.Data[8:],
				1<<40)
		}), "it does not fit x.weight_packed of the shape [32 16]"},
		{"pack4", change("x.weight_shape", func(t *weights.Tensor) { binary.LittleEndian.PutUint64(t.Data[8:], 60) }),
			"exactly one width must fit"},
		{"pack4", change("x.weight_packed", shape(16, 32)), "it does not fit x.weight_packed of the shape [16 32]"},
		{"pack4", change("x.weight_scale", shape(4, 32)), "x.weight_scale has the shape [4 32]: it gives no scale"},
		{"pack4_asymmetric", change("x.weight_zero_point", shape(2, 8)),
			"x.weight_zero_point is I32 of the shape [2 8], not I32 of the shape [4 4]"},
		{"pack4", func(s source) {
			s["x.weight"] = weights.Tensor{Name: "x.weight", DType: weights.BF16, Shape: []int{32, 128}}
		},
			"x.weight is stored twice, as x.weight_packed too: delete one of the two"},
		{"nvfp4", change("x.weight_scale", shape(8, 32)),
			"x.weight_scale has the shape [8 32], not [32 8]: a scale for each 16 numbers of a row"},
		{"nvfp4", change("x.weight_global_scale", func(t *weights.Tensor) {
			t.Shape, t.Data = []int{2}, make([]byte,
				8)
		}), "x.weight_global_scale has 2 elements, not 1"},
		{"mxfp4", change("x.weight_scale", dtype(weights.F8E4M3)), "x.weight_scale is F8_E4M3, not U8"},
		{"modelopt_nvfp4", remove("x.weight_scale_2"), "x.weight_scale_2 is missing"},
		{"gptq4", remove("x.qzeros"), "x.qzeros is missing"},
		{"gptq4", change("x.scales", shape(32, 4)),
			"x.scales has the shape [32 4]: it gives no scale for each group of 128 inputs and each of 32 outputs"},
		{"gptq4", change("x.qzeros", shape(2, 8)), "x.qzeros has the shape [2 8], not [4 4]"},
		{"gptq4", change("x.g_idx", func(t *weights.Tensor) { t.Data[0] = 9 }),
			"x.g_idx has the group 9 of column 0, and there are 4"},
		{"gptq4", change("x.g_idx", func(t *weights.Tensor) { t.Shape, t.Data = []int{4}, t.Data[:16] }),
			"x.g_idx is I32 with 4 elements, not I32 with 128"},
		{"gptq4", change("x.qweight", dtype(weights.F32)), "x.qweight is F32, not I32"},
		{"awq", change("x.qweight", shape(64, 8)),
			"x.scales has the shape [4 32]: it gives no scale for each group of 64 inputs and each of 64 outputs"},
		{"awq", remove("x.scales"), "x.scales is missing"},
	} {
		src := open(t, "released/"+c.layout+".safetensors")
		delete(src, "want")
		c.spoil(src)
		q, err := releasedConfig(t, configs[c.layout])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(src, q); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.layout, err, c.want)
		}
	}
}

// TestBlocksThatEndShort checks 8-bit floats whose last blocks are cut off by the weight's end, as in DeepSeek's files.
func TestBlocksThatEndShort(t *testing.T) {
	const rows, cols = 5, 7
	codes := make([]byte, rows*cols)
	for i := range codes {
		codes[i] = 0x38 // 1
	}
	var scales []byte
	for i := range 3 * 2 {
		scales = binary.LittleEndian.AppendUint32(scales, math.Float32bits(float32(i+1)))
	}
	src := source{"x.weight": {Name: "x.weight", DType: weights.F8E4M3, Shape: []int{rows, cols}, Data: codes},
		"x.weight_scale_inv": {Name: "x.weight_scale_inv", DType: weights.F32, Shape: []int{3, 2}, Data: scales}}
	q, err := releasedConfig(t, json.RawMessage(`{"quant_method": "fp8", "weight_block_size": [2, 4]}`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(src, q)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, rows*cols)
	if err := c.Float32s("x.weight", 0, got); err != nil {
		t.Fatal(err)
	}
	for r := range rows {
		for k := range cols {
			if want := float32(r/2*2 + k/4 + 1); got[r*cols+k] != want {
				t.Errorf("row %d, column %d: %v, want %v", r, k, got[r*cols+k], want)
			}
		}
	}
}

// FuzzReleased checks that no set of tensors makes reading panic.
func FuzzReleased(f *testing.F) {
	configs := releasedConfigs(f)
	var names []string
	for name := range configs {
		names = append(names, name)
	}
	slices.Sort(names)
	for i := range names {
		f.Add(uint8(i), uint8(0), uint8(0), 1, 1, []byte{1})
	}
	f.Fuzz(func(t *testing.T, layout, tensor, kind uint8, high, wide int, data []byte) {
		name := names[int(layout)%len(names)]
		src := open(t, "released/"+name+".safetensors")
		delete(src, "want")
		q, err := releasedConfig(t, configs[name])
		if err != nil {
			t.Fatal(err)
		}
		all := src.Names()
		x := src[all[int(tensor)%len(all)]]
		d := weights.DType(kind%16 + 1)
		if size := d.Size(); size > 0 && high >= 0 && wide >= 0 && high < 1<<10 && wide < 1<<10 && len(data) > 0 {
			x.DType, x.Shape, x.Data = d, []int{high, wide}, make([]byte, high*wide*size)
			for i := range x.Data {
				x.Data[i] = data[i%len(data)]
			}
			src[all[int(tensor)%len(all)]] = x
		}
		c, err := Open(src, q)
		if err != nil {
			return
		}
		for _, name := range c.Names() {
			w, _ := c.Tensor(name)
			if c.IsDequantised(name) {
				if err := c.Float32s(name, 0, make([]float32, w.Len())); err != nil {
					t.Error(fmt.Errorf("%s: %w", name, err))
				}
			}
		}
	})
}
