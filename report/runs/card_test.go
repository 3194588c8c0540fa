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
