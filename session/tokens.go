package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/jsonedit"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/model/quantised"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// AddTokens adds tokens to the model's tokenizer, and gives the embeddings and an untied head rows for them. The model
// is then what a folder with these tokens would be: its tokenizer, its configuration and its weights have them.
func (b *Base) AddTokens(a tokenizer.Additions) error {
	with, added, err := tokenizer.With(b.Tokenizer, a)
	if err != nil {
		return err
	}
	old := b.Tokenizer
	from := map[int32][]int32{} // the tokens from whose rows a row starts, by its id; none = all tokens
	for _, token := range added {
		id, _ := with.ID(token)
		from[id] = nil
		if a.InitFrom == tokenizer.InitFromText {
			from[id] = old.IDs(token, false)
		}
		b.Added = append(b.Added, id)
	}
	if err := b.rolesOf(with); err != nil {
		return err
	}
	return b.grow(with, max(b.Config.VocabSize, with.VocabSize()), from)
}

// tokensOfFolder gives the model the tokens of an adapter's folder. The caller reports what else is wrong with it.
func (b *Base) tokensOfFolder(dir string) error {
	saved, err := adapter.Open(dir)
	if err != nil {
		return nil //nolint:nilerr // the run reports it where it reads the adapter
	}
	return errors.Join(b.useTokensOf(saved), saved.Close())
}

// useTokensOf gives the model the tokens with which an adapter was trained, if the adapter has rows of the embeddings
// or of the head: the tokenizer of its folder, and as many rows. Rows that the model lacks are the mean of its rows
// until the adapter's stand in their place.
func (b *Base) useTokensOf(saved *adapter.Saved) error {
	rows, some := saved.VocabularyRows(b.embeddings())
	if !some {
		return nil
	}
	with := b.Tokenizer
	if saved.Dir != "" {
		switch own, err := tokenizer.Load(saved.Dir); {
		case errors.Is(err, tokenizer.ErrNone):
		case err != nil:
			return err
		case own.VocabSize() > with.VocabSize():
			with = own
		}
	}
	if rows == 0 {
		rows = max(b.Config.VocabSize, with.VocabSize())
	}
	switch {
	case with == b.Tokenizer && rows <= b.Config.VocabSize:
		return nil // reading the adapter reports too few rows
	case rows < max(b.Config.VocabSize, with.VocabSize()):
		return fmt.Errorf("the adapter %s has %d rows of embeddings, and the vocabulary of %s with its tokens has %d",
			saved.Dir, rows, b.Name, max(b.Config.VocabSize, with.VocabSize()))
	}
	if err := b.rolesOf(with); err != nil {
		return err
	}
	from := map[int32][]int32{}
	for id := b.Tokenizer.VocabSize(); id < rows; id++ {
		from[int32(id)] = nil
	}
	return b.grow(with, rows, from)
}

// grow gives the model a tokenizer and a number of rows of the embeddings and of an untied head. from has the tokens
// from whose rows a row starts, by its id; none = all tokens of the old tokenizer.
func (b *Base) grow(with *tokenizer.Tokenizer, rows int, from map[int32][]int32) error {
	if rows != b.Config.VocabSize && b.Config.Gemma4.PerLayerVocab > 0 {
		return fmt.Errorf("tokenizer: %s has embeddings for each layer, which cannot grow by new tokens", b.Name)
	}
	old := b.Tokenizer.VocabSize()
	files := with.Files()
	config, err := regular.ReadFS(b.Folder, "config.json")
	if err != nil {
		return fmt.Errorf("tokenizer: %w", err)
	}
	if files["config.json"], err = withVocabulary(config, rows); err != nil {
		return fmt.Errorf("tokenizer: config.json: %w", err)
	}
	b.Tokenizer, b.Config.VocabSize = with, rows
	b.Folder = overlay{b.Folder, files}
	if b.Declared {
		return b.declare(b.standIn)
	}
	for _, name := range []string{b.embeddings(), head} {
		t, ok := b.Weights.Tensor(name)
		if !ok || len(from) == 0 && t.Shape[0] == rows {
			continue
		}
		grown, err := grownTable(t, min(old, t.Shape[0]), rows, from)
		if err != nil {
			return fmt.Errorf("tokenizer: %w", err)
		}
		b.Weights.Replace(name, grown)
	}
	b.tensors, err = quantised.Open(b.Weights, b.Config.Quantization)
	return err
}

