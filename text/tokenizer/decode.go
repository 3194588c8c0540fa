package tokenizer

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Decode returns the text of ids, or U+FFFD if the text is disproportionately large (LimitError). It ignores ids
// without a token, and special tokens too if skipSpecial is set.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	tokens := make([]string, 0, len(ids))
	for _, id := range ids {
		if s, ok := t.Token(id); ok && !(skipSpecial && t.special[id]) {
			tokens = append(tokens, s)
		}
	}
	return t.DecodeTokens(tokens)
}

// DecodeTokens returns the text of tokens in the vocabulary's spelling, including special ones, or U+FFFD if the text
// is disproportionately large (LimitError).
func (t *Tokenizer) DecodeTokens(tokens []string) string {
	if t.decode == nil {
		return strings.Join(tokens, " ")
	}
	text, err := t.decoded(tokens)
	if err != nil {
		return string(utf8.RuneError)
	}
	return text
}

func (t *Tokenizer) decoded(tokens []string) (text string, err error) {
	defer Caught(&err)
	return t.decode.Decode(tokens), nil
}

// decoder is one step of decoding.
type decoder interface {
	Decode(tokens []string) string
	DecodeChain(tokens []string) []string
}

// chain is a decoder made of a function.
type chain func(tokens []string) []string

// DecodeChain runs the step.
func (c chain) DecodeChain(tokens []string) []string { return c(tokens) }

// Decode runs the step and joins its result.
func (c chain) Decode(tokens []string) string { return strings.Join(c(tokens), "") }

// decodeSequence runs steps one after another.
func decodeSequence(steps []decoder) chain {
	return func(tokens []string) []string {
		w := newWork(bytesOf(tokens))
		for _, s := range steps {
			tokens = s.DecodeChain(tokens)
			w.room(bytesOf(tokens))
		}
		return tokens
	}
}

func bytesOf(tokens []string) int {
	n := 0
	for _, t := range tokens {
		n += len(t)
	}
	return n
}

// decodeByteLevel reads the characters of tokens as bytes. A token with a character that represents no byte is kept.
func decodeByteLevel(tokens []string) []string {
	var b []byte
	for _, t := range tokens {
		if raw, ok := byteLevelBytes(t); ok {
			b = append(b, raw...)
		} else {
			b = append(b, t...)
		}
	}
	return []string{lossy(b)}
}

// decodeByteFallback joins runs of <0xXX> into text; a run that is not UTF-8 becomes one U+FFFD for each byte.
func decodeByteFallback(tokens []string) []string {
	out := make([]string, 0, len(tokens))
	var run []byte
	flush := func() {
		if utf8.Valid(run) {
			if len(run) > 0 {
				out = append(out, string(run))
			}
		} else {
			for range run {
				out = append(out, string(utf8.RuneError))
			}
		}
		run = run[:0]
	}
	for _, t := range tokens {
		if b, ok := byteToken(t); ok {
			run = append(run, b)
			continue
		}
		flush()
		out = append(out, t)
	}
	flush()
	return out
}

// byteToken returns XX of <0xXX>.
func byteToken(t string) (byte, bool) {
	if len(t) != 6 || !strings.HasPrefix(t, "<0x") || t[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(t[3:5], 16, 8)
	return byte(b), err == nil
}

func decodeFuse(tokens []string) []string { return []string{strings.Join(tokens, "")} }

// decodeStrip removes up to start copies of content from the front of each token and up to stop from its end.
func decodeStrip(content string, start, stop int) chain {
	return func(tokens []string) []string {
		out := make([]string, len(tokens))
		for i, t := range tokens {
			for n := 0; n < start && strings.HasPrefix(t, content); n++ {
				t = t[len(content):]
			}
			for n := 0; n < stop && strings.HasSuffix(t, content); n++ {
				t = t[:len(t)-len(content)]
			}
			out[i] = t
		}
		return out
	}
}

// decodeReplace puts content in place of every match in each token.
func decodeReplace(r replaceText) chain {
	return func(tokens []string) []string {
		out := make([]string, len(tokens))
		w, total := newWork(bytesOf(tokens)), 0
		for i, t := range tokens {
			out[i] = r.normalize(piece{s: t, work: w}).s
			total += len(out[i])
			w.room(total)
		}
		return out
	}
}

// decodeMetaspace turns marks into spaces and removes those of the first token, unless the pre-tokenizer added none.
func decodeMetaspace(m metaspace) chain {
	return func(tokens []string) []string {
		out := make([]string, len(tokens))
		for i, t := range tokens {
			space := " "
			if i == 0 && m.when != "never" {
				space = ""
			}
			out[i] = strings.ReplaceAll(t, m.mark, space)
		}
		return out
	}
}

// decodeSuffix turns the end-of-word suffix into a space, or into nothing in the last token.
func decodeSuffix(suffix string) chain {
	return func(tokens []string) []string {
		out := make([]string, len(tokens))
		for i, t := range tokens {
			space := " "
			if i == len(tokens)-1 {
				space = ""
			}
			out[i] = strings.ReplaceAll(t, suffix, space)
		}
		return out
	}
}

// cleanup lists the blanks that the WordPiece decoder removes before punctuation and English contractions, in this
// order.
var cleanup = [][2]string{
	{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"},
	{" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
}

// decodeWordPiece puts a space before each token but the first and those that continue a word.
func decodeWordPiece(prefix string, clean bool) chain {
	return func(tokens []string) []string {
		out := make([]string, len(tokens))
		for i, t := range tokens {
			if i > 0 {
				if rest, ok := strings.CutPrefix(t, prefix); ok {
					t = rest
				} else {
					t = " " + t
				}
			}
			if clean {
				for _, c := range cleanup {
					t = strings.ReplaceAll(t, c[0], c[1])
				}
			}
			out[i] = t
		}
		return out
	}
}

// lossy reads b as UTF-8, with one U+FFFD for each longest sequence that begins a code point but does not complete it,
// and for each byte that cannot begin one (Unicode 15, section 3.9, "maximal subparts").
func lossy(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var s strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = brokenPrefix(b)
		}
		s.WriteRune(r)
		b = b[n:]
	}
	return s.String()
}

// brokenPrefix returns the length of the longest start of b that could begin a code point, at least 1.
func brokenPrefix(b []byte) int {
	var need int
	lo, hi := byte(0x80), byte(0xBF) // range of the second byte (Unicode, table 3-7)
	switch c := b[0]; {
	case c >= 0xC2 && c <= 0xDF:
		need = 1
	case c >= 0xE0 && c <= 0xEF:
		need = 2
		if c == 0xE0 {
			lo = 0xA0
		} else if c == 0xED {
			hi = 0x9F
		}
	case c >= 0xF0 && c <= 0xF4:
		need = 3
		if c == 0xF0 {
			lo = 0x90
		} else if c == 0xF4 {
			hi = 0x8F
		}
	}
	n := 1
	for ; n <= need && n < len(b) && lo <= b[n] && b[n] <= hi; n++ {
		lo, hi = 0x80, 0xBF
	}
	return n
}
