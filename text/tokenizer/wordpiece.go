package tokenizer

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// wordPiece is greedy longest-match-first splitting (Schuster and Nakajima 2012) as BERT uses it. If a part of a word
// is in no token, the whole word is unknown.
type wordPiece struct {
	vocabulary
	unk     int32
	prefix  string // prefix of tokens that continue a word
	longest int    // largest number of code points of a word; a longer word is unknown
	cache   *wordCache
}

func parseWordPiece(fields json.RawMessage, vocabText, mergesText string) (model, error) {
	if mergesText != "" {
		return nil, fmt.Errorf("merges: a WordPiece model has none")
	}
	f := struct {
		Unk     string `json:"unk_token"`
		Prefix  string `json:"continuing_subword_prefix"`
		Longest int    `json:"max_input_chars_per_word"`
	}{"[UNK]", "##", 100}
	if err := strict(fields, &f); err != nil {
		return nil, err
	}
	if f.Longest < 0 {
		return nil, fmt.Errorf("max_input_chars_per_word %d is negative", f.Longest)
	}
	vocab, err := readVocab(vocabText)
	if err != nil {
		return nil, err
	}
	m := &wordPiece{prefix: f.Prefix, longest: f.Longest, cache: newWordCache()}
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

func (m *wordPiece) tokenize(p piece, sc *scratch, out *output) {
	if p.s == "" {
		return
	}
	if len(p.s) > maxCacheWord {
		m.cut(p.s, sc)
		out.add(p, 0, sc.tokens)
		return
	}
	slot := m.cache.slot(p.s)
	if c := slot.Load(); c != nil && c.word == p.s {
		out.add(p, 0, c.tokens)
		return
	}
	m.cut(p.s, sc)
	m.cache.put(slot, p.s, sc.tokens)
	out.add(p, 0, sc.tokens)
}

// cut writes the tokens of a word to sc.tokens.
func (m *wordPiece) cut(w string, sc *scratch) {
	sc.tokens = sc.tokens[:0]
	// Counting ends at the limit, so that a text without spaces costs no more.
	known := len(w) <= m.longest || utf8.RuneCountInString(w[:min(len(w), utf8.UTFMax*(m.longest+1))]) <= m.longest
	for start := 0; known && start < len(w); {
		id, end := int32(-1), len(w)
		for ; end > start; end -= lastRune(w[start:end]) {
			var ok bool
			sc.work.spend(1 + (end-start)/8)
			if start == 0 {
				id, ok = m.vocab[w[:end]]
			} else {
				sc.name = append(append(sc.name[:0], m.prefix...), w[start:end]...)
				id, ok = m.vocab[string(sc.name)]
			}
			if ok {
				break
			}
			id = -1
		}
		known = id >= 0
		sc.tokens = append(sc.tokens, token{id, int32(end)})
		start = end
	}
	if !known {
		sc.tokens = append(sc.tokens[:0], token{m.unk, int32(len(w))})
	}
}

// lastRune returns the width of the last code point of s.
func lastRune(s string) int {
	_, n := utf8.DecodeLastRuneInString(s)
	return n
}
