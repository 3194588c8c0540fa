// Package tokenizer turns text into ids and back exactly as Hugging Face tokenizers does, from a model's tokenizer.json or from
// vocab.json and merges.txt. It knows byte-pair encoding and the pipelines around it; anything else in a file is an error that names it.
package tokenizer

import (
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// Tokenizer is safe for concurrent use.
type Tokenizer struct {
	model         model
	vocab         *vocabulary // the model's
	normalizers   normalizers
	preTokenizers []preTokenizer
	post          postProcessor
	decode        decoder // nil: tokens joined by spaces

	added       map[string]*addedToken
	addedByID   map[int32]*addedToken
	found       *finder // added tokens matched in the text itself
	foundNormal *finder // those matched in the normalised text
	special     []bool  // by id
	size        int

	needAlign bool // ids depend on where pieces stand in the text
	scratch   sync.Pool

	rewriting sync.Once // sets rewritten
	rewritten bool

	bos, eos, pad int32 // -1: none
	numbers       bool  // no tokenizer: see Numbers
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

// VocabSize is one more than the largest id, added tokens included.
func (t *Tokenizer) VocabSize() int { return t.size }

// ID returns the id of a token as the vocabulary writes it.
func (t *Tokenizer) ID(token string) (int32, bool) {
	if a, ok := t.added[token]; ok {
		return a.ID, true
	}
	id, ok := t.vocab.vocab[token]
	return id, ok
}

// Token returns the token of an id as the vocabulary writes it.
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

// PAD returns the token that fills rows, if the model has one.
func (t *Tokenizer) PAD() (int32, bool) { return t.pad, t.pad >= 0 }

// AddsBOS reports whether Encode with addSpecial puts BOS first.
func (t *Tokenizer) AddsBOS() bool {
	return t.bos >= 0 && len(t.post.before) > 0 && t.post.before[0] == t.bos
}

// Files returns the tokenizer's files by name, for saving next to an adapter. The caller must not change the contents.
func (t *Tokenizer) Files() map[string][]byte {
	files := make(map[string][]byte, len(t.files))
	for name, b := range t.files {
		files[name] = b
	}
	return files
}

// LongestToken is the length of the longest token in bytes, as the vocabulary writes it. No token stands for more bytes
// of a text, but for an unknown one and where the tokenizer drops or shortens what it reads.
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
