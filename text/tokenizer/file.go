package tokenizer

import (
	"encoding/json"
	"fmt"

	"github.com/tierlora/tierlora/internal/jsonerr"
)

// readFile builds the pipeline of a tokenizer.json and returns its added tokens. It ignores the file's truncation and
// padding, which are not settings of the training.
func (t *Tokenizer) readFile(b []byte) ([]addedToken, error) {
	parts := map[string]string{}
	err := object(textOf(b), func(name, value string) error {
		switch name {
		case "version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model":
			parts[name] = value
			return nil
		}
		return fmt.Errorf("unknown field %q", name)
	})
	if err != nil {
		return nil, err
	}
	if parts["version"] != `"1.0"` {
		return nil, fmt.Errorf("version %s: only \"1.0\" is known", parts["version"])
	}
	var added []addedToken
	if list := parts["added_tokens"]; list != "" {
		if err := strict([]byte(list), &added); err != nil {
			return nil, fmt.Errorf("added_tokens: %w", err)
		}
	}
	if t.normalizers, err = parseNormalizer(json.RawMessage(parts["normalizer"]), "normalizer", 0); err != nil {
		return nil, err
	}
	if t.preTokenizers, err = parsePreTokenizer(json.RawMessage(parts["pre_tokenizer"]), "pre_tokenizer", 0); err != nil {
		return nil, err
	}
	if t.model, err = parseModel(parts["model"]); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if err = parsePostProcessor(json.RawMessage(parts["post_processor"]), "post_processor", 0, &t.post); err != nil {
		return nil, err
	}
	if t.decode, err = parseDecoder(json.RawMessage(parts["decoder"]), "decoder", 0); err != nil {
		return nil, err
	}
	return added, t.assemble()
}

// assemble adapts the model to its pipeline.
func (t *Tokenizer) assemble() error {
	t.vocab = t.model.names()
	last := len(t.preTokenizers) - 1
	var level byteLevel
	endsInBytes := false
	if last >= 0 {
		level, endsInBytes = t.preTokenizers[last].(byteLevel)
	}
	switch m := t.model.(type) {
	case *bpe:
		m.prepare(endsInBytes)
		if m.bytes {
			level.rewrite = false
			t.preTokenizers[last] = level
		}
		if !endsInBytes && !m.ignoreMerges {
			m.findJoins("▁")
		}
		if m.unk < 0 && m.unkToken != "" && !(m.bytes && m.allBytes) {
			return fmt.Errorf("model: unk_token %q is not in the vocabulary", m.unkToken)
		}
	case *unigram:
		if m.unk < 0 && !(endsInBytes && m.hasByteCharacters()) {
			return fmt.Errorf("model: unk_id is null: there is no id for a character that the vocabulary lacks")
		}
	}
	for i, p := range t.preTokenizers {
		if m, ok := p.(metaspace); ok && m.when == "first" && (i > 0 || len(t.normalizers) > 0) {
			t.needAlign = true
		}
	}
	return nil
}

// strict parses the JSON of a part of a file and refuses unknown fields.
func strict(b []byte, v any) error { return jsonerr.Unplaced(jsonerr.Strict(b, v)) }

// lenient parses the JSON of a part of a file and ignores unknown fields.
func lenient(b []byte, v any) error { return jsonerr.Unplaced(jsonerr.Unmarshal(b, v)) }

func isNull(b json.RawMessage) bool { return len(b) == 0 || string(b) == "null" }

// kindOf returns the type field of a component.
func kindOf(b json.RawMessage, where string) (string, error) {
	var head struct {
		Type *string `json:"type"`
	}
	if err := lenient(b, &head); err != nil {
		return "", fmt.Errorf("%s: %w", where, err)
	}
	if head.Type == nil {
		return "", fmt.Errorf("%s: no type", where)
	}
	return *head.Type, nil
}

// component parses the fields of a component into v, without its type field.
func component(b json.RawMessage, where, kind string, v any) error {
	var fields map[string]json.RawMessage
	if err := lenient(b, &fields); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	delete(fields, "type")
	rest, err := json.Marshal(fields)
	if err == nil {
		err = strict(rest, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", where, kind, err)
	}
	return nil
}

func unknown(where, what, kind string) error {
	return fmt.Errorf("%s: unknown %s %q", where, what, kind)
}

// patternField is {"String": …} or {"Regex": …}.
type patternField struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

func (p patternField) matcher(where string) (matcher, error) {
	switch {
	case p.String != nil && p.Regex == nil:
		return literal(*p.String), nil
	case p.Regex != nil && p.String == nil:
		if w, ok := handWritten(*p.Regex); ok {
			return words{w}, nil
		}
		m, err := compileExpression(*p.Regex)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		return m, nil
	}
	return nil, fmt.Errorf("%s: a pattern is either String or Regex", where)
}
