package export

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// tinyModel is a model of one small layer with a tokenizer's files, a llama or a glm4, or a gemma4 of two.
func tinyModel(t *testing.T, files map[string][]byte, vocab int, family string) string {
	t.Helper()
	dir := t.TempDir()
	const width, mlp = 32, 32
	config := map[string]any{"model_type": "llama", "architectures": []string{"LlamaForCausalLM"}, "hidden_size": width,
		"intermediate_size": mlp, "num_hidden_layers": 1,
		"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": vocab, "max_position_embeddings": 512,
		"rms_norm_eps": 1e-5, "rope_theta": 10000.0,
		"hidden_act": "silu", "tie_word_embeddings": true, "torch_dtype": "bfloat16", "bos_token_id": 1,
		"eos_token_id": 2}
	norms, linear := []string{"input_layernorm", "post_attention_layernorm"}, map[string]int{"gate_proj": mlp,
		"up_proj": mlp, "down_proj": width}
	layers := 1
	switch family {
	case "glm4":
		config["model_type"], config["architectures"], config["attention_bias"], config["head_dim"] = "glm4", []string{
			"Glm4ForCausalLM"}, false, width/2
		norms, linear = append(norms, "post_self_attn_layernorm", "post_mlp_layernorm"), map[string]int{
			"gate_up_proj": 2 * mlp, "down_proj": width}
	case "gemma4":
		layers = 2
		config["model_type"], config["architectures"], config["head_dim"], config["global_head_dim"] = "gemma4_text",
			[]string{"Gemma4ForCausalLM"}, width/2, width/2
		config["hidden_activation"], config["hidden_size_per_layer_input"], config["num_hidden_layers"] =
			"gelu_pytorch_tanh", 0, layers
		config["layer_types"] = []string{"sliding_attention", "full_attention"}
		delete(config, "hidden_act")
		delete(config, "rope_theta")
		norms = append(norms, "pre_feedforward_layernorm", "post_feedforward_layernorm")
	}
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	files = maps.Clone(files)
	files["config.json"] = raw
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var all []weights.Tensor
	add := func(name string, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i%7-3) / 16
		}
		one, err := weights.FromFloat32s(name, weights.BF16, shape, x)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	add("model.embed_tokens.weight", vocab, width)
	add("model.norm.weight", width)
	for i := range layers {
		layer := fmt.Sprintf("model.layers.%d.", i)
		for _, name := range []string{"q_proj", "k_proj", "v_proj", "o_proj"} {
			add(layer+"self_attn."+name+".weight", width, width)
		}
		for name, rows := range linear {
			add(layer+"mlp."+name+".weight", rows, width)
		}
		for _, name := range norms {
			add(layer+name+".weight", width)
		}
		if family == "gemma4" {
			add(layer+"self_attn.q_norm.weight", width/2)
			add(layer+"self_attn.k_norm.weight", width/2)
			add(layer+"layer_scalar", 1)
		}
	}
	if err := weights.Write(filepath.Join(dir, "model.safetensors"), all, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// cut is a tokenizer and where its ids may differ from llama.cpp's: what a note of the export says.
type cut struct {
	files  map[string][]byte
	differ func(text string) bool
	noted  []string // parts of the notes
	family string   // of a model that names what cuts texts; "" = llama
}

// cuts are the tokenizers of releases over small vocabularies, and whole ones where TRAINER_DATA is there.
func cuts(t *testing.T) map[string]cut {
	t.Helper()
	var releases struct {
		Cases map[string]struct{ File json.RawMessage }
	}
	golden.JSON(t, golden.Path(t, "tokenizers/releases.json"), &releases)
	all := map[string]cut{}
	notNFC := func(text string) bool { return !norm.NFC.IsNormalString(text) }
	for _, name := range []string{"phi4", "smollm3", "olmo2", "granite", "nemo", "gpt-oss", "deepseek", "roberta"} {
		all[name] = cut{files: map[string][]byte{"tokenizer.json": releases.Cases[name].File}}
	}
	for _, name := range []string{"qwen3", "qwen3_5"} {
		all[name] = cut{files: map[string][]byte{"tokenizer.json": releases.Cases[name].File}, differ: notNFC,
			noted: []string{"NFC"}}
	}
	all["glm4"] = cut{files: map[string][]byte{"tokenizer.json": releases.Cases["glm4"].File}, family: "glm4",
		noted: []string{`"[gMASK]<sop>" before a text`}}
	all["gemma4"] = cut{files: map[string][]byte{"tokenizer.json": byLines(t, releases.Cases["gemma"].File)},
		family: "gemma4"}
	all["stories260K"] = cut{files: folder(t, golden.StoriesDir(t))}
	if os.Getenv("TRAINER_DATA") == "" {
		return all
	}
	outside := func(name string) map[string][]byte { return folder(t, golden.Outside(t, "data/tokenizers/"+name)) }
	all["SmolLM"], all["SmolLM, merges as lists"] = cut{files: outside("smollm-135m")},
		cut{files: outside("smollm-135m-newformat")}
	all["Qwen2.5"] = cut{files: outside("qwen2.5"), noted: []string{"NFC", `"</s>" (128247)`},
		differ: func(text string) bool { return notNFC(text) || strings.Contains(text, "</s>") }}
	all["Llama 2"] = cut{files: outside("tinyllama-1.1b-chat")}
	all["Mistral v0.3"] = cut{files: outside("mistral-7b-instruct-v0.3"), noted: []string{"that begins with one",
		"behind each special token"},
		differ: func(text string) bool {
			return strings.HasPrefix(strings.ReplaceAll(text, "▁", " "), " ") || strings.Contains(text, "</s>") ||
				strings.Contains(text, "[INST]") || strings.Contains(text, "[TOOL_CALLS]")
		}}
	gemma := outside("tinyllama-1.1b-chat")
	var file map[string]json.RawMessage
	if err := json.Unmarshal(gemma["tokenizer.json"], &file); err != nil {
		t.Fatal(err)
	}
	file["normalizer"] = json.RawMessage(`{"type":"Replace","pattern":{"String":" "},"content":"▁"}`)
	file["pre_tokenizer"] = json.RawMessage(
		`{"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious","invert":false}`)
	var err error
	if gemma["tokenizer.json"], err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	all["Gemma's pipeline"], all["Gemma's pipeline, gemma4"] = cut{files: gemma}, cut{files: gemma, family: "gemma4"}
	return all
}

// byLines is a tokenizer.json in which, as in Gemma's, no token has line ends beside other characters, and three of
// them are one token.
func byLines(t *testing.T, raw []byte) []byte {
	t.Helper()
	var file map[string]any
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	m := file["model"].(map[string]any)
	vocab := m["vocab"].(map[string]any)
	merges := slices.DeleteFunc(m["merges"].([]any), func(one any) bool { return strings.Contains(one.(string), "\n") })
	next := len(vocab) + len(file["added_tokens"].([]any))
	for i, token := range []string{"\n\n", "\n\n\n"} {
		vocab[token] = next + i
	}
	m["merges"] = append(merges, "\n \n", "\n\n \n", "\n \n\n")
	file["added_tokens"] = append(slices.DeleteFunc(file["added_tokens"].([]any), func(one any) bool {
		return one.(map[string]any)["special"] != true
	}),
		map[string]any{"id": vocab["<unk>"], "content": "<unk>", "special": true})
	raw, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// folder are a tokenizer's files.
func folder(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt",
		"added_tokens.json", "special_tokens_map.json"} {
		if raw, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			files[name] = raw
		}
	}
	return files
}

