package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// token is an id and the end of its text in the word, in bytes; it begins where the one before it ends.
type token struct {
	id  int32
	end int32
}

// bpe is byte-pair encoding (Sennrich et al. 2016) as tokenizer.json describes it.
type bpe struct {
	vocabulary
	pairs  pairTable
	merged []bool // by id: the token is part of a merge

	unk          int32 // -1: characters outside the vocabulary are dropped
	unkToken     string
	fuseUnk      bool
	byteFallback bool
	ignoreMerges bool
	prefix       string // continuing_subword_prefix
	suffix       string // end_of_word_suffix

	byteID   [256]int32 // id of each byte's token: of the byte's character at byte level, else of <0xXX>; -1 = none
	bytes    bool       // pieces contain bytes, and the vocabulary writes them as characters
	allBytes bool       // every byte has an id
	whole    map[string]int32

	// mark and joins say where a word may be split without changing its tokens: before mark, after a byte b with
	// joins[b] unset, because no merge joins across.
	mark  string
	joins [256]bool

	cache *wordCache
}

// prepare computes the fields that follow from the vocabulary and the merges.
func (m *bpe) prepare(bytes bool) {
	m.cache = newWordCache()
	m.nameBytes(bytes)
	// Reading bytes directly bypasses unk and byte fallback, so it is only allowed if neither can occur.
	m.bytes = bytes && m.prefix == "" && m.suffix == "" && (m.allBytes || m.unk < 0 && !m.byteFallback)
	if bytes && !m.bytes {
		m.nameBytes(false)
	}
	if m.ignoreMerges {
		m.whole = m.vocab
		if m.bytes {
			m.whole = make(map[string]int32, len(m.vocab))
			for t, id := range m.vocab {
				if b, ok := byteLevelBytes(t); ok {
					m.whole[string(b)] = id
				}
			}
		}
	}
}

// nameBytes looks up the token of every byte, by its character or as <0xXX>.
func (m *bpe) nameBytes(characters bool) {
	if !characters {
		m.byteID, m.allBytes = m.byteIDs()
		return
	}
	m.allBytes = true
	for b, name := range byteChar {
		id, ok := m.vocab[name]
		if !ok {
			id, m.allBytes = -1, false
		}
		m.byteID[b] = id
	}
}

// findJoins searches for merges across a mark within a word, so that words without such merges can be split there
// without changing any id.
func (m *bpe) findJoins(mark string) {
	if _, ok := m.vocab[mark]; !ok || m.prefix != "" || m.suffix != "" {
		return
	}
	for _, id := range m.byteID {
		if id >= 0 && m.merged[id] {
			return // the bytes of such a merge's text differ from those of its token's name
		}
	}
	m.mark = mark
	m.joins[mark[len(mark)-1]] = true
	for _, s := range m.pairs.slots {
		if s.key == 0 {
			continue
		}
		for t, from := m.tokens[s.id], 1; from < len(t); {
			k := strings.Index(t[from:], mark)
			if k < 0 {
				break
			}
			m.joins[t[from+k-1]] = true
			from += k + len(mark)
		}
	}
}

// tokenize appends the tokens of p to out.
func (m *bpe) tokenize(p piece, sc *scratch, out *output) {
	if p.s == "" {
		return
	}
	if m.ignoreMerges {
		if id, ok := m.whole[p.s]; ok {
			out.add(p, 0, []token{{id, int32(len(p.s))}})
			return
		}
	}
	start := 0
	if m.mark != "" {
		for i := 1; i < len(p.s); i++ {
			if p.s[i] == m.mark[0] && !m.joins[p.s[i-1]] && strings.HasPrefix(p.s[i:], m.mark) {
				m.word(p, start, i, sc, out)
				start = i
			}
		}
	}
	m.word(p, start, len(p.s), sc, out)
}

