package tokenizer

import "fmt"

// vocabulary is a model's tokens by text and by id.
type vocabulary struct {
	vocab   map[string]int32
	tokens  []string // by id; "" = no token has the id
	present []bool   // by id: the vocabulary has the id
}

func (v *vocabulary) names() *vocabulary { return v }

// fill adds tokens with the given ids.
func (v *vocabulary) fill(vocab []entry) error {
	limit := idLimit(len(vocab))
	largest := int64(-1)
	for _, e := range vocab {
		if e.id < 0 || e.id >= int64(limit) {
			return fmt.Errorf("vocab: %q has id %d, which is out of range (largest allowed here: %d)", e.token, e.id, limit-1)
		}
		largest = max(largest, e.id)
	}
	v.vocab = make(map[string]int32, len(vocab))
	v.tokens = make([]string, largest+1)
	v.present = make([]bool, largest+1)
	for _, e := range vocab {
		if v.present[e.id] {
			return fmt.Errorf("vocab: %q and %q both have id %d", v.tokens[e.id], e.token, e.id)
		}
		if _, ok := v.vocab[e.token]; ok {
			return fmt.Errorf("vocab: %q stands there twice", e.token)
		}
		v.tokens[e.id], v.present[e.id] = e.token, true
		v.vocab[e.token] = int32(e.id)
	}
	return nil
}

// token returns the token of an id.
func (v *vocabulary) token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(v.tokens) || !v.present[id] {
		return "", false
	}
	return v.tokens[id], true
}

// byteIDs returns the ids of the tokens <0x00> to <0xFF>, -1 for a missing one.
func (v *vocabulary) byteIDs() (ids [256]int32, all bool) {
	all = true
	for b := range 256 {
		id, ok := v.vocab[fmt.Sprintf("<0x%02X>", b)]
		if !ok {
			id, all = -1, false
		}
		ids[b] = id
	}
	return ids, all
}
