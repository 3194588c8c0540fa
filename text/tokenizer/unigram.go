package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"unicode/utf8"
)

// unkPenalty is the difference of log probability between the least likely token and an unknown character.
const unkPenalty = 10

// unigram is the unigram language model (Kudo 2018) as tokenizer.json describes it. It finds the likeliest way to split
// a piece into tokens with the Viterbi algorithm.
type unigram struct {
	vocabulary
	scores       []float64 // by id: log probabilities
	trie         *trie
	unk          int32   // -1 = none
	unkScore     float64 // score of an unknown character
	byteFallback bool
	byteID       [256]int32 // ids of the tokens <0xXX>; -1 = none
	cache        *wordCache
}

func parseUnigram(fields json.RawMessage, vocabText, mergesText string) (model, error) {
	if mergesText != "" {
		return nil, fmt.Errorf("merges: a Unigram model has none")
	}
	var f struct {
		UnkID        *int64 `json:"unk_id"`
		ByteFallback bool   `json:"byte_fallback"`
	}
	if err := strict(fields, &f); err != nil {
		return nil, err
	}
	pieces, err := readScores(vocabText)
	if err != nil {
		return nil, err
	}
	m := &unigram{byteFallback: f.ByteFallback, unk: -1, cache: newWordCache()}
	m.vocab = make(map[string]int32, len(pieces))
	m.tokens = make([]string, len(pieces))
	m.present = make([]bool, len(pieces))
	m.scores = make([]float64, len(pieces))
	least := math.Inf(1)
	for i, p := range pieces {
		// If a token occurs twice, the later id counts, as in Hugging Face tokenizers.
		m.vocab[p.token], m.tokens[i], m.present[i], m.scores[i] = int32(i), p.token, true, p.score
		least = math.Min(least, p.score)
	}
	if f.UnkID != nil {
		if *f.UnkID < 0 || *f.UnkID >= int64(len(pieces)) {
			return nil, fmt.Errorf("unk_id %d is not in the vocabulary of %d", *f.UnkID, len(pieces))
		}
		m.unk = int32(*f.UnkID)
	}
	m.unkScore = least - unkPenalty
	m.trie = newTrie(m.vocab)
	m.byteID, _ = m.byteIDs()
	return m, nil
}

// hasByteCharacters reports whether the byte-level character of every byte is a token.
func (m *unigram) hasByteCharacters() bool {
	for _, c := range byteChar {
		if _, ok := m.vocab[c]; !ok {
			return false
		}
	}
	return true
}

// bestCut is the likeliest way to split a text up to some byte: its last token, the start of that token, and the sum of
// scores.
type bestCut struct {
	score float64
	start int32 // -1 = no way was found yet
	id    int32
}

func (m *unigram) tokenize(p piece, sc *scratch, out *output) {
	if p.s == "" {
		return
	}
	if len(p.s) > maxCacheWord {
		m.viterbi(p.s, sc)
		m.give(p, sc.tokens, out)
		return
	}
	slot := m.cache.slot(p.s)
	c := slot.Load()
	if c == nil || c.word != p.s {
		m.viterbi(p.s, sc)
		m.cache.put(slot, p.s, sc.tokens)
		m.give(p, sc.tokens, out)
		return
	}
	m.give(p, c.tokens, out)
}

// viterbi writes the tokens of s to sc.tokens; a run of unknown characters is one token with id -1.
func (m *unigram) viterbi(s string, sc *scratch) {
	if cap(sc.best) <= len(s) {
		sc.best = make([]bestCut, len(s)+1)
	}
	best := sc.best[:len(s)+1]
	for i := range best {
		best[i] = bestCut{start: -1}
	}
	t := m.trie
	for i := 0; i < len(s); {
		here := best[i].score
		width := 1
		if s[i] >= utf8.RuneSelf {
			_, width = utf8.DecodeRuneInString(s[i:])
		}
		single, walked := false, 1
		node := t.root[s[i]]
		for end := i + 1; node >= 0; end++ {
			if id := t.id[node]; id >= 0 {
				if to, score := &best[end], m.scores[id]+here; to.start < 0 || score > to.score {
					*to = bestCut{score, int32(i), id}
				}
				single = single || end-i == width
			}
			if end == len(s) {
				break
			}
			walked++
			node = t.find(node, s[end])
		}
		sc.work.spend(walked)
		if !single {
			if to, score := &best[i+width], m.unkScore+here; to.start < 0 || score > to.score {
				*to = bestCut{score, int32(i), m.unk}
			}
		}
		i += width
	}
	// The loop runs backwards over each token's end and joins unknown runs.
	sc.tokens = sc.tokens[:0]
	for end := int32(len(s)); end > 0; {
		b := best[end]
		id := b.id
		if id == m.unk {
			id = -1
		}
		if n := len(sc.tokens); id >= 0 || n == 0 || sc.tokens[n-1].id >= 0 {
			sc.tokens = append(sc.tokens, token{id, end})
		}
		end = b.start
	}
	for i, j := 0, len(sc.tokens)-1; i < j; i, j = i+1, j-1 {
		sc.tokens[i], sc.tokens[j] = sc.tokens[j], sc.tokens[i]
	}
}

// give appends the tokens of p to out, unknown runs as their bytes or as unk.
func (m *unigram) give(p piece, tokens []token, out *output) {
	plain := p.at == nil && out.located == nil
	var one [1]token
	start := int32(0)
	for _, t := range tokens {
		if t.id >= 0 && plain {
			out.ids = append(out.ids, t.id)
			start = t.end
			continue
		}
		one[0] = token{t.id, t.end - start}
		text := p.s[start:t.end]
		if t.id < 0 {
			if id, ok := m.vocab[text]; ok { // an unknown run as a whole may be a token
				one[0].id = id
			}
		}
		switch {
		case one[0].id >= 0:
			out.add(p, int(start), one[:])
		case m.byteFallback && m.hasBytes(text):
			for k := range len(text) { // each byte's token has the offsets of the whole run
				one[0].id = m.byteID[text[k]]
				out.add(p, int(start), one[:])
			}
		case m.unk >= 0:
			one[0].id = m.unk
			out.add(p, int(start), one[:])
		}
		start = t.end
	}
}

// hasBytes reports whether every byte of s has a token <0xXX>.
func (m *unigram) hasBytes(s string) bool {
	for i := range len(s) {
		if m.byteID[s[i]] < 0 {
			return false
		}
	}
	return true
}