// grownTable returns a table [rows,columns] with more rows, in memory of its own. Rows of from are means of the rows
// that it names, or of the first old rows; further rows of the result are zero.
func grownTable(t weights.Tensor, old, rows int, from map[int32][]int32) (weights.Tensor, error) {
	if len(t.Shape) != 2 || t.Shape[0] > rows {
		return t, fmt.Errorf("%s has the shape %v, which cannot be extended to %d rows", t.Name, t.Shape, rows)
	}
	columns := t.Shape[1]
	size := columns * t.DType.Size()
	data := make([]byte, rows*size)
	copy(data, t.Data)
	row := make([]float32, columns)
	meanOf := func(count int, id func(i int) int32) ([]byte, error) {
		sums := make([]float64, columns)
		for i := range count {
			at := int(id(i)) * columns
			if err := weights.Float32Range(t, at, at+columns, row); err != nil {
				return nil, err
			}
			for c, x := range row {
				sums[c] += float64(x)
			}
		}
		for c := range row {
			row[c] = float32(sums[c] / float64(count))
		}
		return weights.AppendFloat32s(nil, t.DType, row)
	}
	mean, err := meanOf(old, func(i int) int32 { return int32(i) })
	if err != nil {
		return t, err
	}
	for id, ids := range from {
		own := mean
		ids = slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return int(id) >= t.Shape[0] })
		if len(ids) > 0 {
			if own, err = meanOf(len(ids), func(i int) int32 { return ids[i] }); err != nil {
				return t, err
			}
		}
		copy(data[int(id)*size:], own)
	}
	t.Shape, t.Data = []int{rows, columns}, data
	return t, nil
}

// withVocabulary returns a config.json with a number of tokens, for the whole model or for its language model.
func withVocabulary(config []byte, rows int) ([]byte, error) {
	value := fmt.Append(nil, rows)
	m, err := jsonedit.Find(config, "text_config")
	if err == nil && m.Found && config[m.Value] == '{' {
		inner, err := jsonedit.Set(config[m.Value:m.After], "vocab_size", value)
		if err != nil {
			return nil, err
		}
		if config, err = jsonedit.Set(config, "text_config", bytes.Clone(inner)); err != nil {
			return nil, err
		}
		if m, err := jsonedit.Find(config, "vocab_size"); err != nil || !m.Found {
			return config, err
		}
	}
	return jsonedit.Set(config, "vocab_size", value)
}

// rolesOf sets the roles in which a tokenizer differs from the model's.
func (b *Base) rolesOf(with *tokenizer.Tokenizer) error {
	for _, role := range []struct {
		key string
		of  func(t *tokenizer.Tokenizer) (int32, bool)
	}{
		{"bos_token_id", (*tokenizer.Tokenizer).BOS}, {"eos_token_id", (*tokenizer.Tokenizer).EOS},
		{"pad_token_id", (*tokenizer.Tokenizer).PAD},
	} {
		was, had := role.of(b.Tokenizer)
		is, has := role.of(with)
		if !has || had && was == is {
			continue
		}
		if err := b.setRole(role.key, is); err != nil {
			return err
		}
	}
	return nil
}

// setRole sets the id of a special token's role in config.json and generation_config.json: bos_token_id, eos_token_id
// or pad_token_id. Generation still ends at the tokens at which it ended before.
func (b *Base) setRole(key string, id int32) error {
	files := map[string][]byte{}
	for _, name := range []string{"config.json", "generation_config.json"} {
		data, err := regular.ReadFS(b.Folder, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("tokenizer: %w", err)
		}
		value := any(id)
		if key == "eos_token_id" && name == "generation_config.json" {
			value = append([]int32{id}, endsIn(data, id)...)
		}
		raw, err := json.Marshal(value)
		if err == nil {
			files[name], err = jsonedit.Set(data, key, raw)
		}
		if err != nil {
			return fmt.Errorf("tokenizer: %s: %w", name, err)
		}
	}
	if key == "eos_token_id" {
		b.Config.EOS = append([]int{int(id)}, slices.DeleteFunc(slices.Clone(b.Config.EOS), func(own int) bool {
			return own == int(id)
		})...)
	}
	b.Folder = overlay{b.Folder, files}
	return nil
}

// endsIn returns the tokens of eos_token_id in a generation_config.json, a number or a list, without one of them.
func endsIn(config []byte, without int32) (ids []int32) {
	m, err := jsonedit.Find(config, "eos_token_id")
	if err != nil || !m.Found {
		return nil
	}
	raw := config[m.Value:m.After]
	var one int32
	if json.Unmarshal(raw, &one) == nil {
		ids = []int32{one}
	} else if json.Unmarshal(raw, &ids) != nil {
		return nil
	}
	return slices.DeleteFunc(ids, func(id int32) bool { return id == without })
}

// overlay is a folder with some files in place of those that it has.
type overlay struct {
	fs.FS
	files map[string][]byte
}

// Open opens a file of the overlay, or of the folder below it.
func (o overlay) Open(name string) (fs.File, error) {
	if data, ok := o.files[name]; ok {
		return &memoryFile{bytes.NewReader(data), name}, nil
	}
	return o.FS.Open(name)
}

// memoryFile is an open file of an overlay.
type memoryFile struct {
	*bytes.Reader
	name string
}

var _ io.Reader = (*memoryFile)(nil)

func (f *memoryFile) Stat() (fs.FileInfo, error) { return memoryInfo{f.name, f.Size()}, nil }

// Close does nothing.
func (*memoryFile) Close() error { return nil }

// memoryInfo describes a file of an overlay.
type memoryInfo struct {
	name string
	size int64
}

func (i memoryInfo) Name() string     { return i.name }
func (i memoryInfo) Size() int64      { return i.size }
func (memoryInfo) Mode() fs.FileMode  { return 0o444 }
func (memoryInfo) ModTime() time.Time { return time.Time{} }
func (memoryInfo) IsDir() bool        { return false }
func (memoryInfo) Sys() any           { return nil }
