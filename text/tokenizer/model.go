package tokenizer

import (
	"encoding/json"
	"fmt"
)

// model splits pieces into tokens of its vocabulary.
type model interface {
	// tokenize appends the tokens of p to out.
	tokenize(p piece, sc *scratch, out *output)
	names() *vocabulary
}

// models maps each kind of model to the function that parses it from its fields, with vocabulary and merges as text of
// the file.
var models = map[string]func(fields json.RawMessage, vocab, merges string) (model, error){
	"BPE":       parseBPE,
	"Unigram":   parseUnigram,
	"WordPiece": parseWordPiece,
	"WordLevel": parseWordLevel,
}

// parseModel parses the model part of tokenizer.json.
func parseModel(b string) (model, error) {
	if b == "" || b == "null" {
		return nil, fmt.Errorf("there is none")
	}
	fields := map[string]json.RawMessage{}
	var vocab, merges string
	err := object(b, func(name, value string) error {
		switch name {
		case "vocab":
			vocab = value
		case "merges":
			merges = value
		default:
			fields[name] = json.RawMessage(value)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	kind := `"BPE"` // files of tokenizers before 0.9 have no type
	if k, ok := fields["type"]; ok {
		kind = string(k)
	}
	delete(fields, "type")
	var name string
	wrong := json.Unmarshal([]byte(kind), &name)
	parse, ok := models[name]
	if wrong != nil || !ok {
		return nil, fmt.Errorf("type %s: only BPE, Unigram, WordPiece and WordLevel are supported", kind)
	}
	rest, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	return parse(rest, vocab, merges)
}

// bpeFields is a BPE model without its vocabulary and merges.
type bpeFields struct {
	Dropout      *float64 `json:"dropout"`
	UnkToken     *string  `json:"unk_token"`
	Prefix       *string  `json:"continuing_subword_prefix"`
	Suffix       *string  `json:"end_of_word_suffix"`
	FuseUnk      bool     `json:"fuse_unk"`
	ByteFallback bool     `json:"byte_fallback"`
	IgnoreMerges bool     `json:"ignore_merges"`
}

func parseBPE(fields json.RawMessage, vocabText, mergesText string) (model, error) {
	var f bpeFields
	if err := strict(fields, &f); err != nil {
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

// fill sets vocabulary and merges.
func (m *bpe) fill(vocab []entry, merges [][2]string) error {
	if err := m.vocabulary.fill(vocab); err != nil {
		return err
	}
	m.unk = -1
	if m.unkToken != "" {
		if id, ok := m.vocab[m.unkToken]; ok {
			m.unk = id
		}
	}
	m.pairs = newPairTable(len(merges))
	m.merged = make([]bool, len(m.tokens))
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
		// The continuing prefix of the right side is removed inside the merged token.
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
