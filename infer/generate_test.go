package infer

import (
	"context"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

// TestGenerateEqualsTransformers continues prompts greedily for 64 tokens, with and without PEFT's adapter.
func TestGenerateEqualsTransformers(t *testing.T) {
	type text struct {
		Prompt    string  `json:"prompt"`
		PromptIDs []int32 `json:"prompt_ids"`
		NewIDs    []int32 `json:"new_ids"`
		Text      string  `json:"text"`
	}
	var want struct {
		Tokens  int    `json:"tokens"`
		Base    []text `json:"base"`
		Adapter []text `json:"adapter"`
	}
	golden.JSON(t, golden.Path(t, "generate/generate.json"), &want)
	for _, c := range []struct {
		name, adapter string
		texts         []text
	}{{"base", "", want.Base}, {"adapter", golden.Path(t, "train/lora/final"), want.Adapter}} {
		t.Run(c.name, func(t *testing.T) {
			g, err := NewGenerator(context.Background(), session.Options{Model: golden.StoriesDir(t), Device: "cpu"},
				c.adapter, session.Env{})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			for _, w := range c.texts {
				if ids := g.Base.Tokenizer.IDs(w.Prompt, true); !slices.Equal(ids, w.PromptIDs) {
					t.Errorf("%q: prompt ids %v, want %v", w.Prompt, ids, w.PromptIDs)
				}
				ids, err := g.generateIDs(context.Background(), w.PromptIDs, GenerateOptions{MaxTokens: want.Tokens})
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(ids, w.NewIDs) {
					t.Errorf("%q: ids %v, want %v", w.Prompt, ids, w.NewIDs)
				}
				if got := g.Base.Tokenizer.Decode(append(slices.Clone(w.PromptIDs), ids...), true); got != w.Text {
					t.Errorf("%q: text %q, want %q", w.Prompt, got, w.Text)
				}
			}
		})
	}
}

// TestAdapterLogitsEqualPEFT compares the last positions' logits with PEFT's, with and without the adapter.
func TestAdapterLogitsEqualPEFT(t *testing.T) {
	ref := golden.Open(t, golden.Path(t, "generate/logits.safetensors"))
	ids := ref.Ints("ids")
	for name, dir := range map[string]string{"base": "", "adapter": golden.Path(t, "train/lora/final")} {
		g, err := NewGenerator(context.Background(), session.Options{Model: golden.StoriesDir(t), Device: "cpu"},
			dir, session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		want, shape := ref.Floats(name+".logits"), ref.Shape(name+".logits")
		rows, vocab := shape[0], shape[1]
		all := g.logitsAfter(t, ids, rows) // one token at a time, on top of the cache
		for r, got := range all[len(all)-rows:] {
			for i := range got {
				golden.Near(t, name+" logit", float64(got[i]), want[r*vocab+i], 1e-4)
			}
		}
	}
}
