package export

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

// TestLlamaCPPReadsGemma4: llama.cpp's logits of the small models are the trainer's own, alone, with an adapter, and
// merged with it, and its greedy texts transformers'. GELU is looked up in a table of 16 bits there, which moves these
// logits by up to 7e-3.
func TestLlamaCPPReadsGemma4(t *testing.T) {
	python := withLlamaCPP(t)
	ctx := context.Background()
	ids := make([]int32, 60)
	for i := range ids {
		ids[i] = int32(3 + i*i*7%45)
	}
	var names []string
	var cases []llamaCase
	var want []logits
	texts := map[int][][]int32{}
	for _, m := range golden.FamilyModels(t) {
		if !strings.HasPrefix(m.Name, "gemma4") {
			continue
		}
		dir := m.Dir(t)
		// a stand-in that llama.cpp could not read
		if err := os.Remove(filepath.Join(dir, "tokenizer.json")); err != nil {
			t.Fatal(err)
		}
		file := func(o Options) string {
			o.Model, o.DType = dir, "f32"
			o.Out = filepath.Join(t.TempDir(), "m.gguf")
			if _, err := Export(ctx, o, session.Env{}); err != nil {
				t.Fatalf("%s: %v", m.Name, err)
			}
			return o.Out
		}
		of := func(dir, lora string) logits {
			all, err := logitsOf(ctx, dir, lora, ids)
			if err != nil {
				t.Fatalf("%s: %v", m.Name, err)
			}
			return all
		}
		base := llamaCase{Model: file(Options{Format: "gguf"})}
		for _, run := range m.Runs(t).Texts {
			base.Prompts, base.New = append(base.Prompts, run.Prompt), len(run.New)
			texts[len(cases)] = append(texts[len(cases)], run.New)
		}
		lora, merged := m.Adapter(t), filepath.Join(t.TempDir(), "merged")
		if _, err := Merge(ctx, MergeOptions{Model: dir, Adapters: One(lora), Out: merged, DType: "fp32"},
			session.Env{}); err != nil {
			t.Fatalf("%s: %v", m.Name, err)
		}
		whole := llamaCase{Model: file(Options{Format: "gguf", Adapter: lora})}
		small := map[string]map[string][2]int{ // of two the adapter is of what a GGUF adapter has no place for
			"gemma4_text": {"model.layers.0.per_layer_input_gate": {16, 8}, "model.layers.2.per_layer_projection": {8,
				16}, "model.layers.3.self_attn.q_proj": {16, 32},
				"model.layers.2.mlp.down_proj": {16, 16}},
			"gemma4_experts": {"model.language_model.layers.0.router.proj": {16, 5},
				"model.language_model.layers.1.self_attn.q_proj": {16, 32},
				"model.language_model.layers.1.mlp.down_proj":    {8, 16}},
		}
		if sizes := small[m.Name]; sizes != nil {
			lora = adapterOf(t, sizes, func(_ bool, i int) float32 { return float32(i%5-2) / 4 })
		}
		names = append(names, m.Name, m.Name+", merged", m.Name+" and an adapter")
		cases = append(cases, base, whole, llamaCase{Model: base.Model,
			LoRA: file(Options{Format: "gguf-lora", Adapter: lora})})
		want = append(want, of(dir, ""), of(merged, ""), of(dir, lora))
	}
	got := askLogits(t, python, cases, ids)
	for i := range want {
		most, _ := want[i].far(got[i].Logits)
		if most > 1e-2 {
			t.Errorf("%s: logits differ by up to %.2g", names[i], most)
		} else {
			t.Logf("%s: logits differ by up to %.2g", names[i], most)
		}
		if texts[i] != nil && !reflect.DeepEqual(got[i].New, texts[i]) {
			t.Errorf("%s: llama.cpp writes %v, transformers %v", names[i], got[i].New, texts[i])
		}
		if other, _ := want[i].far(want[i/3*3]); i%3 != 0 && other < 0.3 {
			t.Errorf("%s: the adapter changes logits by %.2g only", names[i], other)
		}
	}
}
