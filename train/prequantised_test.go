package train

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// storiesQuantised is the folder of the small model with the linear layers' weights as bitsandbytes serialised them.
func storiesQuantised(t testing.TB, nested bool) string {
	t.Helper()
	from, dir := golden.StoriesDir(t), t.TempDir()
	run := map[bool]string{false: "qlora_nf4", true: "qlora_nf4_double"}[nested]
	packed, err := weights.Open(golden.Path(t, "train/"+run+"/base_nf4.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	whole, err := weights.Open(filepath.Join(from, weights.SingleFile))
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	var all []weights.Tensor
	for _, source := range []weights.Source{packed, whole} {
		for _, n := range source.Names() {
			if _, again := packed.Tensor(n); again && source != weights.Source(packed) {
				continue
			}
			x, _ := source.Tensor(n)
			all = append(all, x)
		}
	}
	file, err := weights.Encode(all, map[string]string{"format": "pt"})
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	golden.JSON(t, filepath.Join(from, "config.json"), &config)
	config["quantization_config"] = map[string]any{
		"quant_method": "bitsandbytes", "load_in_4bit": true, "load_in_8bit": false, "_load_in_4bit": true,
		"_load_in_8bit":       false,
		"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": nested, "bnb_4bit_compute_dtype": "bfloat16",
		"bnb_4bit_quant_storage":           "uint8",
		"llm_int8_enable_fp32_cpu_offload": false, "llm_int8_has_fp16_weight": false,
		"llm_int8_skip_modules": []string{"lm_head"}, "llm_int8_threshold": 6.0,
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

// TestTrainsOnQuantisedFolder: a run on a folder that bitsandbytes quantised plans the same bytes and trains the same
// adapter, byte for byte, as one that quantises the original, in every layout; as adapter: lora too. Evaluating and
// merging go on from there.
func TestTrainsOnQuantisedFolder(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := testSpec(t, 4)
	s.Quantization.DoubleQuant = false // whose offset may differ from bitsandbytes' in the last place
	want := mustStart(t, s, Env{})
	trained := golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)
	folder := storiesQuantised(t, false)
	var q Spec // of the last run
	for _, c := range []struct {
		what string
		edit func(s *Spec)
	}{
		{"lora", func(s *Spec) { s.Adapter, s.Quantization = "lora", nil }},
		{"dequantised", func(s *Spec) { s.Training.DequantisedWeights = "always" }},
		{"qlora", func(*Spec) {}},
	} {
		q = s
		q.BaseModel, q.OutputDir = folder, filepath.Join(t.TempDir(), "run")
		c.edit(&q)
		got := mustStart(t, q, Env{})
		if c.what != "dequantised" && got.HeldBytes != want.HeldBytes {
			t.Errorf("%s: %d bytes held, %d for the original", c.what, got.HeldBytes, want.HeldBytes)
		}
		if !bytes.Equal(golden.ReadFile(t, q.OutputDir, adapter.WeightsFile), trained) {
			t.Errorf("%s: the adapter is another", c.what)
		}
	}
	beside, err := infer.Evaluate(ctx, q.Evaluation(q.OutputDir), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "merged")
	report, err := export.Merge(ctx, export.MergeOptions{Model: folder, Adapters: export.One(q.OutputDir),
		Out: out}, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if report.Layers != 35 {
		t.Errorf("report %+v, want 35 layers", report)
	}
	if raw := golden.ReadFile(t, out, "config.json"); strings.Contains(string(raw), "quantization_config") {
		t.Errorf("the merged model's config.json is %s", raw)
	}
	q.BaseModel, q.Adapter, q.Quantization = out, "lora", nil
	merged, err := infer.Evaluate(ctx, q.Evaluation(""), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	golden.Near(t, "loss of the merged model", merged.Loss, beside.Loss, 1e-6)
}

// TestQuantisedFolderResumes: a run on a folder with nested scales resumes to the bytes of one that was not
// interrupted.
func TestQuantisedFolderResumes(t *testing.T) {
	s := testSpec(t, 6)
	s.BaseModel = storiesQuantised(t, true)
	s.Training.SaveSteps, s.Training.LRScheduler, s.Training.WarmupRatio = 3, "constant", 0
	mustStart(t, s, Env{})
	half := s
	half.OutputDir = filepath.Join(t.TempDir(), "half")
	half.Training.MaxSteps = 3
	mustStart(t, half, Env{})
	// as if the run had ended after its checkpoint.
	if err := os.Remove(filepath.Join(half.OutputDir, adapter.WeightsFile)); err != nil {
		t.Fatal(err)
	}
	half.Training.MaxSteps, half.Training.Resume = 6, "auto"
	mustStart(t, half, Env{})
	if !bytes.Equal(golden.ReadFile(t, half.OutputDir, adapter.WeightsFile),
		golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)) {
		t.Error("the resumed run has another adapter")
	}
}

// TestQuantisedOtherwise: what is asked for under quantization must be what the folder has.
func TestQuantisedOtherwise(t *testing.T) {
	folder := storiesQuantised(t, true)
	plain, fp4, eight := quant.Default(), quant.DefaultOf("fp4"), quant.DefaultOf("int8")
	plain.DoubleQuant = false
	for want, q := range map[string]*quant.Config{
		"quantization: type nf4 with double_quant false is asked for, but the weights of " + folder +
			" are quantised already, as type nf4 with double_quant true: " +
			"write bits: 4, type: nf4 and double_quant: true under quantization, or name the model that they were " +
			"made from": &plain,
		"quantization: type fp4 with double_quant true is asked for":   &fp4,
		"quantization: type int8 with double_quant false is asked for": &eight,
	} {
		s := testSpec(t, 1)
		s.BaseModel, s.Quantization = folder, q
		if _, err := PlanRun(context.Background(), s, Env{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

// TestSchemesTrain: every storage scheme trains as LoRA does beside the numbers that its weights stand for.
func TestSchemesTrain(t *testing.T) {
	t.Parallel()
	for _, name := range quant.Names() {
		s := testSpec(t, 5)
		q := quant.DefaultOf(name)
		s.Quantization = &q
		got := mustStart(t, s, Env{})
		dense := s
		dense.BaseModel, dense.OutputDir = storiesDequantised(t, q), filepath.Join(t.TempDir(), "run")
		dense.Adapter, dense.Quantization = "lora", nil
		want := mustStart(t, dense, Env{})
		for i, loss := range got.Losses {
			golden.Near(t, name+": loss of a step", loss, want.Losses[i], 1e-6)
		}
	}
}

// storiesDequantised is the folder of the small model with the numbers that its linear layers' weights stand for.
func storiesDequantised(t testing.TB, c quant.Config) string {
	t.Helper()
	from, dir := golden.StoriesDir(t), t.TempDir()
	whole, err := weights.Open(filepath.Join(from, weights.SingleFile))
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	var all []weights.Tensor
	for _, n := range whole.Names() {
		x, _ := whole.Tensor(n)
		if strings.HasSuffix(n, "_proj.weight") {
			v := make([]float32, x.Len())
			if err := weights.Float32s(x, v); err != nil {
				t.Fatal(err)
			}
			p, err := quant.Quantise(v, x.Shape[0], x.Shape[1], c)
			if err != nil {
				t.Fatal(err)
			}
			p.Dequantise(v)
			if x, err = weights.FromFloat32s(n, weights.F32, x.Shape, v); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, x)
	}
	file, err := weights.Encode(all, map[string]string{"format": "pt"})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"config.json": golden.ReadFile(t, from, "config.json"),
		weights.SingleFile: file, "tokenizer.json": golden.ReadFile(t, from, "tokenizer.json")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
