package tokenizer

import (
	"encoding/json"
	"fmt"
)

// wordLevel has a token for each whole word; any other word is unknown.
type wordLevel struct {
	vocabulary
	unk int32
}

func parseWordLevel(fields json.RawMessage, vocabText, mergesText string) (model, error) {
	if mergesText != "" {
		return nil, fmt.Errorf("merges: a WordLevel model has none")
	}
	f := struct {
		Unk string `json:"unk_token"`
	}{"<unk>"}
	if err := strict(fields, &f); err != nil {
		return nil, err
	}
	vocab, err := readVocab(vocabText)
	if err != nil {
		return nil, err
	}
	m := &wordLevel{}
	if err := m.fill(vocab); err != nil {
		return nil, err
	}
	id, ok := m.vocab[f.Unk]
	if !ok {
		return nil, fmt.Errorf("unk_token %q is not in the vocabulary", f.Unk)
	}
	m.unk = id
	return m, nil
}

func (m *wordLevel) tokenize(p piece, sc *scratch, out *output) {
	if p.s == "" {
		return
	}
	id, ok := m.vocab[p.s]
	if !ok {
		id = m.unk
	}
	sc.tokens = append(sc.tokens[:0], token{id, int32(len(p.s))})
	out.add(p, 0, sc.tokens)
}
