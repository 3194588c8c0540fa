package model

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// text judges the keys around text_config and returns those of text_config, and its dialect.
func (k *Keys) text(d Dialect) (*Keys, Dialect) {
	inner := &Keys{raw: map[string]json.RawMessage{}, bad: k.bad, given: map[string]bool{}, parts: map[string]float64{}, five: k.five}
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
		k.Fail("text_config.model_type", "= %q: must be %s", kind, strings.Join(slices.Sorted(maps.Keys(d.Text)), " or "))
		text = d.Text[d.TextType]
	}
	inner.Drop("architectures")
	for _, key := range []string{"bos_token_id", "eos_token_id", "torch_dtype", "dtype", quantizationKey} { // said of the whole model, they count
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
