package importer

import "strings"

// biasKeys reads PEFT's bias, and the key of that meaning that ms-swift calls lora_bias; PEFT's own lora_bias is a
// truth.
func biasKeys(t *translation, e entry) {
	switch v := e.Value.(type) {
	case bool:
		t.ifTrue(e, "lora.lora_bias", true, "")
	case string:
		if v == "none" || v == "" {
			t.off(e)
			return
		}
		t.choose(e, "lora.bias", map[string]string{"all": "all", "lora_only": "lora_only"})
	default:
		t.missing(e, "lora.bias is none, all or lora_only")
	}
}

// tokenIndices reads PEFT's trainable_token_indices: a list of numbers, or lists by the names of modules.
func tokenIndices(t *translation, e entry) {
	if isEmpty(e.Value) {
		t.off(e)
		return
	}
	byModule, ok := e.Value.(Map)
	if !ok {
		byModule = Map{{Key: "embed_tokens", Value: e.Value}}
	}
	var entries []any
	for _, p := range byModule {
		list, ok := p.Value.([]any)
		if !ok {
			t.missing(e, "lists of numbers by the names of modules were expected; give lora.trainable_token_indices")
			return
		}
		for _, id := range list {
			text := Text(id)
			if name := p.Key[strings.LastIndexByte(p.Key, '.')+1:]; name != "embed_tokens" {
				text = name + ":" + text
			}
			entries = append(entries, text)
		}
	}
	t.put(e, "lora.trainable_token_indices", entries, "")
}

// addedTokens returns the rule of a key that lists tokens to add, or names them between commas.
func addedTokens(path string) rule {
	return func(t *translation, e entry) {
		v := e.Value
		if s, ok := v.(string); ok {
			var list []any
			for _, token := range strings.Split(s, ",") {
				if token = strings.TrimSpace(token); token != "" {
					list = append(list, token)
				}
			}
			v = list
		}
		if isEmpty(v) {
			t.off(e)
			return
		}
		t.put(e, path, v, "their rows must be trained: lora.trainable_token_indices, or lora.modules_to_save")
	}
}
