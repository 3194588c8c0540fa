package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/export/gguf"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// numbers are a tensor of a GGUF file as float32.
func numbers(t *testing.T, f *gguf.File, name string) []float32 {
	t.Helper()
	i := slices.IndexFunc(f.Tensors, func(x gguf.Tensor) bool { return x.Name == name })
	if i < 0 {
		t.Fatalf("the file has no tensor %s", name)
	}
	y := make([]byte, f.Tensors[i].Bytes())
	if _, err := f.Data(i).Read(y); err != nil {
		t.Fatal(err)
	}
	x := make([]float32, f.Tensors[i].Len())
	f.Tensors[i].Type.Dequantise(y, x)
	return x
}

// exported is the open file of an export of stories260K.
func exported(t *testing.T, o Options) (*gguf.File, Report) {
	t.Helper()
	if o.Model == "" {
		o.Model = golden.StoriesDir(t)
	}
	o.Out = filepath.Join(t.TempDir(), "m.gguf")
	r, err := Export(context.Background(), o, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, r
}

// TestGGUFIsTheMergedModel: with an adapter a file holds the numbers that trainer merge writes, the rows of queries and
// keys in the order of llama.cpp's rotation.
func TestGGUFIsTheMergedModel(t *testing.T) {
	nested, rows := quant.Default(), quant.DefaultOf("int8")
	for _, over := range []*quant.Config{nil, &nested, &rows} {
		sameAsMerged(t, over)
	}
}

func sameAsMerged(t *testing.T, over *quant.Config) {
	t.Helper()
	from, out := trained(t), filepath.Join(t.TempDir(), "merged")
	if _, err := Merge(context.Background(), MergeOptions{Model: golden.StoriesDir(t), Adapters: One(from), Out: out,
		Trained: over}, session.Env{}); err != nil {
		t.Fatal(err)
	}
	merged, err := weights.OpenDir(out)
	if err != nil {
		t.Fatal(err)
	}
	defer merged.Close()
	f, r := exported(t, Options{Format: "gguf", Adapter: from, DType: "f32", Trained: over})
	if len(f.Tensors) != len(merged.Names()) || r.Tensors != len(f.Tensors) {
		t.Errorf("%d tensors of %d", len(f.Tensors), len(merged.Names()))
	}
	const head, width = 8, 64
	for name, c := range map[string]struct {
		from string
		rows func(int) int
	}{
		"token_embd.weight":        {"model.embed_tokens.weight", nil},
		"blk.3.attn_v.weight":      {"model.layers.3.self_attn.v_proj.weight", nil},
		"blk.0.attn_norm.weight":   {"model.layers.0.input_layernorm.weight", nil},
		"blk.4.ffn_down.weight":    {"model.layers.4.mlp.down_proj.weight", nil},
		"blk.2.attn_output.weight": {"model.layers.2.self_attn.o_proj.weight", nil},
		"blk.1.attn_q.weight": {"model.layers.1.self_attn.q_proj.weight", func(r int) int {
			return r/head*head + r%head/2 + r%2*head/2
		}},
		"blk.1.attn_k.weight": {"model.layers.1.self_attn.k_proj.weight", func(r int) int {
			return r/head*head + r%head/2 + r%2*head/2
		}},
	} {
		tensor, ok := merged.Tensor(c.from)
		if !ok {
			t.Fatal(c.from)
		}
		want := make([]float32, tensor.Len())
		if err := weights.Float32s(tensor, want); err != nil {
			t.Fatal(err)
		}
		got := numbers(t, f, name)
		for i, v := range got {
			at := i
			if c.rows != nil {
				at = c.rows(i/width)*width + i%width
			}
			if v != want[at] {
				t.Errorf("over %v: %s: element %d is %g, that of %s is %g", over, name, i, v, c.from, want[at])
				break
			}
		}
	}
}

// TestGGUFKeys: what a small Llama's file says.
func TestGGUFKeys(t *testing.T) {
	f, r := exported(t, Options{Format: "gguf"})
	for key, want := range map[string]any{
		"general.architecture": "llama", "general.type": "model", "general.name": "stories260K",
		"general.file_type": uint32(1),
		"llama.block_count": uint32(5), "llama.context_length": uint32(512), "llama.attention.head_count_kv": uint32(4),
		"llama.rope.dimension_count":             uint32(8),
		"llama.attention.layer_norm_rms_epsilon": float32(1e-5), "tokenizer.ggml.model": "llama",
		"tokenizer.ggml.add_bos_token":    true,
		"tokenizer.ggml.add_space_prefix": true, "tokenizer.ggml.bos_token_id": uint32(1),
		"tokenizer.ggml.eos_token_id": uint32(2), "tokenizer.ggml.unknown_token_id": uint32(0),
	} {
		if got := f.Value(key); got != want {
			t.Errorf("%s = %v, want %v", key, got, want)
		}
	}
	list, _ := f.Value("tokenizer.ggml.tokens").([]string)
	kinds, _ := f.Value("tokenizer.ggml.token_type").([]int32)
	if len(list) != 512 || len(kinds) != 512 || list[3] != "<0x00>" || !slices.Equal(kinds[:4], []int32{2, 3, 3, 6}) ||
		kinds[300] != 1 {
		t.Errorf("tokens %q, kinds %v", list[:4], kinds[:4])
	}
	if r.DType != "f16" || len(r.Types) != 2 || r.Types[0].Type != "F16" || r.Types[0].Tensors != 36 || r.Notes == nil {
		t.Errorf("report %+v", r)
	}
}

// TestGGUFFallback: rows that don't fit the blocks of K types get the types that llama.cpp takes, and the report says
// so.
func TestGGUFFallback(t *testing.T) {
	f, r := exported(t, Options{Format: "gguf", DType: "q4_k_m"})
	types := map[string]gguf.Type{}
	for _, x := range f.Tensors {
		types[x.Name] = x.Type
	}
	for name, want := range map[string]gguf.Type{"token_embd.weight": gguf.Q8_0, "blk.1.attn_q.weight": gguf.Q5_0,
		"blk.4.attn_v.weight":   gguf.Q8_0,
		"blk.0.ffn_down.weight": gguf.F16, "blk.0.ffn_norm.weight": gguf.F32} {
		if types[name] != want {
			t.Errorf("%s is stored as %v, want %v", name, types[name], want)
		}
	}
	want := "Q4_K, whose rows are blocks of 256, does not fit rows of 64: Q5_0 takes its place in"
	if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.HasPrefix(n, want) }) {
		t.Errorf("notes %q", r.Notes)
	}
	if f.Value("general.file_type") != uint32(15) || f.Value("general.quantization_version") != uint32(2) {
		t.Error("the file type")
	}
}

