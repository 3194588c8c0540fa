package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	sugarme "github.com/sugarme/tokenizer"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

var _ sugarme.Decoder = decoder(nil)

// Model is the model under sugarme's interface: it can stand in a sugarme pipeline.
func (t *Tokenizer) Model() sugarme.Model { return sugarmeModel{t.vocab, t.model} }

type sugarmeModel struct {
	*vocabulary
	model model
}

// Tokenize cuts a pre-tokenized sequence (in the vocabulary's own characters) into tokens; offsets are bytes of it.
func (m sugarmeModel) Tokenize(sequence string) ([]sugarme.Token, error) {
	var sc scratch
	if b, ok := m.model.(*bpe); ok {
		if id, ok := b.vocab[sequence]; ok && b.ignoreMerges {
			return []sugarme.Token{{Id: int(id), Value: sequence, Offsets: []int{0, len(sequence)}}}, nil
		}
		b.characters(sequence, &sc)
		b.finish(&sc)
		out := make([]sugarme.Token, len(sc.tokens))
		start := 0
		for i, t := range sc.tokens {
			value, _ := m.token(t.id)
			out[i] = sugarme.Token{Id: int(t.id), Value: value, Offsets: []int{start, int(t.end)}}
			start = int(t.end)
		}
		return out, nil
	}
	var o output
	m.model.tokenize(piece{s: sequence, at: byteAlignments(sequence), first: true}, &sc, &o)
	out := make([]sugarme.Token, len(o.ids))
	for i, id := range o.ids {
		value, _ := m.token(id)
		out[i] = sugarme.Token{Id: int(id), Value: value, Offsets: []int{o.offsets[i][0], o.offsets[i][1]}}
	}
	return out, nil
}

// TokenToId returns the id of a token.
func (m sugarmeModel) TokenToId(token string) (int, bool) {
	id, ok := m.vocab[token]
	return int(id), ok
}

// IdToToken returns the token of an id.
func (m sugarmeModel) IdToToken(id int) (string, bool) {
	if id < 0 || id >= len(m.tokens) {
		return "", false
	}
	return m.token(int32(id))
}

// GetVocab returns a copy of the vocabulary.
func (m sugarmeModel) GetVocab() map[string]int {
	v := make(map[string]int, len(m.vocab))
	for t, id := range m.vocab {
		v[t] = int(id)
	}
	return v
}

// GetVocabSize returns the number of tokens.
func (m sugarmeModel) GetVocabSize() int { return len(m.vocab) }

// Save writes vocab.json and merges.txt to folder path, their names led by prefix and a dash if one is given.
func (m sugarmeModel) Save(path string, prefix ...string) error {
	b, ok := m.model.(*bpe)
	if !ok {
		return errors.New("save model: only a BPE model is vocab.json and merges.txt")
	}
	lead := ""
	if len(prefix) > 0 {
		lead = prefix[0] + "-"
	}
	vocab, err := json.Marshal(m.vocab)
	if err != nil {
		return fmt.Errorf("write vocabulary: %w", err)
	}
	var merges strings.Builder
	merges.WriteString("#version: 0.2\n")
	for _, pair := range b.mergesByRank() {
		merges.WriteString(m.tokens[pair[0]] + " " + m.tokens[pair[1]] + "\n")
	}
	return errors.Join(
		atomicfile.Write(filepath.Join(path, lead+"vocab.json"), vocab),
		atomicfile.Write(filepath.Join(path, lead+"merges.txt"), []byte(merges.String())))
}

// mergesByRank returns the sides of every merge in the order of their ranks.
func (m *bpe) mergesByRank() [][2]int32 {
	last := -1
	for _, s := range m.pairs.slots {
		if s.key != 0 {
			last = max(last, int(s.rank))
		}
	}
	byRank := make([][2]int32, last+1)
	seen := make([]bool, last+1)
	for _, s := range m.pairs.slots {
		if s.key != 0 {
			byRank[s.rank], seen[s.rank] = [2]int32{int32(s.key>>32) - 1, int32(uint32(s.key))}, true
		}
	}
	out := byRank[:0]
	for r, ok := range seen {
		if ok {
			out = append(out, byRank[r])
		}
	}
	return out
}
