package adapter

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestTokenRowsRefused: entries of trainable_token_indices that mean nothing are refused with the key's name.
func TestTokenRowsRefused(t *testing.T) {
	for _, c := range []struct {
		want string
		rows []string
		save []string
	}{
		{"lora.trainable_token_indices: token 7 of embed_tokens stands there twice",
			[]string{"7", "embed_tokens:7"}, nil},
		{`lora.trainable_token_indices: "x" is no number of a token, counted from 0`, []string{"x"}, nil},
		{`lora.trainable_token_indices: "-1" is no number of a token, counted from 0`, []string{"-1"}, nil},
		{`lora.trainable_token_indices: "norm:3" names the module "norm", which is neither embed_tokens nor lm_head`,
			[]string{"norm:3"}, nil},
		{"lora.trainable_token_indices: it names rows of embed_tokens, which lora.modules_to_save trains in whole: " +
			"leave embed_tokens out of one of the two", []string{"7"}, []string{"model.embed_tokens"}},
	} {
		l := LoRA{Shared: Default().Shared}
		l.TrainableTokenIndices, l.ModulesToSave = c.rows, c.save
		if err := errors.Join(l.Validate()...); err == nil || err.Error() != c.want {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
	}
}

// TestTokenRowsOfFiles reads and writes trainable_token_indices of adapter_config.json, in PEFT's two forms.
func TestTokenRowsOfFiles(t *testing.T) {
	for _, c := range []struct {
		file       string
		rows, head []int
		written    string
	}{
		{`[3, 99]`, []int{3, 99}, nil, `{"embed_tokens":[3,99]}`},
		{`{"embed_tokens": [3, 1]}`, []int{3, 1}, nil, `{"embed_tokens":[3,1]}`},
		{`{"model.embed_tokens": [3], "lm_head": [4, 2]}`, []int{3}, []int{4, 2},
			`{"embed_tokens":[3],"lm_head":[4,2]}`},
		{`{"lm_head": [4]}`, nil, []int{4}, `{"lm_head":[4]}`},
		{`null`, nil, nil, ``},
	} {
		config := strings.Replace(peftFile, `"peft_type"`, `"trainable_token_indices": `+c.file+`, "peft_type"`, 1)
		saved, err := parseConfig([]byte(config))
		if err != nil {
			t.Fatal(err)
		}
		rows := TokenRowsOf(saved.Config)
		if !slices.Equal(rows.Embeddings, c.rows) || !slices.Equal(rows.Head, c.head) {
			t.Errorf("%s: %+v", c.file, rows)
		}
		raw, err := saved.Method.PEFT.Format(saved.Config, "base", nil)
		if err != nil {
			t.Fatal(err)
		}
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(raw, &keys); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, r := range string(keys["trainable_token_indices"]) {
			if r != ' ' && r != '\n' {
				text.WriteRune(r)
			}
		}
		if text.String() != c.written {
			t.Errorf("%s is written as %s", c.file, text.String())
		}
	}
	for _, broken := range []string{`"3"`, `[[3]]`, `{"norm": [3]}`, `[-1]`, `[3, 3]`, `[1e99]`} {
		config := strings.Replace(peftFile, `"peft_type"`, `"trainable_token_indices": `+broken+`, "peft_type"`, 1)
		if _, err := parseConfig([]byte(config)); err == nil ||
			!strings.Contains(err.Error(), "trainable_token_indices") {
			t.Errorf("%s: %v", broken, err)
		}
	}
}

const peftFile = `{"base_model_name_or_path": "base", "bias": "none", "lora_alpha": 8, "lora_dropout": 0, "r": 4,
 "peft_type": "LORA", "target_modules": ["q_proj"]}`
