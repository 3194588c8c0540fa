package tokenizer

import "strings"

// Stream decodes ids as they are generated. It is not safe for concurrent use.
type Stream struct {
	t    *Tokenizer
	ids  []int32
	read int    // ids[:read] have been returned; they stay as context
	text string // the text of ids[:read]
}

// NewStream returns a decoder for generated ids. It ignores special tokens.
func (t *Tokenizer) NewStream() *Stream { return &Stream{t: t} }

// Push returns the text that id completes. It is empty while a character is incomplete, so that Push never returns a
// part of a character. The concatenated pieces equal Decode of all ids, with one exception: bytes that were already
// returned as a character stay one, where Decode would treat the whole run of bytes as invalid because of a later byte.
func (s *Stream) Push(id int32) string {
	if int(id) < len(s.t.special) && id >= 0 && s.t.special[id] {
		return ""
	}
	s.ids = append(s.ids, id)
	text := s.t.Decode(s.ids, true)
	if len(text) <= len(s.text) || strings.HasSuffix(text, "\uFFFD") || !strings.HasPrefix(text, s.text) {
		return ""
	}
	return s.take(text)
}

// Flush returns the remaining text at the end: the parts of an incomplete character, as Decode writes them.
func (s *Stream) Flush() string {
	text := s.t.Decode(s.ids, true)
	if len(text) <= len(s.text) || !strings.HasPrefix(text, s.text) {
		return ""
	}
	return s.take(text)
}

// take returns the rest of text and keeps its ids as the context of the next ones: a decoder that treats the first
// token differently (a leading space) must see that the next ids are not the first.
func (s *Stream) take(text string) string {
	piece := text[len(s.text):]
	s.ids = append(s.ids[:0], s.ids[s.read:]...)
	s.read = len(s.ids)
	s.text = s.t.Decode(s.ids, true)
	return piece
}
