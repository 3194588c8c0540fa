package tokenizer

import (
	"errors"
	"strconv"
)

// Numbers returns the stand-in for the tokenizer of a folder that has none: its tokens are the ids themselves, written
// as numbers, and no text has an id. It suffices for rows of ids.
func Numbers(vocabulary int) (*Tokenizer, error) {
	t := &Tokenizer{files: map[string][]byte{}, bos: -1, eos: -1, pad: -1, numbers: true}
	t.scratch.New = func() any { return new(scratch) }
	ids := make([]entry, vocabulary)
	for i := range ids {
		ids[i] = entry{strconv.Itoa(i), int64(i)}
	}
	m := new(bpe)
	if err := m.fill(ids, nil); err != nil {
		return nil, err
	}
	t.model, t.vocab = m, m.names()
	return t, t.addTokens(nil)
}

// ErrNumbers is the error for a text that is read with Numbers.
var ErrNumbers = errors.New("the model's folder holds no tokenizer (tokenizer.json, or vocab.json with merges.txt), so a text has no ids: " +
	"put the model's tokenizer there, or give rows of input_ids and labels (format tokenized)")

// OnlyNumbers reports whether the tokenizer is the stand-in that Numbers returns.
func (t *Tokenizer) OnlyNumbers() bool { return t.numbers }
