package export

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/export/gguf"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

const (
	// the id that <|im_end|> gets; stories260K writes it as the seventh token behind stops_check.py's prompt
	turnEnd   = 286
	turnStart = 510
	chatML    = `{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor ` +
		`%}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`
	plainTalk = `{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}{% endfor %}{% if ` +
		`add_generation_prompt %}[assistant] {% endif %}`
	markedTok = `{"add_bos_token": true, "bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": ` +
		`"</s>"}, "tokenizer_class": "LlamaTokenizer"}`
	trainedTok = `{"add_bos_token": true, "bos_token": "<s>", "eos_token": "<|im_end|>", "tokenizer_class": ` +
		`"LlamaTokenizer"}`
)

// marked is the folder of stories260K with the special tokens <|im_start|> and <|im_end|> in the place of two others,
// and with more files.
func marked(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden.StoriesDir(t))); err != nil {
		t.Fatal(err)
	}
	var tok map[string]any
	golden.JSON(t, filepath.Join(dir, "tokenizer.json"), &tok)
	model := tok["model"].(map[string]any)
	vocab := model["vocab"].(map[string]any)
	names := map[int]string{turnStart: "<|im_start|>", turnEnd: "<|im_end|>"}
	gone := map[string]bool{}
	for piece, id := range maps.Clone(vocab) {
		if name, ok := names[int(id.(float64))]; ok {
			delete(vocab, piece)
			vocab[name], gone[piece] = id, true
			tok["added_tokens"] = append(tok["added_tokens"].([]any), map[string]any{"id": id, "content": name,
				"special": true, "normalized": false,
				"single_word": false, "lstrip": false, "rstrip": false})
		}
	}
	model["merges"] = slices.DeleteFunc(model["merges"].([]any), func(m any) bool {
		a, b, _ := strings.Cut(m.(string), " ")
		return gone[a] || gone[b] || gone[a+b]
	})
	raw, err := json.Marshal(tok)
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, map[string]string{"tokenizer.json": string(raw)})
	put(t, dir, files)
	return dir
}

func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// idle is the folder of an adapter that changes nothing, with more files.
func idle(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := adapterOf(t, map[string][2]int{"model.layers.0.self_attn.q_proj": {64, 64}}, func(bool, int) float32 {
		return 0
	})
	put(t, dir, files)
	return dir
}

