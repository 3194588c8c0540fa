package train

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/export/gguf"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// sameInGGUF compares tensors of a GGUF file with those of a merged model in the same type, bit for bit. names has the
// names in the model by those in the file.
func sameInGGUF(t *testing.T, path string, merged *session.Base, names map[string]string) {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // read only
	for name, from := range names {
		i := slices.IndexFunc(f.Tensors, func(x gguf.Tensor) bool { return x.Name == name })
		want, ok := merged.Weights.Tensor(from)
		if i < 0 || !ok {
			t.Errorf("%s: in the file %v, %s in the merged model %v", name, i >= 0, from, ok)
			continue
		}
		raw := make([]byte, f.Tensors[i].Bytes())
		if _, err := f.Data(i).Read(raw); err != nil || !bytes.Equal(raw, want.Data) {
			t.Errorf("%s of the GGUF file is not the merged model's %s (%v)", name, from, err)
		}
	}
}

// biasedStories writes stories260K as a model whose queries, keys and values have biases.
func biasedStories(t *testing.T) string {
	t.Helper()
	from, dir := golden.StoriesDir(t), t.TempDir()
	whole, err := weights.Open(filepath.Join(from, weights.SingleFile))
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close() //nolint:errcheck // read only
	var all []weights.Tensor
	for _, n := range whole.Names() {
		x, _ := whole.Tensor(n)
		all = append(all, x)
		path, isWeight := strings.CutSuffix(n, "_proj.weight")
		if !isWeight || !slices.Contains([]string{"q", "k", "v"}, path[len(path)-1:]) {
			continue
		}
		bias := make([]float32, x.Shape[0])
		for i := range bias {
			bias[i] = float32(i%7-3) / 64
		}
		one, err := weights.FromFloat32s(path+"_proj.bias", weights.F32, x.Shape[:1], bias)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	file, err := weights.Encode(all, map[string]string{"format": "pt"})
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	golden.JSON(t, filepath.Join(from, "config.json"), &config)
	config["model_type"], config["architectures"] = "qwen2", []string{"Qwen2ForCausalLM"}
	delete(config, "attention_bias") // Qwen2 always has these biases
	raw, err := json.Marshal(config)
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

// TestBiasesInGGUF checks that a GGUF file of an adapter with trained biases has those of the merged model, which are
// not the base model's.
func TestBiasesInGGUF(t *testing.T) {
	s := testSpec(t, 1)
	s.BaseModel, s.Adapter, s.Quantization = biasedStories(t), "lora", nil
	s.LoRA.TargetModules = adapter.Targets{"q_proj", "k_proj", "v_proj"}
	for _, edit := range []func(){func() { s.LoRA.Bias = "all" }, func() { s.LoRA.Bias, s.LoRA.LoRABias = "", true }} {
		edit()
		s.OutputDir = filepath.Join(t.TempDir(), "run")
		mustStart(t, s, oneWorker)
		out := filepath.Join(t.TempDir(), "merged")
		if _, err := export.Merge(t.Context(), export.MergeOptions{Model: s.BaseModel,
			Adapters: export.One(s.OutputDir), Out: out}, session.Env{}); err != nil {
			t.Fatal(err)
		}
		base, err := session.OpenBase(context.Background(), s.BaseModel, session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		merged, err := session.OpenBase(context.Background(), out, session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		const bias = "model.layers.1.self_attn.q_proj.bias"
		was, _ := base.Weights.Tensor(bias)
		is, _ := merged.Weights.Tensor(bias)
		if bytes.Equal(was.Data, is.Data) {
			t.Errorf("%s is not trained", bias)
		}
		o := export.Options{Model: s.BaseModel, Adapter: s.OutputDir, Format: "gguf", DType: "f32",
			Out: filepath.Join(t.TempDir(), "model.gguf")}
		if _, err := export.Export(t.Context(), o, session.Env{}); err != nil {
			t.Fatal(err)
		}
		sameInGGUF(t, o.Out, merged, map[string]string{"blk.1.attn_q.bias": bias,
			"blk.0.attn_k.bias": "model.layers.0.self_attn.k_proj.bias",
			"blk.4.attn_v.bias": "model.layers.4.self_attn.v_proj.bias"})
		base.Close()   //nolint:errcheck // read only
		merged.Close() //nolint:errcheck // read only
	}
}
