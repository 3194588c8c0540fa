package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Bytes returns the bytes that a token adds to a text after other tokens; nil for special tokens and ids without a
// token. A token may have a part of a character, so that only the bytes of several tokens make up the character.
func (t *Tokenizer) Bytes(id int32) []byte {
	s, ok := t.Token(id)
	if !ok || t.IsSpecial(id) {
		return nil
	}
	if t.decode == nil {
		return []byte(" " + s)
	}
	const lead = "a" // the first token of a text may lose a leading space
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
