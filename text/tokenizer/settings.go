package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/internal/jsonerr"
)

// settings are the settings of tokenizer_config.json, special_tokens_map.json and added_tokens.json.
type settings struct {
	class       string
	prefixSpace bool
	addBOS      *bool
	addEOS      *bool
	addedTokens []addedToken       // by id
	named       map[string]*string // bos_token, eos_token, pad_token; nil = explicitly none
}

func readSettings(files map[string][]byte) (*settings, error) {
	s := &settings{named: map[string]*string{}}
	if b, ok := files["tokenizer_config.json"]; ok {
		var f struct {
			Class       string                     `json:"tokenizer_class"`
			PrefixSpace bool                       `json:"add_prefix_space"`
			AddBOS      *bool                      `json:"add_bos_token"`
			AddEOS      *bool                      `json:"add_eos_token"`
			Added       map[string]json.RawMessage `json:"added_tokens_decoder"`
		}
		if err := jsonerr.Unmarshal(b, &f); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: %w", err)
		}
		s.class, s.prefixSpace, s.addBOS, s.addEOS = strings.TrimSuffix(f.Class, "Fast"), f.PrefixSpace, f.AddBOS, f.AddEOS
		for key, raw := range f.Added {
			id, err := strconv.ParseInt(key, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %q is not an id", key)
			}
			var a addedToken
			if err := strict(raw, &a); err != nil {
				return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder[%s]: %w", key, err)
			}
			a.ID = int32(id)
			s.addedTokens = append(s.addedTokens, a)
		}
	}
	if b, ok := files["added_tokens.json"]; ok {
		var f map[string]int32
		if err := jsonerr.Unmarshal(b, &f); err != nil {
			return nil, fmt.Errorf("added_tokens.json: %w", err)
		}
		for content, id := range f {
			s.addedTokens = append(s.addedTokens, addedToken{ID: id, Content: content})
		}
	}
	// The sort is stable, so that of two entries with one id the one with flags stays first.
	sort.SliceStable(s.addedTokens, func(i, j int) bool {
		a, b := s.addedTokens[i], s.addedTokens[j]
		return a.ID < b.ID || a.ID == b.ID && a.Content < b.Content
	})
	for _, name := range []string{"tokenizer_config.json", "special_tokens_map.json"} {
		if b, ok := files[name]; ok {
			if err := s.readNames(name, b); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// readNames adopts the named tokens of a file that no earlier file has named.
func (s *settings) readNames(file string, b []byte) error {
	var f map[string]json.RawMessage
	if err := jsonerr.Unmarshal(b, &f); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, key := range namedTokens {
		raw, ok := f[key]
		if _, done := s.named[key]; !ok || done {
			continue
		}
		if isNull(raw) {
			s.named[key] = nil
			continue
		}
		var text string
		if json.Unmarshal(raw, &text) != nil {
			var token addedToken
			if err := json.Unmarshal(raw, &token); err != nil || token.Content == "" {
				return fmt.Errorf("%s: %s is neither a string nor a token", file, key)
			}
			text = token.Content
		}
		s.named[key] = &text
	}
	return nil
}

// namedTokens lists the names of tokens that files set and the trainer uses.
var namedTokens = []string{"bos_token", "eos_token", "pad_token"}

// conventional lists the usual tokens for names that no file sets.
var conventional = map[string][]string{
	"bos_token": {"<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>"},
	"eos_token": {"</s>", "<|end_of_text|>", "<|endoftext|>", "<eos>"},
	"pad_token": {"<pad>", "[PAD]", "<|pad|>", "<|finetune_right_pad_id|>"},
}

// nameTokens sets BOS, EOS and PAD.
func (s *settings) nameTokens(t *Tokenizer) error {
	ids := []*int32{&t.bos, &t.eos, &t.pad}
	for i, key := range namedTokens {
		id := ids[i]
		name, said := s.named[key]
		if said && name == nil {
			continue
		}
		if said {
			found, ok := t.ID(*name)
			if !ok {
				return fmt.Errorf("%s %q is not in the vocabulary", key, *name)
			}
			*id = found
			continue
		}
		for _, c := range conventional[key] {
			if found, ok := t.ID(c); ok {
				*id = found
				break
			}
		}
	}
	return nil
}

// addsByItself lists the classes that put BOS before a text unless add_bos_token says otherwise, independently of the
// post-processor in the file.
var addsByItself = []string{"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer"}

// surround adds BOS and EOS around a text if the tokenizer's class decides about them and not its post-processor, as in
// transformers: some classes replace the post-processor, and GPT2Tokenizer reads add_bos_token when it builds one.
func (s *settings) surround(t *Tokenizer) error {
	says := func(b *bool, otherwise bool) bool { return b != nil && *b || b == nil && otherwise }
	bos, eos := false, false
	switch {
	case s.class == "GPTNeoXTokenizer":
		bos, eos = says(s.addBOS, false), says(s.addEOS, false)
	case slices.Contains(addsByItself, s.class):
		bos, eos = says(s.addBOS, true), says(s.addEOS, false)
	case s.class == "GPT2Tokenizer" && t.files["tokenizer.json"] == nil:
		bos = says(s.addBOS, false)
	default:
		return nil
	}
	t.post = postProcessor{}
	if bos {
		if t.bos < 0 {
			return fmt.Errorf("tokenizer_config.json: a %s adds bos_token, but there is none", s.class)
		}
		t.post.before = []int32{t.bos}
	}
	if eos {
		if t.eos < 0 {
			return fmt.Errorf("tokenizer_config.json: add_eos_token, but there is no eos_token")
		}
		t.post.after = []int32{t.eos}
	}
	return nil
}

// folderPipelines maps tokenizer classes, without "Fast", to the pipelines of folders that only have vocab.json and
// merges.txt.
var folderPipelines = map[string]struct {
	normalizers normalizers
	pattern     string
}{
	"GPT2Tokenizer":  {nil, patternGPT2},
	"Qwen2Tokenizer": {normalizers{forms["NFC"]}, patternQwen2},
}

// readVocabMerges builds a byte-level tokenizer from vocab.json and merges.txt.
func (t *Tokenizer) readVocabMerges(s *settings) error {
	vocabFile, ok := t.files["vocab.json"]
	mergesFile, ok2 := t.files["merges.txt"]
	if !ok || !ok2 {
		return ErrNone
	}
	p, ok := folderPipelines[s.class]
	if !ok {
		return fmt.Errorf("vocab.json and merges.txt without tokenizer.json: tokenizer_class %q in tokenizer_config.json is not one of GPT2Tokenizer, Qwen2Tokenizer", s.class)
	}
	vocab, err := readVocab(textOf(vocabFile))
	if err != nil {
		return fmt.Errorf("vocab.json: %w", orSyntax(vocabFile, err))
	}
	merges, err := readMergesText(textOf(mergesFile))
	if err != nil {
		return fmt.Errorf("merges.txt: %w", err)
	}
	m := new(bpe)
	if err := m.fill(vocab, merges); err != nil {
		return err
	}
	t.model = m
	t.normalizers = p.normalizers
	words, _ := handWritten(p.pattern)
	level := byteLevel{words: words, rewrite: true}
	if p.pattern == patternGPT2 {
		level.prefixSpace = s.prefixSpace
	}
	t.preTokenizers = []preTokenizer{level}
	t.decode = chain(decodeByteLevel)
	return t.assemble()
}

// readMergesText parses merges.txt: a version line, then two tokens per line.
func readMergesText(s string) ([][2]string, error) {
	out := make([][2]string, 0, strings.Count(s, "\n")+1)
	for n := 1; s != ""; n++ {
		var line string
		line, s, _ = strings.Cut(s, "\n")
		line = strings.TrimSuffix(line, "\r")
		if line == "" || strings.HasPrefix(line, "#version") {
			continue
		}
		left, right, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(right, " ") {
			return nil, fmt.Errorf("line %d: %q is not two tokens parted by one space", n, line)
		}
		out = append(out, [2]string{left, right})
	}
	return out, nil
}
