package tokenizer

import "strings"

// Stream decodes ids as they are generated. It is not safe for concurrent use.
type Stream struct {
	t    *Tokenizer
	ids  []int32
	read int    // ids[:read] have been given out; they stay as context
	text string // the text of ids[:read]
}

// NewStream returns a decoder for generated ids. Special tokens are left out.
func (t *Tokenizer) NewStream() *Stream { return &Stream{t: t} }

// Push returns the text that id completes: empty while a character is still in parts, so that no half of one is ever given out.
// The pieces together are Decode of all ids, except that bytes given out as a character stay one
// where Decode would call the whole run of bytes wrong because of a later one.
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

// Flush returns what is left at the end: the parts of a character that was never completed, as Decode writes them.
func (s *Stream) Flush() string {
	text := s.t.Decode(s.ids, true)
	if len(text) <= len(s.text) || !strings.HasPrefix(text, s.text) {
		return ""
	}
	return s.take(text)
}

// take gives out the rest of text and keeps the ids it came from as the context of the next ones: a decoder that
// treats the first token apart (a leading space) must see that they are not the first.
func (s *Stream) take(text string) string {
	piece := text[len(s.text):]
	s.ids = append(s.ids[:0], s.ids[s.read:]...)
	s.read = len(s.ids)
	s.text = s.t.Decode(s.ids, true)
	return piece
}
