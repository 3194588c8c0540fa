package tokenizer

import (
	"encoding/json"
	"fmt"
	"golang.org/x/text/unicode/norm"
	"unicode"
	"unicode/utf8"
)

// forms maps the names of the Unicode normalisers to their forms.
var forms = map[string]unicodeForm{
	"NFC":  {norm.NFC, norm.NFD, true},
	"NFD":  {norm.NFD, norm.NFD, false},
	"NFKC": {norm.NFKC, norm.NFKD, true},
	"NFKD": {norm.NFKD, norm.NFKD, false},
}

func parseNormalizer(b json.RawMessage, where string, depth int) (normalizers, error) {
	if isNull(b) {
		return nil, nil
	}
	if depth > maxNesting {
		return nil, tooDeep(where)
	}
	kind, err := kindOf(b, where)
	if err != nil {
		return nil, err
	}
	if form, ok := forms[kind]; ok {
		return normalizers{form}, component(b, where, kind, &struct{}{})
	}
	switch kind {
	case "Sequence":
		var f struct {
			Normalizers []json.RawMessage `json:"normalizers"`
		}
		if err := component(b, where, kind, &f); err != nil {
			return nil, err
		}
		var all normalizers
		for i, part := range f.Normalizers {
			n, err := parseNormalizer(part, fmt.Sprintf("%s.normalizers[%d]", where, i), depth+1)
			if err != nil {
				return nil, err
			}
			if all = append(all, n...); len(all) > maxParts {
				return nil, tooMany(where, "normalisers")
			}
		}
		return all, nil
	case "Prepend":
		var f struct {
			Prepend string `json:"prepend"`
		}
		err := component(b, where, kind, &f)
		return normalizers{prependText(f.Prepend)}, err
	case "Replace":
		r, err := parseReplace(b, where)
		return normalizers{r}, err
	case "Strip":
		var f struct {
			Left  bool `json:"strip_left"`
			Right bool `json:"strip_right"`
		}
		err := component(b, where, kind, &f)
		return normalizers{stripText{f.Left, f.Right}}, err
	case "Lowercase":
		return normalizers{lowercase{}}, component(b, where, kind, &struct{}{})
	case "ByteLevel":
		return normalizers{byteLevelNormalizer{}}, component(b, where, kind, &struct{}{})
	case "StripAccents":
		return normalizers{stripAccents{}}, component(b, where, kind, &struct{}{})
	case "Nmt":
		return normalizers{nmt{}}, component(b, where, kind, &struct{}{})
	case "BertNormalizer":
		return parseBertNormalizer(b, where)
	case "Precompiled":
		var f struct {
			Table string `json:"precompiled_charsmap"`
		}
		if err := component(b, where, kind, &f); err != nil {
			return nil, err
		}
		t, err := parsePrecompiled(f.Table)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", where, kind, err)
		}
		return normalizers{t}, nil
	}
	return nil, unknown(where, "normalizer", kind)
}

func tooDeep(where string) error {
	return fmt.Errorf("%.80s...: sequences lie more than %d deep in each other", where, maxNesting)
}

func tooMany(where, what string) error {
	return fmt.Errorf("%s: more than %d %s", where, maxParts, what)
}

func parseBertNormalizer(b json.RawMessage, where string) (normalizers, error) {
	var f struct {
		Clean   bool  `json:"clean_text"`
		Chinese bool  `json:"handle_chinese_chars"`
		Accents *bool `json:"strip_accents"` // null = same as lowercase
		Lower   bool  `json:"lowercase"`
	}
	err := component(b, where, "BertNormalizer", &f)
	accents := f.Lower
	if f.Accents != nil {
		accents = *f.Accents
	}
	return normalizers{bertNormalizer{f.Clean, f.Chinese, accents, f.Lower}}, err
}

// parseReplace parses a Replace, which is a normaliser and a decoder.
func parseReplace(b json.RawMessage, where string) (replaceText, error) {
	var f struct {
		Pattern patternField `json:"pattern"`
		Content string       `json:"content"`
	}
	if err := component(b, where, "Replace", &f); err != nil {
		return replaceText{}, err
	}
	m, err := f.Pattern.matcher(where)
	return replaceText{m, f.Content}, err
}