// TestMergedAnswers: a merged folder has the chat template that the adapter was trained with, alone, and ends answers
// at the token that ends its turns and at the base model's.
func TestMergedAnswers(t *testing.T) {
	none := map[string]string{}
	for name, c := range map[string]struct {
		base, adapter []map[string]string // of several adapters; files of each
		template      string              // chat_template.jinja; "" = the folder has none
		config        string              // chat_template of tokenizer_config.json; "" = it has none
		eos           string              // eos_token of it
		ids           string              // eos_token_id of generation_config.json; "" = the folder has no such file
		note          string              // a part of one; "" = there is none
	}{
		"an old folder, a base without a template": {base: []map[string]string{{"tokenizer_config.json": markedTok}},
			adapter: []map[string]string{{"chat_template.jinja": chatML}}, template: chatML, eos: "<|im_end|>",
			ids: "[286,2]"},
		"a base with a template of its own": {base: []map[string]string{
			{"tokenizer_config.json": strings.Replace(markedTok, "{", `{"chat_template": "{{ bos_token }}", `, 1),
				"generation_config.json": `{"eos_token_id": 2, "top_k": 5}`}},
			adapter: []map[string]string{{"chat_template.jinja": chatML}}, template: chatML, config: chatML,
			eos: "<|im_end|>", ids: "[286,2]"},
		"a base that stops there already": {base: []map[string]string{{"tokenizer_config.json": markedTok,
			"generation_config.json": `{"eos_token_id": [2, 286]}`}},
			adapter: []map[string]string{{"chat_template.jinja": chatML}}, template: chatML, eos: "</s>",
			ids: "[2, 286]"},
		"a template that writes eos_token": {base: []map[string]string{{"tokenizer_config.json": markedTok}},
			adapter: []map[string]string{{"chat_template.jinja": plainTalk}}, template: plainTalk,
			eos: "</s>", ids: "[2]"},
		"an adapter of others that names the end": {base: []map[string]string{{"tokenizer_config.json": markedTok}},
			adapter:  []map[string]string{{"chat_template.jinja": plainTalk, "tokenizer_config.json": trainedTok}},
			template: plainTalk, eos: "<|im_end|>", ids: "[286,2]"},
		"a folder of this program, trained on plain texts": {base: []map[string]string{
			{"tokenizer_config.json": markedTok}},
			adapter: []map[string]string{{"generation_config.json": `{"eos_token_id": [286]}`}}, eos: "</s>",
			ids: "[286,2]"},
		"files with a byte order mark": {base: []map[string]string{{"tokenizer_config.json": markedTok,
			"generation_config.json": "\xef\xbb\xbf{\"eos_token_id\": 2}"}},
			adapter: []map[string]string{{"chat_template.jinja": chatML}}, template: chatML, eos: "<|im_end|>",
			ids: "[286,2]"},
		"no template at all": {base: []map[string]string{{"tokenizer_config.json": markedTok}},
			adapter: []map[string]string{none}, eos: "</s>"},
		"a text that is no token": {base: []map[string]string{{"tokenizer_config.json": markedTok}},
			adapter:  []map[string]string{{"chat_template.jinja": strings.ReplaceAll(chatML, "im_end", "stop")}},
			template: strings.ReplaceAll(chatML, "im_end", "stop"), eos: "</s>", ids: "[2]",
			note: `ends a turn with the text "<|stop|>", which is no token`},
		"two adapters": {base: []map[string]string{{"tokenizer_config.json": markedTok}},
			adapter:  []map[string]string{{"chat_template.jinja": chatML}, {"chat_template.jinja": plainTalk}},
			template: chatML, eos: "<|im_end|>", ids: "[286,2]",
			note: "were trained with different chat templates"},
	} {
		base, out := marked(t, c.base[0]), filepath.Join(t.TempDir(), "merged")
		var all []WeightedAdapter
		for _, files := range c.adapter {
			all = append(all, WeightedAdapter{idle(t, files), 1})
		}
		r, err := Merge(context.Background(), MergeOptions{Model: base, Adapters: all, Out: out, Check: []string{}},
			session.Env{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var config struct {
			Template string `json:"chat_template"`
			EOS      any    `json:"eos_token"`
		}
		golden.JSON(t, filepath.Join(out, "tokenizer_config.json"), &config)
		if m, ok := config.EOS.(map[string]any); ok {
			config.EOS = m["content"]
		}
		template, _ := os.ReadFile(filepath.Join(out, "chat_template.jinja"))
		ids := ""
		if raw, err := os.ReadFile(filepath.Join(out, "generation_config.json")); err == nil {
			var g map[string]json.RawMessage
			if err := json.Unmarshal(raw, &g); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			ids = string(g["eos_token_id"])
			if strings.Contains(c.base[0]["generation_config.json"], "top_k") && string(g["top_k"]) != "5" {
				t.Errorf("%s: %s lost a key of the base's", name, raw)
			}
		}
		if string(template) != c.template || config.Template != c.config || config.EOS != c.eos || ids != c.ids {
			t.Errorf("%s: template %q, %q; eos_token %v, eos_token_id %s", name, template, config.Template,
				config.EOS, ids)
		}
		if noted := slices.ContainsFunc(r.Notes, func(n string) bool {
			return c.note != "" && strings.Contains(n, c.note)
		}); noted != (c.note != "") || c.note == "" && len(r.Notes) > 0 {
			t.Errorf("%s: notes %q", name, r.Notes)
		}
	}
}

// TestMergedKeepsFiles: where the adapter brings neither template nor end, the files beside the weights are the base's.
func TestMergedKeepsFiles(t *testing.T) {
	files := map[string]string{"tokenizer_config.json": strings.Replace(markedTok, "{", `{"chat_template": "`+
		"{% for m in messages %}{{ m.content + '<|im_end|>' }}{% endfor %}"+`", `, 1),
		"generation_config.json": `{"eos_token_id":[286 , 2]}`}
	base, out := marked(t, files), filepath.Join(t.TempDir(), "merged")
	if _, err := Merge(context.Background(), MergeOptions{Model: base, Adapters: One(idle(t, nil)), Out: out,
		Check: []string{}}, session.Env{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got := golden.ReadFile(t, out, name); string(got) != want {
			t.Errorf("%s is %s", name, got)
		}
	}
	if _, err := os.Lstat(filepath.Join(out, "chat_template.jinja")); err == nil {
		t.Error("a chat_template.jinja was made")
	}
}

// TestExportsCarryTheEnd: folders of adapters have the trained template and the end of a turn, and a GGUF file of the
// merged folder says what that of base and adapter says.
func TestExportsCarryTheEnd(t *testing.T) {
	base, from := marked(t, map[string]string{"tokenizer_config.json": markedTok}), idle(t,
		map[string]string{"chat_template.jinja": chatML})
	said := map[string]string{"peft": `pass generation_config=GenerationConfig.from_pretrained("OUT")`,
		"mlx":  "--adapter-path OUT --extra-eos-token '<|im_end|>'",
		"vllm": "--lora-modules NAME=OUT --chat-template OUT/chat_template.jinja --generation-config OUT"}
	for _, format := range []string{"peft", "vllm", "mlx"} {
		out := filepath.Join(t.TempDir(), format)
		r, err := Export(context.Background(), Options{Format: format, Model: base, Adapter: from, Out: out},
			session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if want := said[format]; !slices.ContainsFunc(r.Notes, func(n string) bool {
			return strings.Contains(n, strings.ReplaceAll(want, "OUT", out))
		}) {
			t.Errorf("%s: notes %q, want %s", format, r.Notes, want)
		}
		if got := golden.ReadFile(t, out, "chat_template.jinja"); string(got) != chatML {
			t.Errorf("%s: the template is %s", format, got)
		}
		for name, want := range map[string]string{"generation_config.json": `"eos_token_id": [286,2]`,
			"tokenizer_config.json": `"eos_token": "<|im_end|>"`} {
			if got := golden.ReadFile(t, out, name); !bytes.Contains(got, []byte(want)) {
				t.Errorf("%s: %s is %s", format, name, got)
			}
		}
		if saved, err := adapter.Open(out); err != nil && format != "mlx" {
			t.Errorf("%s: %v", format, err)
		} else if err == nil {
			saved.Close()
		}
	}
	merged := filepath.Join(t.TempDir(), "merged")
	if _, err := Merge(context.Background(), MergeOptions{Model: base, Adapters: One(from), Out: merged,
		Check: []string{}}, session.Env{}); err != nil {
		t.Fatal(err)
	}
	both, _ := exported(t, Options{Format: "gguf", Model: base, Adapter: from})
	whole, _ := exported(t, Options{Format: "gguf", Model: merged})
	ends := func(f *gguf.File) (ends []uint32) {
		for _, key := range []string{"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"} {
			if id, ok := f.Value(key).(uint32); ok {
				ends = append(ends, id)
			}
		}
		slices.Sort(ends)
		return ends
	}
	for _, f := range []*gguf.File{both, whole} {
		if got := ends(f); !slices.Equal(got, []uint32{2, turnEnd}) || f.Value("tokenizer.chat_template") != chatML {
			t.Errorf("ends %v, template %v", got, f.Value("tokenizer.chat_template"))
		}
	}
}

// TestGGUFEndsTrainedTurns: where the base model names other ends beside its eos_token, the token that ends a trained
// turn comes before them, as a GGUF file has one place for it.
func TestGGUFEndsTrainedTurns(t *testing.T) {
	base := marked(t, map[string]string{"tokenizer_config.json": markedTok,
		"generation_config.json": `{"eos_token_id": [2, 510]}`})
	f, _ := exported(t, Options{Format: "gguf", Model: base,
		Adapter: idle(t, map[string]string{"chat_template.jinja": chatML})})
	if got := f.Value("tokenizer.ggml.eot_token_id"); got != uint32(turnEnd) {
		t.Errorf("eot_token_id %v, want %d", got, turnEnd)
	}
}

// TestTransformersStops: transformers ends a greedy text of the merged folder at the token that ends a trained turn,
// where it runs on with the base model's files, and with PEFT where it is given the adapter's generation_config.json.
func TestTransformersStops(t *testing.T) {
	python := os.Getenv("TRAINER_PYTHON")
	if python == "" {
		python = "python3"
	}
	if exec.Command(python, "-c", "import torch, transformers, peft").Run() != nil {
		t.Skipf("%s has no torch, transformers and PEFT; TRAINER_PYTHON names one that has", python)
	}
	base, from := marked(t, map[string]string{"tokenizer_config.json": markedTok}), idle(t,
		map[string]string{"chat_template.jinja": chatML})
	merged, beside := filepath.Join(t.TempDir(), "merged"), filepath.Join(t.TempDir(), "beside")
	if _, err := Merge(context.Background(), MergeOptions{Model: base, Adapters: One(from), Out: merged,
		Check: []string{}}, session.Env{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Export(context.Background(), Options{Format: "peft", Model: base, Adapter: from, Out: beside},
		session.Env{}); err != nil {
		t.Fatal(err)
	}
	jobs, err := json.Marshal([]map[string]any{{"model": base, "adapter": nil, "config": nil},
		{"model": merged, "adapter": nil, "config": nil},
		{"model": base, "adapter": beside, "config": beside}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "jobs.json")
	put(t, filepath.Dir(file), map[string]string{"jobs.json": string(jobs)})
	cmd := exec.Command(python, filepath.Join(golden.Root(t), "scripts", "stops_check.py"), file)
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "OMP_NUM_THREADS=1")
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errOut.String())
	}
	type result struct {
		Tokens int
		EOS    string
	}
	var got []result
	if err := json.Unmarshal(out[bytes.LastIndexByte(bytes.TrimSpace(out), '\n')+1:], &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if want := []result{{40, "</s>"}, {7, "<|im_end|>"}, {7, "<|im_end|>"}}; !slices.Equal(got, want) {
		t.Errorf("base, merged and adapter in PEFT: %v, want %v", got, want)
	}
}
