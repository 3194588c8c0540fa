package tokenizer

import (
	"encoding/json"
	"testing"
	"testing/fstest"
)

// TestGoldenPipelines runs every pipeline part against Hugging Face tokenizers on small vocabularies and awkward texts.
func TestGoldenPipelines(t *testing.T) {
	var f struct {
		Texts []string `json:"texts"`
		Cases map[string]struct {
			golden
			File json.RawMessage `json:"file"`
		} `json:"cases"`
	}
	parse(t, unzip(t, "pipelines.json.gz"), &f)
	for name, c := range f.Cases {
		t.Run(name, func(t *testing.T) {
			tok, err := LoadFS(fstest.MapFS{"tokenizer.json": {Data: c.File}}, ".")
			if err != nil {
				t.Fatal(err)
			}
			compare(t, tok, f.Texts, c.golden)
		})
	}
}