func parsePreTokenizer(b json.RawMessage, where string, depth int) ([]preTokenizer, error) {
	if isNull(b) {
		return nil, nil
	}
	if depth > maxNesting {
		return nil, tooDeep(where)
	}
	kind, err := kindOf(b, where)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "Sequence":
		var f struct {
			Parts []json.RawMessage `json:"pretokenizers"`
		}
		if err := component(b, where, kind, &f); err != nil {
			return nil, err
		}
		var all []preTokenizer
		for i, part := range f.Parts {
			p, err := parsePreTokenizer(part, fmt.Sprintf("%s.pretokenizers[%d]", where, i), depth+1)
			if err != nil {
				return nil, err
			}
			if all = append(all, p...); len(all) > maxParts {
				return nil, tooMany(where, "pre-tokenizers")
			}
		}
		return all, nil
	case "Split":
		var f struct {
			Pattern  patternField `json:"pattern"`
			Behavior behavior     `json:"behavior"`
			Invert   bool         `json:"invert"`
		}
		if err := component(b, where, kind, &f); err != nil {
			return nil, err
		}
		m, err := f.Pattern.matcher(where)
		if err != nil {
			return nil, err
		}
		return []preTokenizer{splitBy{m, f.Behavior, f.Invert}}, checkBehavior(f.Behavior, where)
	case "Punctuation":
		f := struct {
			Behavior behavior `json:"behavior"`
		}{isolated}
		if err := component(b, where, kind, &f); err != nil {
			return nil, err
		}
		return []preTokenizer{splitBy{runes(isPunctuation), f.Behavior, false}}, checkBehavior(f.Behavior, where)
	case "Digits":
		var f struct {
			Individual bool `json:"individual_digits"`
		}
		err := component(b, where, kind, &f)
		return []preTokenizer{digits{classes(), f.Individual}}, err
	case "Whitespace":
		return []preTokenizer{whitespace{}}, component(b, where, kind, &struct{}{})
	case "WhitespaceSplit":
		return []preTokenizer{splitBy{runes(unicode.IsSpace), removed, false}}, component(b, where, kind, &struct{}{})
	case "ByteLevel":
		f, err := parseByteLevel(b, where)
		if err != nil {
			return nil, err
		}
		level := byteLevel{prefixSpace: f.PrefixSpace, rewrite: true}
		if f.UseRegex {
			level.words = gpt2Words{classes()}
		}
		return []preTokenizer{level}, nil
	case "Metaspace":
		m, err := parseMetaspace(b, where)
		return []preTokenizer{m}, err
	case "BertPreTokenizer":
		return []preTokenizer{bertWords{}}, component(b, where, kind, &struct{}{})
	case "UnicodeScripts":
		return []preTokenizer{unicodeScripts{}}, component(b, where, kind, &struct{}{})
	case "CharDelimiterSplit":
		var f struct {
			Delimiter string `json:"delimiter"`
		}
		if err := component(b, where, kind, &f); err != nil {
			return nil, err
		}
		if utf8.RuneCountInString(f.Delimiter) != 1 {
			return nil, fmt.Errorf("%s: %s: delimiter %q is not one character", where, kind, f.Delimiter)
		}
		return []preTokenizer{splitBy{literal(f.Delimiter), removed, false}}, nil
	case "FixedLength":
		f := struct {
			Length int `json:"length"`
		}{5}
		if err := component(b, where, kind, &f); err != nil {
			return nil, err
		}
		if f.Length < 1 {
			return nil, fmt.Errorf("%s: %s: length %d is not above zero", where, kind, f.Length)
		}
		return []preTokenizer{fixedLength(f.Length)}, nil
	}
	return nil, unknown(where, "pre-tokenizer", kind)
}

func checkBehavior(b behavior, where string) error {
	switch b {
	case removed, isolated, contiguous, mergedWithPrevious, mergedWithNext:
		return nil
	}
	return unknown(where, "behavior", string(b))
}

