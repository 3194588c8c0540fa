package train

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/quantised"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// float8Folder writes the small model with linear layers in 8-bit floats, a scale for each block of 32 rows and 48
// columns, so that the last blocks are cut off by the weight's end.
func float8Folder(t testing.TB) string {
	t.Helper()
	from := golden.StoriesDir(t)
	whole, err := weights.Open(filepath.Join(from, weights.SingleFile))
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	const high, wide = 32, 48
	var all []weights.Tensor
	for _, name := range whole.Names() {
		x, _ := whole.Tensor(name)
		if !strings.HasSuffix(name, "_proj.weight") {
			all = append(all, x)
			continue
		}
		rows, cols := x.Shape[0], x.Shape[1]
		v := make([]float32, x.Len())
		if err := weights.Float32s(x, v); err != nil {
			t.Fatal(err)
		}
		across := (cols + wide - 1) / wide
		scales := make([]float32, (rows+high-1)/high*across)
		for i, f := range v {
			b := i/cols/high*across + i%cols/wide
			scales[b] = max(scales[b], float32(math.Abs(float64(f)))/448)
		}
		codes, stored := make([]byte, len(v)), []byte(nil)
		for i, f := range v {
			codes[i] = kernel.ToE4M3(f / scales[i/cols/high*across+i%cols/wide])
		}
		for _, s := range scales {
			stored = binary.LittleEndian.AppendUint32(stored, math.Float32bits(s))
		}
		all = append(all, weights.Tensor{Name: name, DType: weights.F8E4M3, Shape: x.Shape, Data: codes},
			weights.Tensor{Name: name + "_scale_inv", DType: weights.F32, Shape: []int{len(scales) / across, across},
				Data: stored})
	}
	return modelFolder(t, all, map[string]any{"quant_method": "fp8", "activation_scheme": "dynamic",
		"weight_block_size": []int{high, wide}})
}

// modelFolder writes the small model with other tensors and a quantization_config, or none.
func modelFolder(t testing.TB, all []weights.Tensor, quantization map[string]any) string {
	t.Helper()
	from, dir := golden.StoriesDir(t), t.TempDir()
	file, err := weights.Encode(all, map[string]string{"format": "pt"})
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	golden.JSON(t, filepath.Join(from, "config.json"), &config)
	if quantization != nil {
		config["quantization_config"] = quantization
	}
	raw, err := json.MarshalIndent(config, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"config.json": raw, weights.SingleFile: file,
		"tokenizer.json": golden.ReadFile(t, from, "tokenizer.json")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// dequantisedFolder writes the model of a folder with the numbers that its quantised weights stand for.
func dequantisedFolder(t testing.TB, dir string) string {
	t.Helper()
	config, err := families.LoadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	set, err := weights.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	c, err := quantised.Open(set, config.Quantization)
	if err != nil {
		t.Fatal(err)
	}
	var all []weights.Tensor
	for _, name := range c.Names() {
		x, _ := c.Tensor(name)
		v := make([]float32, x.Len())
		if err := c.Float32s(name, 0, v); err != nil {
			t.Fatal(err)
		}
		if x, err = weights.FromFloat32s(name, x.DType, x.Shape, v); err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	return modelFolder(t, all, nil)
}

// TestTrainsOnReleasedFloat8 checks that a run over a base in 8-bit floats trains the same adapter, byte for byte, as
// one over the numbers that they stand for, as LoRA and as QLoRA, that its plan without weights has the same bytes, and
// that a merge writes these numbers without a quantization_config.
func TestTrainsOnReleasedFloat8(t *testing.T) {
	t.Parallel()
	stored := float8Folder(t)
	numbers := dequantisedFolder(t, stored)
	for _, method := range []string{"lora", "qlora"} {
		var adapters [][]byte
		var planned []int64
		var last Spec
		for _, base := range []string{numbers, stored} {
			s := testSpec(t, 4)
			s.BaseModel, s.Adapter, s.Training.MaxSteps = base, method, 4
			if method == "lora" {
				s.Quantization = nil
			}
			r := mustStart(t, s, twoWorkers)
			planned = append(planned, r.HeldBytes)
			adapters = append(adapters, golden.ReadFile(t, s.OutputDir, adapter.WeightsFile))
			last = s
		}
		if !slices.Equal(adapters[0], adapters[1]) || planned[0] != planned[1] {
			t.Errorf("%s: the adapters differ, or the plans: %v bytes", method, planned)
		}
		out := filepath.Join(t.TempDir(), "merged")
		if _, err := export.Merge(context.Background(), export.MergeOptions{Model: stored,
			Adapters: export.One(last.OutputDir), Out: out}, session.Env{}); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		if config := golden.ReadFile(t, out, "config.json"); strings.Contains(string(config), "quantization_config") {
			t.Errorf("%s: the merged model says that it is quantised:\n%s", method, config)
		}
		if _, err := families.LoadConfig(out); err != nil {
			t.Error(err)
		}
	}
}
