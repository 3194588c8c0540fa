package llamacpp

import (
	"encoding/json"
	"fmt"
	"strings"
)

// What splits texts into words before merges, as tokenizer.json files of releases write it.
const (
	contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	middle       = `| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	letters      = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|`
	cl100k       = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ` +
		`?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`
	upper  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	lower  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`
	o200k  = upper + contractions + "?|" + lower + contractions + `?|\p{N}{1,3}` + slashes
	qwen35 = contractions +
		`|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	deepSeek = `[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_` + "`" +
		`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	slashes = `| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// preTokenizer is a pre-tokenizer of a file, and whether words that are tokens are not merged.
type preTokenizer struct {
	steps        string
	ignoreMerges bool
}

// preTokenizers are those that llama.cpp has, by its names (llama-vocab.cpp).
var preTokenizers = map[preTokenizer]string{
	{"digits bytes:words", false}:                                               "smollm",
	{"bytes:words", false}:                                                      "gpt-2",
	{"split:" + letters + `\p{N}{1,3}` + middle + " bytes", true}:               "llama-bpe",
	{"split:" + letters + `\p{N}{1,3}` + middle + " bytes", false}:              "dbrx",
	{"split:" + cl100k + " bytes", false}:                                       "dbrx",
	{"split:" + letters + `\p{N}` + middle + " bytes", false}:                   "qwen2",
	{"split:" + qwen35 + " bytes", false}:                                       "qwen35",
	{"split:" + upper + "|" + lower + `|\p{N}` + slashes + " bytes", true}:      "tekken",
	{"split:" + o200k + " bytes", false}:                                        "gpt-4o",
	{"split:" + o200k + " bytes", true}:                                         "gpt-4o", // a note says what differs
	{`split:\p{N}{1,3} split:[一-龥぀-ゟ゠-ヿ]+ split:` + deepSeek + " bytes", false}: "deepseek-v3",
	{"gpt-2", false}: "gpt-2", // folders without tokenizer.json
	{"qwen2", false}: "qwen2",
}

// part is a component of a pipeline.
type part struct {
	Type          string          `json:"type"`
	PreTokenizers []part          `json:"pretokenizers"`
	Normalizers   []part          `json:"normalizers"`
	Pattern       json.RawMessage `json:"pattern"`
	Behavior      string          `json:"behavior"`
	Invert        bool            `json:"invert"`
	Individual    bool            `json:"individual_digits"`
	PrefixSpace   *bool           `json:"add_prefix_space"`
	UseRegex      *bool           `json:"use_regex"`
	Prepend       string          `json:"prepend"`
	Content       string          `json:"content"`
	Replacement   string          `json:"replacement"`
	Scheme        string          `json:"prepend_scheme"`
	Split         *bool           `json:"split"`
}

// pattern is what a part looks for: a text or an expression.
func (s part) pattern() (text, expression string) {
	var p struct{ String, Regex string }
	json.Unmarshal(s.Pattern, &p) //nolint:errcheck // the tokenizer read it before
	return p.String, p.Regex
}

// parts are the steps of a pipeline, sequences taken apart.
func parts(raw json.RawMessage) []part {
	var one *part
	if len(raw) == 0 || json.Unmarshal(raw, &one) != nil || one == nil {
		return nil
	}
	return flat(*one)
}

func flat(s part) []part {
	if s.Type != "Sequence" {
		return []part{s}
	}
	var all []part
	for _, inner := range append(s.PreTokenizers, s.Normalizers...) {
		all = append(all, flat(inner)...)
	}
	return all
}

// step is a pre-tokenizer in the words of preTokenizers.
func (s part) step() string {
	switch {
	case s.Type == "Split" && s.Behavior == "Isolated" && !s.Invert:
		if _, expression := s.pattern(); expression != "" {
			return "split:" + expression
		}
	case s.Type == "Digits" && s.Individual:
		return "digits"
	case s.Type == "ByteLevel" && (s.PrefixSpace == nil || *s.PrefixSpace):
		return "bytes with a space before the text"
	case s.Type == "ByteLevel" && (s.UseRegex == nil || *s.UseRegex):
		return "bytes:words"
	case s.Type == "ByteLevel":
		return "bytes"
	}
	return s.Type
}

// byteLevel adds a byte-level tokenizer: its merges, and the name of what splits texts.
func (p *Plan) byteLevel(f *file) error {
	if f.Model.Prefix != nil && *f.Model.Prefix != "" || f.Model.Suffix != nil && *f.Model.Suffix != "" {
		return fmt.Errorf("it marks parts of words by a prefix or a suffix")
	}
	for _, n := range parts(f.Normalizer) {
		if n.Type != "NFC" {
			return fmt.Errorf("its normalizer %s: llama.cpp has none for byte-level BPE", n.Type)
		}
		p.note("texts are not brought into the Unicode form NFC by llama.cpp: those that are not in it get other tokens")
	}
	var steps []string
	for _, s := range parts(f.PreTokenizer) {
		steps = append(steps, s.step())
	}
	name, ok := preTokenizers[preTokenizer{strings.Join(steps, " "), f.Model.IgnoreMerges}]
	if !ok {
		return fmt.Errorf("its pre-tokenizer (%s; ignore_merges %v) is not one of those that llama.cpp has",
			strings.Join(steps, ", then "), f.Model.IgnoreMerges)
	}
	if name == "dbrx" && p.Architecture == "glm4" {
		name = "glm4" // the same, without a token before texts
	}
	if name == "gpt-4o" && f.Model.IgnoreMerges {
		p.note("words that are tokens, but that no merges make, get other tokens in llama.cpp (ignore_merges)")
	}
	merges := make([]string, len(f.merges))
	for i, m := range f.merges {
		if strings.ContainsAny(m[0]+m[1], " ") {
			return fmt.Errorf("merge %d has a token with a space", i)
		}
		merges[i] = m[0] + " " + m[1]
	}
	p.add("tokenizer.ggml.model", "gpt2")
	p.add("tokenizer.ggml.pre", name)
	p.add("tokenizer.ggml.merges", merges)
	return nil
}
