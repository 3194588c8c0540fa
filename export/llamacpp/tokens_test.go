package llamacpp

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/export/gguf"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/jinja"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// releasePipelines are tokenizer.json files with the pipelines of releases over small vocabularies.
func releasePipelines(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	var file struct {
		Cases map[string]struct{ File json.RawMessage }
	}
	golden.JSON(t, golden.Path(t, "tokenizers/releases.json"), &file)
	all := map[string]json.RawMessage{}
	for name, c := range file.Cases {
		all[name] = c.File
	}
	return all
}

// planned adds a tokenizer to an empty plan.
func planned(t *testing.T, raw []byte) (*Plan, error) {
	t.Helper()
	p := &Plan{Architecture: "llama"}
	return p, addTokenizer(t, p, raw, &chat.Sources{Tokens: jinja.NewDict()})
}

func addTokenizer(t *testing.T, p *Plan, raw []byte, sources *chat.Sources) error {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return p.tokens(Model{Config: model.Config{VocabSize: 700}, Tokenizer: tok, Chat: sources})
}

// TestTokenizersOfReleases: each pipeline gets llama.cpp's name of it, or is refused with the reason.
func TestTokenizersOfReleases(t *testing.T) {
	names := map[string]string{"qwen3": "qwen2", "qwen3_5": "qwen35", "phi4": "dbrx", "smollm3": "llama-bpe",
		"olmo2": "dbrx", "granite": "smollm", "nemo": "tekken",
		"glm4": "dbrx", "gpt-oss": "gpt-4o", "deepseek": "deepseek-v3", "roberta": "gpt-2"}
	// their vocabularies were not made by SentencePiece
	refused := map[string]string{"gemma": "no merge joins them", "phi3": "no merge joins them",
		"mixtral": "no merge joins them", "ernie4_5": "no merge joins them",
		"delimiter": "its normalizer StripAccents", "t5": "a model of type Unigram: BPE alone is written",
		"bert": "a model of type WordPiece: BPE alone is written"}
	for name, raw := range releasePipelines(t) {
		p, err := planned(t, raw)
		if want := refused[name]; want != "" || names[name] == "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		held := map[string]any{}
		for _, kv := range p.KVs {
			held[kv.Key] = kv.Value
		}
		if held["tokenizer.ggml.model"] != "gpt2" || held["tokenizer.ggml.pre"] != names[name] {
			t.Errorf("%s: model %v, pre %v, want %s", name, held["tokenizer.ggml.model"],
				held["tokenizer.ggml.pre"], names[name])
		}
		list, kinds := held["tokenizer.ggml.tokens"].([]string), held["tokenizer.ggml.token_type"].([]int32)
		merges, _ := held["tokenizer.ggml.merges"].([]string)
		if len(list) != 700 || len(kinds) != 700 || len(merges) == 0 || list[699] != "[PAD699]" ||
			kinds[699] != kindUnused {
			t.Errorf("%s: %d tokens, %d merges", name, len(list), len(merges))
		}
		for id, token := range list {
			if token == "<s>" && kinds[id] != kindControl || token == "Norm é" && kinds[id] != kindOwn ||
				token == "a" && kinds[id] != kindNormal {
				t.Errorf("%s: the token %q is of kind %d", name, token, kinds[id])
			}
		}
	}
}

// TestTwoTokensBeforeATextAreNoted: GLM's tokenizer puts two before a text, of which llama.cpp's file can say one.
func TestTwoTokensBeforeATextAreNoted(t *testing.T) {
	p := &Plan{Architecture: "glm4"}
	if err := addTokenizer(t, p, releasePipelines(t)["glm4"], &chat.Sources{Tokens: jinja.NewDict()}); err != nil {
		t.Fatal(err)
	}
	noted := slices.ContainsFunc(p.Notes, func(n string) bool {
		return strings.Contains(n, `puts "[gMASK]<sop>" before a text`)
	})
	if !noted {
		t.Errorf("notes %q", p.Notes)
	}
	for _, want := range []gguf.KV{{Key: "tokenizer.ggml.pre", Value: "glm4"}, {Key: "tokenizer.ggml.add_bos_token",
		Value: false}, {Key: "tokenizer.ggml.add_eos_token", Value: false}} {
		if !slices.ContainsFunc(p.KVs, func(kv gguf.KV) bool { return kv.Key == want.Key && kv.Value == want.Value }) {
			t.Errorf("no %v in the file", want)
		}
	}
}

