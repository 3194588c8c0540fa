package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Bytes are what a token adds to a text behind others; nil for special tokens and ids that stand for no token. The bytes of
// several tokens make up a character where one alone is a part of it.
func (t *Tokenizer) Bytes(id int32) []byte {
	s, ok := t.Token(id)
	if !ok || t.IsSpecial(id) {
		return nil
	}
	if t.decode == nil {
		return []byte(" " + s)
	}
	const lead = "a" // the first token of a text may lose a space in front
	text, ok := strings.CutPrefix(t.decode.Decode([]string{lead, s}), lead)
	if !ok {
		return nil
	}
	if !strings.ContainsRune(text, utf8.RuneError) {
		return []byte(text)
	}
	if b, ok := byteToken(s); ok {
		return []byte{b}
	}
	if raw, ok := byteLevelBytes(s); ok {
		return raw
	}
	return nil
}
