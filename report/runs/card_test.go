package runs

import (
	"math"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/train/replay"
)

// TestCard: the front matter is YAML with the hub's keys, the text has what the run's files say, and nothing of theirs
// is markup.
func TestCard(t *testing.T) {
	r := &Run{
		Evals: []Eval{{Step: 0, Loss: 3.5}, {Step: 100, Loss: 2.25}}, End: &End{Step: 100, Loss: 2.5},
		Manifest: &replay.Manifest{Program: "v1.2.3", Device: "NVIDIA H100 | <b>`x`</b>\n# heading", Data: strings.Repeat("ab", 32),
			Files: map[string]string{"adapter_model.safetensors": strings.Repeat("cd", 32)}},
		Data:     &dataset.Report{Kept: 7, TrainedTokens: 4321},
		Settings: []Setting{{Key: "adapter", Value: "qlora"}, {Key: "lora.r", Value: "16"}},
	}
	text := Card{Repo: "me/first", Base: "org/base", Licence: "apache-2.0: yes"}.Markdown(r)
	front, rest, ok := strings.Cut(strings.TrimPrefix(text, "---\n"), "---\n")
	var said map[string]any
	if !ok || yaml.Unmarshal([]byte(front), &said) != nil {
		t.Fatalf("the front matter is no YAML: %s", text)
	}
	for key, want := range map[string]any{"base_model": "org/base", "base_model_relation": "adapter", "library_name": "peft", "license": "apache-2.0: yes", "pipeline_tag": "text-generation"} {
		if said[key] != want {
			t.Errorf("%s is %v, want %v", key, said[key], want)
		}
	}
	for _, want := range []string{CardMark, "# first\n", "| held-out loss at the end (step 100) | 2.25 |", "| held-out perplexity at the end | 9.48774 |", "| rank | `16` |",
		"| trained tokens of an epoch | 4321 |", "| SHA-256 of tokens and labels | `" + strings.Repeat("ab", 32) + "` |",
		"| SHA-256 of the adapter's weights as trained | `" + strings.Repeat("cd", 32) + "` |", "| device | `NVIDIA H100 ' <b>'x'</b> # heading` |", "`tierlora v1.2.3`"} {
		if !strings.Contains(rest, want) {
			t.Errorf("%q is not in\n%s", want, rest)
		}
	}
	if math.Abs(math.Exp(2.25)-9.48774) > 1e-5 {
		t.Error("the perplexity is another")
	}
	local := Card{Repo: "me/first", Base: "stories", Merged: true}.Markdown(nil)
	if strings.Contains(local, "base_model:") || strings.Contains(local, "license:") || !strings.Contains(local, "library_name: transformers") || strings.Contains(local, "## Results") {
		t.Errorf("of a model without a run: %s", local)
	}
}

// TestCardNamesTheMethod: a card says which method trained, has its tag, and shows the keys of its section alone.
func TestCardNamesTheMethod(t *testing.T) {
	for name, want := range map[string][]string{
		"lora":  {"A LoRA adapter in PEFT's format for", "- lora\n", "| rank | `7` |"},
		"qlora": {"A QLoRA adapter in PEFT's format for", "- lora\n- qlora\n", "| rank | `7` |"},
		"qdora": {"A QDoRA adapter in PEFT's format for", "- dora\n- lora\n- qdora\n", "| rank | `7` |"},
		"ia3":   {"An IA3 adapter in PEFT's format for", "- ia3\n"},
		"miss":  {"A MiSS adapter in PEFT's format for", "- miss\n", "| rank | `9` |"},
		"":      {"An adapter in PEFT's format for", "tags:\n- tierlora\n---"},
	} {
		r := &Run{Settings: []Setting{{Key: "adapter", Value: name}, {Key: "lora.r", Value: "7"},
			{Key: "miss.r", Value: "9"}}}
		text := Card{Repo: "me/first", Base: "org/base"}.Markdown(r)
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%q: no %q in\n%s", name, w, text)
			}
		}
		if name == "ia3" && (strings.Contains(text, "rank") || strings.Contains(text, "- lora")) {
			t.Errorf("a card of IA3 has LoRA's rank or tag:\n%s", text)
		}
	}
	full := &Run{Settings: []Setting{{Key: "adapter", Value: "full"}}}
	text := Card{Repo: "me/first", Base: "org/base", Merged: true}.Markdown(full)
	if !strings.Contains(text, "A model with all or some weights fine-tuned, made from `org/base`") ||
		strings.Contains(text, "- lora") {
		t.Errorf("a card of a whole model:\n%s", text)
	}
	merged := &Run{Settings: []Setting{{Key: "adapter", Value: "vera"}}}
	text = Card{Repo: "me/first", Base: "org/base", Merged: true}.Markdown(merged)
	if !strings.Contains(text, "A model whose weights hold a VeRA adapter, made from `org/base`") {
		t.Errorf("a card of a merged model:\n%s", text)
	}
}
