package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// text checks the keys around text_config and returns the keys of text_config with their dialect.
func (k *Keys) text(d Dialect) (*Keys, Dialect) {
	inner := &Keys{raw: map[string]json.RawMessage{}, bad: k.bad, given: map[string]bool{},
		parts: map[string]float64{}, five: k.five}
	var raw json.RawMessage
	if !k.take("text_config", "an object", &raw) {
		k.Fail("text_config", "is missing")
	} else if fields, err := object(raw); err != nil {
		k.Fail("text_config", "= %s: %v", shown(raw), err)
	} else {
		inner.raw = fields
	}
	kind := d.TextType
	inner.Text("model_type", &kind)
	text, known := d.Text[kind]
	if !known {
		k.Fail("text_config.model_type", "= %q: must be %s", kind,
			strings.Join(slices.Sorted(maps.Keys(d.Text)), " or "))
		text = d.Text[d.TextType]
	}
	inner.Drop("architectures")
	// these keys of the whole model apply to the language model
	for _, key := range []string{"bos_token_id", "eos_token_id", "torch_dtype", "dtype", quantizationKey} {
		if !k.absent(key) {
			inner.raw[key] = k.raw[key]
		}
		k.Drop(key)
	}
	for key := range inner.raw {
		inner.given[key] = true
	}
	for _, key := range d.Other {
		k.Drop(key)
	}
	k.rest(d)
	return inner, text
}

// languageModels maps language models of models of text and images to the family that computes the same for text.
var languageModels = map[string]string{"qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3",
	"qwen3_vl_moe_text": "qwen3_moe"}

// otherAttention lists models of text and images whose prompts attend to later tokens, so that their language models
// compute something else than the family they name.
var otherAttention = []string{"paligemma", "colpali", "pi0"}

// saveAs explains how to save a language model as a folder of its own.
func saveAs(family string) string {
	return "python scripts/language_model.py DIR " + family + " OUT (docs/MODELS.md)"
}

// withImages returns the error for an unsupported model of text and images. If its language model belongs to a
// supported family, the error explains how to train that.
func (k *Keys) withImages(kind string, dialects map[string]Dialect) error {
	var text struct {
		Type string `json:"model_type"`
	}
	json.Unmarshal(k.raw["text_config"], &text) //nolint:errcheck // then it names none
	family := languageModels[text.Type]
	if d, known := dialects[text.Type]; known && d.Text == nil && !slices.Contains(otherAttention, kind) {
		family = text.Type
	}
	if family != "" {
		return fmt.Errorf("model_type = %q with a text_config is a model of text and images, and %s. Its language "+
			"model computes what %s does: "+
			"save that as a folder of its own: %s", kind, towers, family, saveAs(family))
	}
	of := ""
	if text.Type != "" && slices.Contains(otherAttention, kind) {
		of = fmt.Sprintf(", and neither is its language model %q, whose prompts see later tokens", text.Type)
	} else if text.Type != "" {
		of = fmt.Sprintf(", and neither is its language model %q", text.Type)
	}
	return fmt.Errorf(
		"model_type = %q with a text_config is a model of text and images, which is not supported%s (supported: %s)",
		kind, of, names(dialects))
}