type byteLevelFields struct {
	PrefixSpace bool `json:"add_prefix_space"`
	TrimOffsets bool `json:"trim_offsets"`
	UseRegex    bool `json:"use_regex"`
}

func parseByteLevel(b json.RawMessage, where string) (byteLevelFields, error) {
	f := byteLevelFields{true, true, true}
	err := component(b, where, "ByteLevel", &f)
	return f, err
}

func parseMetaspace(b json.RawMessage, where string) (metaspace, error) {
	var f struct {
		Replacement string  `json:"replacement"`
		PrefixSpace *bool   `json:"add_prefix_space"`
		StrRep      string  `json:"str_rep"` // older files repeat the replacement in this field
		Scheme      *string `json:"prepend_scheme"`
		Split       *bool   `json:"split"`
	}
	if err := component(b, where, "Metaspace", &f); err != nil {
		return metaspace{}, err
	}
	if utf8.RuneCountInString(f.Replacement) != 1 {
		return metaspace{}, fmt.Errorf("%s: Metaspace: replacement %q is not one character", where, f.Replacement)
	}
	m := metaspace{mark: f.Replacement, when: "always", apart: f.Split == nil || *f.Split}
	if f.Scheme != nil {
		m.when = *f.Scheme
	}
	switch m.when {
	case "always", "first", "never":
	default:
		return metaspace{}, unknown(where, "prepend_scheme", m.when)
	}
	if f.PrefixSpace != nil && !*f.PrefixSpace {
		if f.Scheme != nil && m.when != "never" {
			return metaspace{}, fmt.Errorf("%s: Metaspace: add_prefix_space false contradicts prepend_scheme %q", where, m.when)
		}
		m.when = "never"
	}
	return m, nil
}

func parseDecoder(b json.RawMessage, where string, depth int) (decoder, error) {
	if isNull(b) {
		return nil, nil
	}
	if depth > maxNesting {
		return nil, tooDeep(where)
	}
	kind, err := kindOf(b, where)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "Sequence":
		var f struct {
			Decoders []json.RawMessage `json:"decoders"`
		}
		if err := component(b, where, kind, &f); err != nil {
			return nil, err
		}
		var steps []decoder
		for i, part := range f.Decoders {
			d, err := parseDecoder(part, fmt.Sprintf("%s.decoders[%d]", where, i), depth+1)
			if err != nil {
				return nil, err
			}
			if d != nil {
				if steps = append(steps, d); len(steps) > maxParts {
					return nil, tooMany(where, "decoders")
				}
			}
		}
		return decodeSequence(steps), nil
	case "ByteLevel":
		_, err := parseByteLevel(b, where)
		return chain(decodeByteLevel), err
	case "ByteFallback":
		return chain(decodeByteFallback), component(b, where, kind, &struct{}{})
	case "Fuse":
		return chain(decodeFuse), component(b, where, kind, &struct{}{})
	case "Strip":
		var f struct {
			Content string `json:"content"`
			Start   int    `json:"start"`
			Stop    int    `json:"stop"`
		}
		if err := component(b, where, kind, &f); err != nil {
			return nil, err
		}
		if utf8.RuneCountInString(f.Content) != 1 || f.Start < 0 || f.Stop < 0 {
			return nil, fmt.Errorf("%s: Strip: content %q must be one character and start %d and stop %d not negative", where, f.Content, f.Start, f.Stop)
		}
		return decodeStrip(f.Content, f.Start, f.Stop), nil
	case "Replace":
		r, err := parseReplace(b, where)
		return decodeReplace(r), err
	case "Metaspace":
		m, err := parseMetaspace(b, where)
		return decodeMetaspace(m), err
	case "WordPiece":
		f := struct {
			Prefix  string `json:"prefix"`
			Cleanup bool   `json:"cleanup"`
		}{"##", true}
		err := component(b, where, kind, &f)
		return decodeWordPiece(f.Prefix, f.Cleanup), err
	case "BPEDecoder":
		f := struct {
			Suffix string `json:"suffix"`
		}{"</w>"}
		err := component(b, where, kind, &f)
		return decodeSuffix(f.Suffix), err
	}
	return nil, unknown(where, "decoder", kind)
}
