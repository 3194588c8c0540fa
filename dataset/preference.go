package dataset

import (
	"errors"
	"fmt"
	"strings"
)

// preference is {prompt, chosen, rejected}: two answers, texts or lists of messages, of which the first is the better. A
// pair without prompt holds it in both answers. Rows are read, checked and shown with the chosen answer; no objective
// learns from pairs.
var preference = Format{
	Roles: []Role{
		{Name: "prompt", Keys: []string{"prompt", "question", "instruction"}, Optional: true},
		{Name: "chosen", Keys: []string{"chosen", "chosen_messages", "response_j"}},
		{Name: "rejected", Keys: []string{"rejected", "rejected_messages", "response_k"}},
	},
	Separated: true,
	Render:    renderPreference,
	Untrainable: "the rows are preference pairs (chosen, rejected), which no training objective of this version learns from; to train on the " +
		"chosen answers alone write dataset.format: completion with dataset.fields: {prompt: prompt, completion: chosen}, or where the " +
		"answers are lists of messages dataset.format: messages with dataset.fields: {messages: chosen}",
}

func renderPreference(f Fields, cfg Config) (Example, error) {
	prompt, err := f.utterance("prompt")
	if err != nil {
		return Example{}, err
	}
	chosen, err := f.utterance("chosen")
	if err != nil {
		return Example{}, err
	}
	rejected, err := f.utterance("rejected")
	if err != nil {
		return Example{}, err
	}
	if chosen == rejected {
		return Example{}, errors.New("chosen and rejected are the same: there is nothing to prefer")
	}
	if !f.Present("prompt") {
		prompt, chosen = sharedPrompt(chosen, rejected)
		return answered(prompt, chosen), nil
	}
	return answered(prompt+cfg.Separator, chosen), nil
}

// sharedPrompt cuts what both answers begin with behind its last line.
func sharedPrompt(chosen, rejected string) (prompt, answer string) {
	n := 0
	for n < len(chosen) && n < len(rejected) && chosen[n] == rejected[n] {
		n++
	}
	n = strings.LastIndexByte(chosen[:n], '\n') + 1
	return chosen[:n], chosen[n:]
}

// utterance is the text of a role that is a string or a list of messages, whose contents are joined by line ends.
func (f Fields) utterance(role string) (string, error) {
	if !f.Present(role) {
		return "", nil
	}
	raw, _ := f.row.lookup(f.keys[role])
	if kindOf(raw) != "a list" {
		if kind := kindOf(raw); kind != "a string" {
			return "", fmt.Errorf("field %q is %s, want a string or a list of messages", f.keys[role], kind)
		}
		return f.Text(role)
	}
	messages, err := f.Objects(role)
	if err != nil {
		return "", err
	}
	var parts []string
	for i, o := range messages {
		m := Fields{row: o, keys: map[string]string{"role": "role", "content": "content"}}
		for key, other := range map[string]string{"role": "from", "content": "value"} {
			if !o.Has(key) && o.Has(other) {
				m.keys[key] = other
			}
		}
		for _, key := range []string{"role", "content"} {
			if !m.Present(key) {
				return "", fmt.Errorf("%s[%d] has no %s: want {\"role\": …, \"content\": …}", f.keys[role], i, key)
			}
		}
		content, err := m.parts("content")
		if err != nil {
			return "", fmt.Errorf("%s[%d]: %w", f.keys[role], i, err)
		}
		parts = append(parts, content)
	}
	if len(parts) == 0 {
		return "", fmt.Errorf("field %q is an empty list of messages", f.keys[role])
	}
	return strings.Join(parts, "\n"), nil
}

// parts is a text, or the texts of typed parts: {"type": "text", "text": …}, where LLaMA-Factory writes value for text.
func (f Fields) parts(role string) (string, error) {
	raw, _ := f.row.lookup(f.keys[role])
	if kindOf(raw) != "a list" {
		return f.Text(role)
	}
	list, err := f.Objects(role)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for i, o := range list {
		part := Fields{row: o, keys: map[string]string{"type": "type", "text": "text"}}
		if !o.Has("text") && o.Has("value") {
			part.keys["text"] = "value"
		}
		kind, err := part.Text("type")
		if err != nil {
			return "", fmt.Errorf("%s[%d]: %w", f.keys[role], i, err)
		}
		if kind != "text" || !part.Present("text") {
			return "", fmt.Errorf("%s[%d] is no part of the type text", f.keys[role], i)
		}
		s, err := part.Text("text")
		if err != nil {
			return "", fmt.Errorf("%s[%d]: %w", f.keys[role], i, err)
		}
		text.WriteString(s)
	}
	return text.String(), nil
}