// TestGGUFTwice: the same bytes, whatever the number of workers.
func TestGGUFTwice(t *testing.T) {
	var files [2][]byte
	for i, workers := range []int{1, 3} {
		out := filepath.Join(t.TempDir(), "m.gguf")
		if _, err := Export(context.Background(), Options{Format: "gguf", Model: golden.StoriesDir(t), Out: out,
			DType: "q4_0"}, session.Env{Workers: workers}); err != nil {
			t.Fatal(err)
		}
		files[i] = golden.ReadFile(t, out)
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("the files differ")
	}
}

// TestGGUFOfFamilies: every family's small model is planned and written, or refused with the reason.
func TestGGUFOfFamilies(t *testing.T) {
	refused := map[string]string{ // by what llama.cpp computes otherwise
		"gemma2": "query_pre_attn_scalar = 5, where llama.cpp has 16", "gemma3": "query_pre_attn_scalar",
		"gemma3_images": "query_pre_attn_scalar",
		"ministral":     `model_type "ministral" is not written as GGUF`, "olmo2": "a bias on the output " +
			"projection", "olmo3": `model_type "olmo3" is not written as GGUF`,
		"ministral3":               `model_type "ministral3" is not written as GGUF`,
		"ministral3_images":        "queries that grow with their position (llama_4_scaling_beta = 0.5)",
		"qwen3_5":                  "linear_key_head_dim 8 and linear_value_head_dim 12, where llama.cpp has one size",
		"qwen3_5_text":             "linear_key_head_dim 8 and linear_value_head_dim 12",
		"qwen3_5_moe":              "linear_key_head_dim 8 and linear_value_head_dim 12",
		"qwen3_5_moe_text":         "linear_key_head_dim 8 and linear_value_head_dim 12",
		"ernie4_5":                 "use_bias, where llama.cpp has no biases in the MLP",
		"cwm":                      `model_type "cwm" is not written as GGUF`,
		"glm4_moe":                 `model_type "glm4_moe" is not written as GGUF`,
		"deepseek_v2":              `model_type "deepseek_v2" is not written as GGUF`,
		"deepseek_v3":              `model_type "deepseek_v3" is not written as GGUF`,
		"glm4_moe_lite":            `model_type "glm4_moe_lite" is not written as GGUF`,
		"ernie4_5_moe":             `model_type "ernie4_5_moe" is not written as GGUF`,
		"granitemoehybrid":         `model_type "granitemoehybrid" is not written as GGUF`,
		"granitemoehybrid_experts": `model_type "granitemoehybrid" is not written as GGUF`,
		"bamba":                    `model_type "bamba" is not written as GGUF`,
		"falcon_h1":                `model_type "falcon_h1" is not written as GGUF`,
		"nemotron_h":               `model_type "nemotron_h" is not written as GGUF`,
		"lfm2":                     `model_type "lfm2" is not written as GGUF`,
		"lfm2_moe":                 `model_type "lfm2_moe" is not written as GGUF`,
		"minimax_m2":               `model_type "minimax_m2" is not written as GGUF`,
		"afmoe":                    `model_type "afmoe" is not written as GGUF`,
		"arcee":                    `model_type "arcee" is not written as GGUF`,
		"cohere":                   `model_type "cohere" is not written as GGUF`,
		"cohere2":                  `model_type "cohere2" is not written as GGUF`,
		"glm":                      `model_type "glm" is not written as GGUF`,
		"apertus":                  `model_type "apertus" is not written as GGUF`,
		"hunyuan_v1_dense":         `model_type "hunyuan_v1_dense" is not written as GGUF`,
		"qwen3_next":               `model_type "qwen3_next" is not written as GGUF`,
		"exaone4":                  `model_type "exaone4" is not written as GGUF`,
		"idefics3":                 `model_type "idefics3" is not written as GGUF`,
		"smolvlm":                  `model_type "smolvlm" is not written as GGUF`,
		"qwen3_vl":                 `model_type "qwen3_vl" is not written as GGUF`,
		"seed_oss":                 `model_type "seed_oss" is not written as GGUF`,
		"smollm3":                  "leaves out the positions in each fourth layer",
	}
	for _, m := range golden.FamilyModels(t) {
		dir := m.Dir(t)
		// a stand-in that llama.cpp could not read
		if err := os.Remove(filepath.Join(dir, "tokenizer.json")); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "m.gguf")
		r, err := Export(context.Background(), Options{Format: "gguf", Model: dir, Adapter: m.Adapter(t), Out: out,
			DType: "q8_0"}, session.Env{})
		if want := refused[m.Name]; want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", m.Name, err, want)
			}
			continue
		}
		if err != nil || r.Tensors == 0 {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

// TestStoppedExport: an export that is stopped leaves an old file as it was.
func TestStoppedExport(t *testing.T) {
	dir := t.TempDir()
	out, looks := filepath.Join(dir, "m.gguf"), 40
	o := Options{Format: "gguf", Model: golden.StoriesDir(t), Out: out, DType: "q8_0"}
	if _, err := Export(context.Background(), o, session.Env{}); err != nil {
		t.Fatal(err)
	}
	old := golden.ReadFile(t, out)
	o.Overwrite, o.DType = true, "f16"
	_, err := Export(endsAfter{context.Background(), &looks}, o, session.Env{})
	if !errors.Is(err, context.Canceled) || len(entries(t, dir)) != 1 || !bytes.Equal(golden.ReadFile(t, out), old) {
		t.Errorf("%v, the folder holds %q", err, entries(t, dir))
	}
}

// TestRefusedExports: the whole error of what can't be exported.
func TestRefusedExports(t *testing.T) {
	stories, there := golden.StoriesDir(t), filepath.Join(t.TempDir(), "there.gguf")
	if err := os.WriteFile(there, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	with := func(file string, edit func(map[string]any)) string {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(stories)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, file)
		var object map[string]any
		golden.JSON(t, path, &object)
		edit(object)
		raw, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, raw, 0o644); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	part := func(key string, value any) string {
		return with("tokenizer.json", func(o map[string]any) { o[key] = value })
	}
	new := filepath.Join(t.TempDir(), "new.gguf")
	for want, o := range map[string]Options{
		`--format "onnx" is not one of gguf, gguf-lora, mlx, ollama, peft, vllm`: {
			Format: "onnx"},
		"name the format: --format gguf|gguf-lora|mlx|ollama|peft|vllm; trainer export --help says what each is for": {
			Model: stories, Out: new},
		"name the model: --model DIR":      {Format: "gguf", Out: new},
		"name what is written: --out FILE": {Format: "gguf", Model: stories},
		`--dtype "q2_k": gguf takes f16, bf16, f32, q8_0, q4_0, q4_k_m`: {Format: "gguf", Model: stories,
			Out: new, DType: "q2_k"},
		`--dtype "q4_0": gguf-lora takes f16, bf16, f32`: {Format: "gguf-lora",
			Model: stories, Out: new, DType: "q4_0"},
		"--format gguf-lora exports an adapter: name it with --adapter DIR": {Format: "gguf-lora",
			Model: stories, Out: new},
		"--format gguf has no place for a separate adapter": {Format: "gguf", Model: stories, Out: new, Separate: true},
		"--separate-adapter needs an adapter": {Format: "ollama", Model: stories, Out: new,
			Separate: true},
		"it is there already; --overwrite replaces a file": {Format: "gguf", Model: stories, Out: there},
		"config.json: no such file":                        {Format: "gguf", Model: t.TempDir(), Out: new},
		"lora_A": {Format: "gguf", Model: stories, Adapter: golden.Path(t,
			"families/qwen2.lora"), Out: new},
		"tensor model.norm.weight has NaN at element 63 of [64]: get the model again": {Format: "gguf",
			Model: spoiled(t), Out: new},
		"its normalizer Lowercase": {Format: "gguf", Model: part("normalizer",
			map[string]any{"type": "Lowercase"}), Out: new},
		"its pre-tokenizer Whitespace": {Format: "gguf", Model: part("pre_tokenizer",
			map[string]any{"type": "Whitespace"}), Out: new},
		"no such file or directory": {Format: "gguf", Model: stories,
			Out: filepath.Join(t.TempDir(), "none", "m.gguf")},
		"the activation gelu, where llama.cpp has silu": {Format: "gguf", Model: with("config.json",
			func(o map[string]any) {
				o["hidden_act"] = "gelu"
			}), Out: new},
		"yarn with beta_fast 16 and beta_slow 1: llama.cpp has 32 and 1": {Format: "gguf", Model: with("config.json",
			func(o map[string]any) {
				o["rope_scaling"] = map[string]any{"rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0}
			}), Out: new},
		"no merge joins them, which llama.cpp would do": {Format: "gguf", Model: with("tokenizer.json",
			func(o map[string]any) {
				m := o["model"].(map[string]any)
				m["merges"] = m["merges"].([]any)[:100]
			}), Out: new},
	} {
		if _, err := Export(context.Background(), o, session.Env{}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if _, err := os.Lstat(new); err == nil {
			t.Fatalf("%s: a file was written", want)
		}
	}
}

// TestAdapterAsGGUF: A is PEFT's, B in the order of the base's rows.
func TestAdapterAsGGUF(t *testing.T) {
	f, _ := exported(t, Options{Format: "gguf-lora", Adapter: trained(t), DType: "f32"})
	if f.Value("general.type") != "adapter" || f.Value("adapter.type") != "lora" ||
		f.Value("adapter.lora.alpha") != float32(16) || f.Value("tokenizer.ggml.model") != nil {
		t.Errorf("keys %v", f.KVs)
	}
	peft, err := weights.Open(filepath.Join(golden.Path(t, "lora_grad/lora_qv"), "adapter_model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer peft.Close()
	if len(f.Tensors) != len(peft.Names()) {
		t.Errorf("%d tensors of %d", len(f.Tensors), len(peft.Names()))
	}
	const rank, head = 8, 8
	for name, from := range map[string]string{"blk.2.attn_q.weight.lora_a": "q_proj.lora_A",
		"blk.2.attn_q.weight.lora_b": "q_proj.lora_B", "blk.2.attn_v.weight.lora_b": "v_proj.lora_B"} {
		tensor, ok := peft.Tensor("base_model.model.model.layers.2.self_attn." + from + ".weight")
		if !ok {
			t.Fatal(from)
		}
		want := make([]float32, tensor.Len())
		if err := weights.Float32s(tensor, want); err != nil {
			t.Fatal(err)
		}
		for i, v := range numbers(t, f, name) {
			at := i
			if strings.HasSuffix(from, "q_proj.lora_B") {
				r := i / rank
				at = (r/head*head+r%head/2+r%2*head/2)*rank + i%rank
			}
			if v != want[at] {
				t.Fatalf("%s: element %d is %g, want %g", name, i, v, want[at])
			}
		}
	}
}