// TestEndOfTurnOfTheTemplate: llama.cpp stops where the template ends a turn, though generation_config.json does not
// say so, as of ERNIE 4.5's folders.
func TestEndOfTurnOfTheTemplate(t *testing.T) {
	raw := releasePipelines(t)["glm4"]
	const template = `{% for m in messages %}{{ m.role }}: {{ m.content }}{% if m.role == 'assistant' %}<sop>{% ` +
		`endif %}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}`
	for text, want := range map[string]bool{template: true, strings.ReplaceAll(template, "<sop>", "."): false} {
		p := &Plan{Architecture: "llama"}
		sources := &chat.Sources{Tokens: jinja.NewDict(), Templates: map[string]string{"default": text}}
		if err := addTokenizer(t, p, raw, sources); err != nil {
			t.Fatal(err)
		}
		var file struct {
			Added []added `json:"added_tokens"`
		}
		if err := json.Unmarshal(raw, &file); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(file.Added, func(a added) bool { return a.Content == "<sop>" })
		has := slices.ContainsFunc(p.KVs, func(kv gguf.KV) bool {
			return kv.Key == "tokenizer.ggml.eot_token_id" && kv.Value == uint32(file.Added[i].ID)
		})
		if has != want {
			t.Errorf("the end of a turn is said: %v, want %v", has, want)
		}
	}
}

// TestSentencePieceSpaces: what is put before texts, of pipelines over a vocabulary that SentencePiece made.
func TestSentencePieceSpaces(t *testing.T) {
	raw := golden.ReadFile(t, golden.StoriesDir(t), "tokenizer.json")
	for name, c := range map[string]struct {
		normalizer, pre string
		space           bool
		note, wrong     string
	}{
		"Llama 2": {
			normalizer: `{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]}`, pre: "null", space: true},
		"ERNIE": {normalizer: `{"type":"Sequence","normalizers":[{"type":"Replace","pattern":{"String":" ` +
			`"},"content":"▁"}]}`, pre: "null"},
		"Gemma": {normalizer: `{"type":"Replace","pattern":{"String":" "},"content":"▁"}`,
			pre: `{"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious","invert":false}`},
		"Mistral": {normalizer: "null",
			pre: `{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":false}`, space: true,
			note: "before the first text alone"},
		"never": {normalizer: "null",
			pre: `{"type":"Metaspace","replacement":"▁","prepend_scheme":"never","split":false}`},
		"no mark": {normalizer: "null", pre: "null", wrong: "it has no mark for spaces"},
		"other":   {normalizer: `{"type":"NFKC"}`, pre: "null", wrong: "its normalizer NFKC"},
	} {
		var file map[string]json.RawMessage
		if err := json.Unmarshal(raw, &file); err != nil {
			t.Fatal(err)
		}
		file["normalizer"], file["pre_tokenizer"] = json.RawMessage(c.normalizer), json.RawMessage(c.pre)
		edited, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		p, err := planned(t, edited)
		if c.wrong != "" {
			if err == nil || err.Error() != c.wrong {
				t.Errorf("%s: %v, want %s", name, err, c.wrong)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, kv := range p.KVs {
			if kv.Key == "tokenizer.ggml.add_space_prefix" && kv.Value != c.space {
				t.Errorf("%s: add_space_prefix %v", name, kv.Value)
			}
		}
		if (c.note != "") != (len(p.Notes) > 0) || c.note != "" && !strings.Contains(p.Notes[0], c.note) {
			t.Errorf("%s: notes %q", name, p.Notes)
		}
	}
}
