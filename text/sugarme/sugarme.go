// Package sugarme puts this module's tokenizers behind the types of github.com/sugarme/tokenizer. A Go program that is
// written against those types then gets the ids and offsets of Hugging Face tokenizers, for every model that
// text/tokenizer reads. The program trainer does not link this package.
package sugarme

import (
	"os"
	"path/filepath"
	"slices"
	"sort"

	sugar "github.com/sugarme/tokenizer"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// New returns a tokenizer of sugarme's that encodes and decodes as t does. Model, post-processor and decoder are t's;
// normalisers and pre-tokenizers run inside the model, so none may be set. Decode keeps special tokens in the text even
// where its caller asks to skip them: sugarme skips only tokens that were added to it. Offsets in bytes are exact;
// sugarme's EncodeCharOffsets ends the last token one character early.
func New(t *tokenizer.Tokenizer) *sugar.Tokenizer {
	out := sugar.NewTokenizer(Model(t))
	out.WithPostProcessor(newSpecials(t))
	out.WithDecoder(Decoder(t))
	return out
}

// Model returns t's whole pipeline, from text to ids without special tokens, as a model of sugarme's.
func Model(t *tokenizer.Tokenizer) sugar.Model { return model{t} }

// Decoder returns the step from tokens to text as a decoder of sugarme's.
func Decoder(t *tokenizer.Tokenizer) sugar.Decoder { return decoder{t} }

type model struct{ *tokenizer.Tokenizer }

// Tokenize cuts a text, not a word of one, into tokens. Offsets are bytes of the text.
func (m model) Tokenize(text string) ([]sugar.Token, error) {
	e := m.Encode(text, false)
	bytes := make([]int, 0, len(text)+1) // the byte at which each code point begins, and the length of the text
	for i := range text {
		bytes = append(bytes, i)
	}
	bytes = append(bytes, len(text))
	out := make([]sugar.Token, len(e.IDs))
	for i, id := range e.IDs {
		out[i] = sugar.NewToken(int(id), e.Tokens[i], []int{bytes[e.Offsets[i][0]], bytes[e.Offsets[i][1]]})
	}
	return out, nil
}

// TokenToId returns the id of a token, added tokens included.
func (m model) TokenToId(token string) (int, bool) {
	id, ok := m.ID(token)
	return int(id), ok
}

// IdToToken returns the token of an id, added tokens included.
func (m model) IdToToken(id int) (string, bool) {
	if id < 0 || id >= m.VocabSize() {
		return "", false
	}
	return m.Token(int32(id))
}

// GetVocab returns a copy of the vocabulary, added tokens included.
func (m model) GetVocab() map[string]int {
	v := make(map[string]int, m.VocabSize())
	for id := range m.VocabSize() {
		if token, ok := m.Token(int32(id)); ok {
			v[token] = id
		}
	}
	return v
}

// GetVocabSize returns one more than the largest id.
func (m model) GetVocabSize() int { return m.VocabSize() }

// Save writes the files that the tokenizer was read from into the folder path, which it creates. A prefix and a dash
// lead their names if a prefix is given.
func (m model) Save(path string, prefix ...string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	lead := ""
	if len(prefix) > 0 {
		lead = prefix[0] + "-"
	}
	files := m.Files()
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if err := atomicfile.Write(filepath.Join(path, lead+name), files[name]); err != nil {
			return err
		}
	}
	return nil
}

type decoder struct{ *tokenizer.Tokenizer }

// Decode returns the text of tokens.
func (d decoder) Decode(tokens []string) string { return d.DecodeTokens(tokens) }

// DecodeChain returns the text of tokens as one part: no decoder can follow this one.
func (d decoder) DecodeChain(tokens []string) []string { return []string{d.DecodeTokens(tokens)} }

// specials is a post-processor that puts special tokens before and after a text.
type specials struct{ before, after *sugar.Encoding }

// newSpecials finds the special tokens that t puts around a text.
func newSpecials(t *tokenizer.Tokenizer) specials {
	ids, bare := t.IDs("a", true), t.IDs("a", false)
	n := 0
	for n+len(bare) < len(ids) && !slices.Equal(ids[n:n+len(bare)], bare) {
		n++
	}
	encoded := func(ids []int32) *sugar.Encoding {
		e := sugar.DefaultEncoding()
		for _, id := range ids {
			token, _ := t.Token(id)
			e.Ids, e.Tokens, e.Words = append(e.Ids, int(id)), append(e.Tokens, token), append(e.Words, -1)
			e.TypeIds, e.Offsets = append(e.TypeIds, 0), append(e.Offsets, []int{0, 0})
			e.SpecialTokenMask, e.AttentionMask = append(e.SpecialTokenMask, 1), append(e.AttentionMask, 1)
		}
		return e
	}
	return specials{encoded(ids[:n]), encoded(ids[n+len(bare):])}
}

// AddedTokens returns how many special tokens Process adds, to each text of a pair.
func (s specials) AddedTokens(isPair bool) int {
	n := len(s.before.Ids) + len(s.after.Ids)
	if isPair {
		n *= 2
	}
	return n
}

// Process puts the special tokens around a text, or around each text of a pair.
func (s specials) Process(text, pair *sugar.Encoding, addSpecialTokens bool) *sugar.Encoding {
	out := s.around(text, addSpecialTokens)
	if pair != nil {
		out = out.MergeWith(s.around(pair, addSpecialTokens), false)
	}
	return out
}

func (s specials) around(text *sugar.Encoding, addSpecialTokens bool) *sugar.Encoding {
	if !addSpecialTokens {
		return text
	}
	out := text
	if len(s.before.Ids) > 0 {
		out = s.before.Clone().MergeWith(out, false)
	}
	if len(s.after.Ids) > 0 {
		out = out.MergeWith(s.after.Clone(), false)
	}
	return out
}
