package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// modelFile is the model part of tokenizer.json.
type modelFile struct {
	Type         *string         `json:"type"` // absent in files of tokenizers before 0.9
	Dropout      *float64        `json:"dropout"`
	UnkToken     *string         `json:"unk_token"`
	Prefix       *string         `json:"continuing_subword_prefix"`
	Suffix       *string         `json:"end_of_word_suffix"`
	FuseUnk      bool            `json:"fuse_unk"`
	ByteFallback bool            `json:"byte_fallback"`
	IgnoreMerges bool            `json:"ignore_merges"`
	Vocab        json.RawMessage `json:"vocab"`
	Merges       json.RawMessage `json:"merges"`
}

func parseModel(b json.RawMessage) (*bpe, error) {
	if isNull(b) {
		return nil, fmt.Errorf("there is none")
	}
	if kind, err := kindOf(b, "model"); err == nil && kind != "BPE" {
		return nil, fmt.Errorf("type %q: only BPE is supported", kind)
	}
	var f modelFile
	if err := strict(b, &f); err != nil {
		return nil, err
	}
	if f.Dropout != nil && *f.Dropout != 0 {
		return nil, fmt.Errorf("dropout %v: encoding would be random; set it to null", *f.Dropout)
	}
	vocab, err := readVocab(f.Vocab)
	if err != nil {
		return nil, err
	}
	merges, err := readMerges(f.Merges)
	if err != nil {
		return nil, err
	}
	m := &bpe{fuseUnk: f.FuseUnk, byteFallback: f.ByteFallback, ignoreMerges: f.IgnoreMerges}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	m.unkToken, m.prefix, m.suffix = text(f.UnkToken), text(f.Prefix), text(f.Suffix)
	return m, m.fill(vocab, merges)
}

// fill enters vocabulary and merges.
func (m *bpe) fill(vocab []entry, merges [][2]string) error {
	limit := idLimit(len(vocab))
	largest := int64(-1)
	for _, e := range vocab {
		if e.id < 0 || e.id >= int64(limit) {
			return fmt.Errorf("vocab: %q has id %d, which is out of range (largest allowed here: %d)", e.token, e.id, limit-1)
		}
		largest = max(largest, e.id)
	}
	m.vocab = make(map[string]int32, len(vocab))
	m.tokens = make([]string, largest+1)
	m.present = make([]bool, largest+1)
	for _, e := range vocab {
		if m.present[e.id] {
			return fmt.Errorf("vocab: %q and %q both have id %d", m.tokens[e.id], e.token, e.id)
		}
		m.tokens[e.id], m.present[e.id] = e.token, true
		m.vocab[e.token] = int32(e.id)
	}
	if len(m.vocab) != len(vocab) {
		return fmt.Errorf("vocab: a token stands there twice")
	}
	m.unk = -1
	if m.unkToken != "" {
		if id, ok := m.vocab[m.unkToken]; ok {
			m.unk = id
		}
	}
	m.pairs = newPairTable(len(merges))
	m.merged = make([]bool, largest+1)
	var joined []byte
	for rank, pair := range merges {
		left, ok := m.vocab[pair[0]]
		if !ok {
			return fmt.Errorf("merges[%d]: %q is not in the vocabulary", rank, pair[0])
		}
		right, ok := m.vocab[pair[1]]
		if !ok {
			return fmt.Errorf("merges[%d]: %q is not in the vocabulary", rank, pair[1])
		}
		// The continuing prefix of the right side disappears in the middle of the merged token.
		tail := pair[1]
		if len(m.prefix) <= len(tail) {
			tail = tail[len(m.prefix):]
		}
		joined = append(append(joined[:0], pair[0]...), tail...)
		id, ok := m.vocab[string(joined)]
		if !ok {
			return fmt.Errorf("merges[%d]: %q and %q make %q, which is not in the vocabulary", rank, pair[0], pair[1], joined)
		}
		m.pairs.put(left, right, merge{uint32(rank), id})
		m.merged[left], m.merged[right] = true, true
	}
	return nil
}

// token returns the token of an id.
func (m *bpe) token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(m.tokens) || !m.present[id] {
		return "", false
	}
	return m.tokens[id], true
}

