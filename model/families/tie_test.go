package families

import (
	"testing"

	"github.com/tierlora/tierlora/model/weights"
)

// TestHeadOfAFolderWithImages: transformers 5 says around text_config whether head and embeddings are one, transformers
// 4 in it. Where both are there and differ, the checkpoint's tensors tell.
func TestHeadOfAFolderWithImages(t *testing.T) {
	const text = `"vocab_size":8,"hidden_size":8,"intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":1,"num_key_value_heads":1,"head_dim":8,"max_position_embeddings":16`
	embeddings := weights.Spec{Name: "language_model.model.embed_tokens.weight", Shape: []int{8, 8}}
	head := weights.Spec{Name: "language_model.lm_head.weight", Shape: []int{8, 8}}
	type folder struct{ family, of string }
	for _, c := range []struct {
		around, within string
		specs          []weights.Spec
		tied           bool
	}{
		{`"tie_word_embeddings":true,`, `"tie_word_embeddings":false,`, []weights.Spec{embeddings}, true},
		{`"tie_word_embeddings":true,`, `"tie_word_embeddings":false,`, []weights.Spec{embeddings, head}, false},
		{`"tie_word_embeddings":false,`, `"tie_word_embeddings":false,`, []weights.Spec{embeddings}, false},
		{``, `"tie_word_embeddings":false,`, []weights.Spec{embeddings}, false},
		{`"tie_word_embeddings":false,`, `"tie_word_embeddings":true,`, []weights.Spec{embeddings}, true},
		{`"tie_word_embeddings":false,`, `"tie_word_embeddings":true,`, []weights.Spec{embeddings, head}, false},
		{``, `"tie_word_embeddings":true,`, []weights.Spec{embeddings, head}, true},
	} {
		for _, f := range []folder{{"mistral3", "mistral"}, {"mistral3", "ministral3"}, {"gemma3", "gemma3_text"}} {
			family := f.family
			config, err := ParseConfig([]byte(`{"model_type":"` + family + `",` + c.around +
				`"text_config":{"model_type":"` + f.of + `",` + c.within + text + `}}`))
			if err != nil {
				t.Fatal(err)
			}
			set := weights.Declare(c.specs, weights.BF16)
			if got := Tie(config, set); got.TieEmbeddings != c.tied {
				t.Errorf("%s %s %s %d tensors: tied %v", family, c.around, c.within, len(c.specs), got.TieEmbeddings)
			}
			if err := Rename(config, set); err != nil {
				t.Fatal(err)
			}
			if got := Tie(config, set); got.TieEmbeddings != c.tied {
				t.Errorf("%s %s %s %d tensors, renamed: tied %v", family, c.around, c.within, len(c.specs),
					got.TieEmbeddings)
			}
		}
	}
}