// word appends the tokens of bytes [start,end) of p.
func (m *bpe) word(p piece, start, end int, sc *scratch, out *output) {
	w := p.s[start:end]
	if m.bytes && !m.allBytes && (p.at != nil || out.located != nil) && m.lacks(w) {
		// A byte without an id is dropped, and the later offsets move as if it had never existed, in bytes of
		// characters.
		named := byteLevelText(p.sub(cut{start, end}))
		sc.symbols = sc.symbols[:0]
		m.characters(named.s, sc)
		m.finish(sc)
		out.add(named, 0, sc.tokens)
		return
	}
	if len(w) <= maxNearWord {
		n := sc.near(w)
		if !n.is(w) {
			if m.lookUp(w, sc); !n.put(w, sc.tokens) {
				out.add(p, start, sc.tokens)
				return
			}
		}
		if p.at == nil && out.located == nil {
			out.ids = append(out.ids, n.ids[:n.tokens]...)
			return
		}
		n.give(sc)
		out.add(p, start, sc.tokens)
		return
	}
	if len(w) > maxCacheWord {
		m.merge(w, sc)
		out.add(p, start, sc.tokens)
		return
	}
	m.lookUp(w, sc)
	out.add(p, start, sc.tokens)
}

// lookUp writes the tokens of a word of at most maxCacheWord bytes to sc.tokens.
func (m *bpe) lookUp(w string, sc *scratch) {
	slot := m.cache.slot(w)
	if c := slot.Load(); c != nil && c.word == w {
		sc.tokens = append(sc.tokens[:0], c.tokens...)
		return
	}
	m.merge(w, sc)
	m.cache.put(slot, w, sc.tokens)
}

func (m *bpe) lacks(w string) bool {
	for i := range len(w) {
		if m.byteID[w[i]] < 0 {
			return true
		}
	}
	return false
}

// merge writes the tokens of w to sc.tokens.
func (m *bpe) merge(w string, sc *scratch) {
	sc.symbols = sc.symbols[:0]
	if m.bytes {
		for i := range len(w) {
			if id := m.byteID[w[i]]; id >= 0 {
				sc.symbols = append(sc.symbols, symbol{id: id, size: 1})
			}
		}
	} else {
		m.characters(w, sc)
	}
	m.finish(sc)
}

// finish merges the symbols of sc and writes its tokens.
func (m *bpe) finish(sc *scratch) {
	sc.mergeAll(&m.pairs)
	sc.tokens = sc.tokens[:0]
	end := int32(0)
	for i := range sc.symbols {
		end += sc.symbols[i].size
		sc.tokens = append(sc.tokens, token{sc.symbols[i].id, end})
	}
}

// characters makes a symbol of each code point of w. A code point without a token becomes bytes, unk or nothing.
func (m *bpe) characters(w string, sc *scratch) {
	var pending symbol // an unk that the next characters may extend
	pendingUnk := false
	add := func(id int32, size int) { sc.symbols = append(sc.symbols, symbol{id: id, size: int32(size)}) }
	for i := 0; i < len(w); {
		_, n := utf8.DecodeRuneInString(w[i:])
		s := w[i : i+n]
		if m.prefix != "" && i > 0 {
			s = m.prefix + s
		}
		if m.suffix != "" && i+n == len(w) {
			s += m.suffix
		}
		i += n
		if id, ok := m.vocab[s]; ok {
			if pendingUnk {
				sc.symbols = append(sc.symbols, pending)
				pendingUnk = false
			}
			add(id, n)
			continue
		}
		if m.byteFallback && !m.bytes && m.hasBytes(s) {
			for k := range len(s) {
				add(m.byteID[s[k]], 1)
			}
			continue
		}
		switch {
		case m.unk < 0:
		case pendingUnk && m.fuseUnk:
			pending.size += int32(n)
		default:
			if pendingUnk {
				sc.symbols = append(sc.symbols, pending)
			}
			pending, pendingUnk = symbol{id: m.unk, size: int32(n)}, true
		}
	}
	if pendingUnk {
		sc.symbols = append(sc.symbols, pending)
	}
}

// hasBytes reports whether every byte of s has a token <0xXX>.
func (m *bpe) hasBytes(s string) bool {
	if m.allBytes {
		return true
	}
	for i := range len(s) {
		if m.byteID[s[i]] < 0 {
			return false
		}
	}
	return true
}
