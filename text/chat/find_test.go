package chat

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/text/jinja"
)

// TestFind: the templates that transformers 4.57.6 takes from such folders, without and with tools.
func TestFind(t *testing.T) {
	for _, c := range []struct {
		name         string
		files        map[string]string
		choice       string
		plain, tools string // or the beginning of the error
	}{
		{"none", map[string]string{"tokenizer_config.json": `{}`}, "", "the model's files hold no chat template", ""},
		{"no files", nil, "", "the model's files hold no chat template", ""},
		{"configuration", map[string]string{"tokenizer_config.json": `{"chat_template":"C"}`}, "", "C", "C"},
		{"file first", map[string]string{"tokenizer_config.json": `{"chat_template":"C"}`, "chat_template.jinja": "J"}, "", "J", "J"},
		{"line ends", map[string]string{"chat_template.jinja": "a\r\nb\r"}, "", "a\nb\n", "a\nb\n"},
		{"a processor's", map[string]string{"chat_template.json": `{"chat_template":"P"}`}, "", "P", "P"},
		{"named", map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T"}]}`}, "", "D", "T"},
		{"named, chosen", map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"default","template":"D"},{"name":"rag","template":"R"}]}`}, "rag", "R", "R"},
		{"no default", map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"rag","template":"R"}]}`}, "",
			"the model has the chat templates rag and none called default: name one by dataset.chat_template", ""},
		{"folder of templates", map[string]string{"chat_template.jinja": "J", "additional_chat_templates/tool_use.jinja": "T"}, "", "J", "T"},
		{"folder of templates alone", map[string]string{"tokenizer_config.json": `{"chat_template":"C"}`, "additional_chat_templates/rag.jinja": "R"}, "",
			"the model has the chat templates rag and none called default", ""},
		{"built in", map[string]string{"chat_template.jinja": "J"}, "zephyr", builtIn["zephyr"], builtIn["zephyr"]},
		{"wrong type", map[string]string{"tokenizer_config.json": `{"chat_template":5}`}, "", "tokenizer_config.json: chat_template is neither a template nor a list of {name, template}", ""},
		{"no JSON", map[string]string{"tokenizer_config.json": `{`}, "", "tokenizer_config.json: ", ""},
		{"wrong stop", map[string]string{"generation_config.json": `{"eos_token_id":"x"}`}, "", `generation_config.json: eos_token_id is "x", want an id or a list of ids`, ""},
		{"wrong tokens that are never said", map[string]string{"generation_config.json": `{"suppress_tokens":7}`}, "", `generation_config.json: suppress_tokens is 7, want a list of ids`, ""},
		{"wrong token", map[string]string{"tokenizer_config.json": `{"bos_token":5}`}, "", "the model's bos_token: 5 is neither a token nor a list of tokens", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := fstest.MapFS{}
			for name, text := range c.files {
				folder[name] = &fstest.MapFile{Data: []byte(text)}
			}
			s, err := Find(folder)
			var plain, tools Named
			if err == nil {
				plain, tools, err = s.Choose(c.choice)
			}
			if err != nil {
				if !strings.HasPrefix(err.Error(), c.plain) || c.tools != "" {
					t.Errorf("%v, want %q", err, c.plain)
				}
				return
			}
			if plain.Source != c.plain || tools.Source != c.tools {
				t.Errorf("%q and %q, want %q and %q", plain.Source, tools.Source, c.plain, c.tools)
			}
		})
	}
}

// TestTokens: the special tokens that transformers 4.57.6 gives to the templates of these folders.
func TestTokens(t *testing.T) {
	for folder, want := range map[string]string{
		"qwen2.5":               `{"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "additional_special_tokens": 13}`,
		"tinyllama-1.1b-chat":   `{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}`,
		"smollm-135m":           `{"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>", "pad_token": "[PAD]", "additional_special_tokens": 17}`,
		"smollm-135m-newformat": `{"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>", "pad_token": "[PAD]", "additional_special_tokens": 18}`,
	} {
		s, err := Find(os.DirFS(golden.Outside(t, filepath.Join("data/tokenizers", folder))))
		if err != nil {
			t.Fatal(err)
		}
		if list, _ := s.Tokens.Get("additional_special_tokens"); list != nil {
			s.Tokens.Set("additional_special_tokens", jinja.Int(len(list.(*jinja.List).Items)))
		}
		if got := dumps(s.Tokens); got != want {
			t.Errorf("%s: %s, want %s", folder, got, want)
		}
	}
}
