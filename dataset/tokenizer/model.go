package tokenizer

import (
	"encoding/json"
	"fmt"
)

// modelFile is the model part of tokenizer.json without its vocabulary and merges.
type modelFile struct {
	Type         string   `json:"type"` // absent in files of tokenizers before 0.9
	Dropout      *float64 `json:"dropout"`
	UnkToken     *string  `json:"unk_token"`
	Prefix       *string  `json:"continuing_subword_prefix"`
	Suffix       *string  `json:"end_of_word_suffix"`
	FuseUnk      bool     `json:"fuse_unk"`
	ByteFallback bool     `json:"byte_fallback"`
	IgnoreMerges bool     `json:"ignore_merges"`
}

func parseModel(b string) (*bpe, error) {
	if b == "" || b == "null" {
		return nil, fmt.Errorf("there is none")
	}
	fields := map[string]json.RawMessage{}
	var vocabText, mergesText string
	err := object(b, func(name, value string) error {
		switch name {
		case "vocab":
			vocabText = value
		case "merges":
			mergesText = value
		default:
			fields[name] = json.RawMessage(value)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if kind, ok := fields["type"]; ok && string(kind) != `"BPE"` {
		return nil, fmt.Errorf("type %s: only BPE is supported", kind)
	}
	var f modelFile
	rest, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	if err := strict(rest, &f); err != nil {
		return nil, err
	}
	if f.Dropout != nil && *f.Dropout != 0 {
		return nil, fmt.Errorf("dropout %v: encoding would be random; set it to null", *f.Dropout)
	}
	vocab, err := readVocab(vocabText)
	if err != nil {
		return nil, err
	}
	merges, err := readMerges(mergesText)
	if err != nil {
		return nil, err
	}
	m := &bpe{fuseUnk: f.FuseUnk, byteFallback: f.ByteFallback, ignoreMerges: f.IgnoreMerges}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	m.unkToken, m.prefix, m.suffix = text(f.UnkToken), text(f.Prefix), text(f.Suffix)
	return m, m.fill(vocab, merges)
}

// fill enters vocabulary and merges.
func (m *bpe) fill(vocab []entry, merges [][2]string) error {
	limit := idLimit(len(vocab))
	largest := int64(-1)
	for _, e := range vocab {
		if e.id < 0 || e.id >= int64(limit) {
			return fmt.Errorf("vocab: %q has id %d, which is out of range (largest allowed here: %d)", e.token, e.id, limit-1)
		}
		largest = max(largest, e.id)
	}
	m.vocab = make(map[string]int32, len(vocab))
	m.tokens = make([]string, largest+1)
	m.present = make([]bool, largest+1)
	for _, e := range vocab {
		if m.present[e.id] {
			return fmt.Errorf("vocab: %q and %q both have id %d", m.tokens[e.id], e.token, e.id)
		}
		if _, ok := m.vocab[e.token]; ok {
			return fmt.Errorf("vocab: %q stands there twice", e.token)
		}
		m.tokens[e.id], m.present[e.id] = e.token, true
		m.vocab[e.token] = int32(e.id)
	}
	m.unk = -1
	if m.unkToken != "" {
		if id, ok := m.vocab[m.unkToken]; ok {
			m.unk = id
		}
	}
	m.pairs = newPairTable(len(merges))
	m.merged = make([]bool, largest+1)
	var joined []byte
	for rank, pair := range merges {
		left, ok := m.vocab[pair[0]]
		if !ok {
			return fmt.Errorf("merges[%d]: %q is not in the vocabulary", rank, pair[0])
		}
		right, ok := m.vocab[pair[1]]
		if !ok {
			return fmt.Errorf("merges[%d]: %q is not in the vocabulary", rank, pair[1])
		}
		// The continuing prefix of the right side disappears in the middle of the merged token.
		tail := pair[1]
		if len(m.prefix) <= len(tail) {
			tail = tail[len(m.prefix):]
		}
		joined = append(append(joined[:0], pair[0]...), tail...)
		id, ok := m.vocab[string(joined)]
		if !ok {
			return fmt.Errorf("merges[%d]: %q and %q make %q, which is not in the vocabulary", rank, pair[0], pair[1], joined)
		}
		m.pairs.put(left, right, merge{uint32(rank), id})
		m.merged[left], m.merged[right] = true, true
	}
	return nil
}

// token returns the token of an id.
func (m *bpe) token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(m.tokens) || !m.present[id] {
		return "", false
	}
	return m.tokens[id], true
}