const askTokens = `
import json, sys
sys.path.insert(0, sys.argv[1])
import llamacpp
q = json.load(sys.stdin)
out = {}
for name, path in q["models"].items():
    m = llamacpp.Llama(path)
    out[name] = [m.tokenize(t, False) for t in q["texts"]]
    m.close()
print(json.dumps(out))
`

// TestLlamaCPPCutsTexts: llama.cpp cuts texts into the ids of every tokenizer that is exported, but for those that a
// note names.
func TestLlamaCPPCutsTexts(t *testing.T) {
	python := withLlamaCPP(t)
	var texts []string
	golden.JSON(t, golden.Path(t, "tokenizers/corpus.json"), &texts)
	texts = append(texts, "a\n\n\nb\n\n\n\n c", strings.Repeat("\n", 40)+" \n \n\n")
	models, want := map[string]string{}, map[string][][]int32{}
	all := cuts(t)
	for name, c := range all {
		where := t.TempDir()
		for file, text := range c.files {
			if err := os.WriteFile(filepath.Join(where, file), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		tok, err := tokenizer.Load(where)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, text := range texts {
			want[name] = append(want[name], tok.IDs(text, false))
		}
		out := filepath.Join(where, "model.gguf")
		r, err := Export(context.Background(), Options{Format: "gguf", DType: "f16", Model: tinyModel(t, c.files,
			tok.VocabSize(), c.family), Out: out}, session.Env{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, noted := range c.noted {
			if !strings.Contains(strings.Join(r.Notes, " "), noted) {
				t.Errorf("%s: no note says %q: %q", name, noted, r.Notes)
			}
		}
		models[name] = out
	}
	var got map[string][][]int32
	ask(t, python, askTokens, map[string]any{"models": models, "texts": texts}, &got)
	for _, name := range slices.Sorted(maps.Keys(models)) {
		wrong, expected := []string{}, 0
		for i, text := range texts {
			switch equal := slices.Equal(got[name][i], want[name][i]); {
			case equal:
			case all[name].differ != nil && all[name].differ(text):
				expected++
			default:
				wrong = append(wrong, fmt.Sprintf("%q: %v in llama.cpp, want %v", text, got[name][i], want[name][i]))
			}
		}
		if len(wrong) > 0 {
			t.Errorf("%s: %d of %d texts differ:\n%s", name, len(wrong), len(texts),
				strings.Join(wrong[:min(len(wrong), 6)], "\n"))
		}
		t.Logf("%s: %d texts, %d differ as noted", name, len(texts), expected)
	}
}
