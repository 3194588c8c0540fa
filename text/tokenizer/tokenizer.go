// Package tokenizer converts text to ids and back exactly as Hugging Face tokenizers does, from a model's
// tokenizer.json or from vocab.json and merges.txt. It supports byte-pair encoding, Unigram, WordPiece and WordLevel
// with their pipelines. Unsupported parts of a file are an error that names them.
package tokenizer

import (
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// Tokenizer converts text to ids and back. It is safe for concurrent use.
type Tokenizer struct {
	model         model
	vocab         *vocabulary // vocabulary of the model
	normalizers   normalizers
	preTokenizers []preTokenizer
	post          postProcessor
	decode        decoder // nil = tokens joined by spaces

	added       map[string]*addedToken
	addedByID   map[int32]*addedToken
	found       *finder // added tokens that are matched in the text itself
	foundNormal *finder // added tokens that are matched in the normalised text
	special     []bool  // by id
	size        int

	needAlign bool // ids depend on the position of pieces in the text
	scratch   sync.Pool

	rewriting sync.Once // sets rewritten
	rewritten bool

	bos, eos, pad int32 // -1 = none
	numbers       bool  // stand-in without a tokenizer: see Numbers
	files         map[string][]byte
}

// Load reads the tokenizer in folder dir.
func Load(dir string) (*Tokenizer, error) {
	t, err := load(os.DirFS(dir), ".")
	if err != nil {
		return nil, fmt.Errorf("load tokenizer %s: %w", dir, err)
	}
	return t, nil
}

// LoadFS reads the tokenizer in folder dir of fsys.
func LoadFS(fsys fs.FS, dir string) (*Tokenizer, error) {
	t, err := load(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer %s: %w", dir, err)
	}
	return t, nil
}

// VocabSize returns the largest id, including added tokens, plus one.
func (t *Tokenizer) VocabSize() int { return t.size }

// ID returns the id of a token in the vocabulary's spelling.
func (t *Tokenizer) ID(token string) (int32, bool) {
	if a, ok := t.added[token]; ok {
		return a.ID, true
	}
	id, ok := t.vocab.vocab[token]
	return id, ok
}

// Token returns the token of an id in the vocabulary's spelling.
func (t *Tokenizer) Token(id int32) (string, bool) {
	if a, ok := t.addedByID[id]; ok {
		return a.Content, true
	}
	return t.vocab.token(id)
}

// BOS returns the token that begins a text, if the model has one.
func (t *Tokenizer) BOS() (int32, bool) { return t.bos, t.bos >= 0 }

// EOS returns the token that ends a text, if the model has one.
func (t *Tokenizer) EOS() (int32, bool) { return t.eos, t.eos >= 0 }

// PAD returns the token that pads rows, if the model has one.
func (t *Tokenizer) PAD() (int32, bool) { return t.pad, t.pad >= 0 }

// AddsBOS reports whether Encode with addSpecial begins with BOS.
func (t *Tokenizer) AddsBOS() bool {
	return t.bos >= 0 && len(t.post.before) > 0 && t.post.before[0] == t.bos
}

// Files returns the tokenizer's files by name, for saving beside an adapter. The caller must not change the contents.
func (t *Tokenizer) Files() map[string][]byte {
	files := make(map[string][]byte, len(t.files))
	for name, b := range t.files {
		files[name] = b
	}
	return files
}

// LongestToken returns the length of the longest token in bytes, in the vocabulary's spelling. No token represents more
// bytes of a text, except an unknown token, and tokens of a tokenizer that drops or shortens text.
func (t *Tokenizer) LongestToken() int {
	n := 0
	for _, s := range t.vocab.tokens {
		n = max(n, len(s))
	}
	for s := range t.added {
		n = max(n, len(s))
	}
	return n
}