// mergesByRank returns the sides of every merge in the order of their ranks.
func (m *bpe) mergesByRank() [][2]int32 {
	last := -1
	for _, s := range m.pairs.slots {
		if s.key != 0 {
			last = max(last, int(s.rank))
		}
	}
	byRank := make([][2]int32, last+1)
	seen := make([]bool, last+1)
	for _, s := range m.pairs.slots {
		if s.key != 0 {
			byRank[s.rank], seen[s.rank] = [2]int32{int32(s.key>>32) - 1, int32(uint32(s.key))}, true
		}
	}
	out := byRank[:0]
	for r, ok := range seen {
		if ok {
			out = append(out, byRank[r])
		}
	}
	return out
}

// entry is one token of a vocabulary.
type entry struct {
	token string
	id    int64
}

// scanner reads JSON that the standard library has found valid; vocabularies are too large for it to build quickly.
type scanner struct {
	s string
	i int
}

func (c *scanner) space() {
	for c.i < len(c.s) && (c.s[c.i] == ' ' || c.s[c.i] == '\n' || c.s[c.i] == '\t' || c.s[c.i] == '\r') {
		c.i++
	}
}

// take skips b if it comes next.
func (c *scanner) take(b byte) bool {
	c.space()
	if c.i < len(c.s) && c.s[c.i] == b {
		c.i++
		return true
	}
	return false
}

// str reads a string.
func (c *scanner) str() (string, bool) {
	if !c.take('"') {
		return "", false
	}
	start, escaped, ascii := c.i, false, true
	for c.i < len(c.s) && c.s[c.i] != '"' {
		if c.s[c.i] == '\\' {
			escaped = true
			c.i++
		}
		if c.i < len(c.s) && c.s[c.i] >= 0x80 {
			ascii = false
		}
		c.i++
	}
	if c.i >= len(c.s) {
		return "", false
	}
	text := c.s[start:c.i]
	c.i++
	if escaped {
		var out string
		if json.Unmarshal([]byte(c.s[start-1:c.i]), &out) != nil {
			return "", false
		}
		return out, true
	}
	if !ascii {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	return text, true
}

// number reads an integer.
func (c *scanner) number() (int64, bool) {
	c.space()
	start := c.i
	for c.i < len(c.s) && strings.IndexByte(",}] \n\t\r", c.s[c.i]) < 0 {
		c.i++
	}
	n, err := strconv.ParseInt(c.s[start:c.i], 10, 64)
	return n, err == nil
}

func readVocab(b json.RawMessage) ([]entry, error) {
	c := &scanner{s: string(b)}
	if !c.take('{') {
		return nil, fmt.Errorf("vocab: not an object of token to id")
	}
	var out []entry
	if c.take('}') {
		return nil, fmt.Errorf("vocab: empty")
	}
	for {
		token, ok := c.str()
		if !ok || !c.take(':') {
			return nil, fmt.Errorf("vocab: token %d is not a string", len(out))
		}
		id, ok := c.number()
		if !ok {
			return nil, fmt.Errorf("vocab: the id of %q is not an integer", token)
		}
		out = append(out, entry{token, id})
		if !c.take(',') {
			return out, nil
		}
	}
}

// readMerges reads both forms: "left right" and ["left", "right"].
func readMerges(b json.RawMessage) ([][2]string, error) {
	c := &scanner{s: string(b)}
	if !c.take('[') {
		return nil, fmt.Errorf("merges: not a list")
	}
	var out [][2]string
	if c.take(']') {
		return out, nil
	}
	for {
		var pair [2]string
		if c.take('[') {
			left, ok := c.str()
			comma := c.take(',')
			right, ok2 := c.str()
			if !ok || !comma || !ok2 || !c.take(']') {
				return nil, fmt.Errorf("merges[%d]: not two strings", len(out))
			}
			pair = [2]string{left, right}
		} else {
			line, ok := c.str()
			if !ok {
				return nil, fmt.Errorf("merges[%d]: neither a string nor a list", len(out))
			}
			left, right, ok := strings.Cut(line, " ")
			if !ok || strings.Contains(right, " ") {
				return nil, fmt.Errorf("merges[%d]: %q is not two tokens parted by one space", len(out), line)
			}
			pair = [2]string{left, right}
		}
		out = append(out, pair)
		if !c.take(',') {
			return out, nil
		}
	}
}
