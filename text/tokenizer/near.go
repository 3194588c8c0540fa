package tokenizer

// nearWord is a short word with its ids in one cache line, so that looking up a frequent word reads memory once. Each
// goroutine has its own table; the wordCache behind it serves all.
type nearWord struct {
	low, high uint64 // bytes of the word (see ends)
	size      uint8  // length of the word; 0 = empty
	tokens    uint8
	ends      [nearTokens]uint8 // ends of the tokens, in bytes of the word
	ids       [nearTokens]int32
}

const (
	nearTokens  = 9 // the wordCache keeps longer lists
	maxNearWord = 16
	nearBits    = 13 // 8,192 words, 512 KiB: the size of a core's own cache
)

// ends returns the bytes of a word of 1 to 16 bytes as two numbers. Two words of the same length have the same numbers
// only if they are equal.
func ends(w string) (low, high uint64) {
	n := len(w)
	switch {
	case n >= 8:
		return bytes8(w), bytes8(w[n-8:])
	case n >= 4:
		return bytes4(w) | bytes4(w[n-4:])<<32, 0
	}
	return uint64(w[0]) | uint64(w[n/2])<<8 | uint64(w[n-1])<<16, 0
}

func bytes8(s string) uint64 { return bytes4(s) | bytes4(s[4:])<<32 }

func bytes4(s string) uint64 {
	_ = s[3]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}

// near returns the slot of a word.
func (sc *scratch) near(w string) *nearWord {
	if sc.nearby == nil {
		sc.nearby = make([]nearWord, 1<<nearBits)
	}
	low, high := ends(w)
	h := (low ^ high*0x9E3779B97F4A7C15 ^ uint64(len(w))) * 0xD6E8FEB86659FD93
	return &sc.nearby[h>>(64-nearBits)]
}

func (n *nearWord) is(w string) bool {
	low, high := ends(w)
	return n.low == low && n.high == high && int(n.size) == len(w)
}

// put stores a word, unless it has too many tokens.
func (n *nearWord) put(w string, tokens []token) bool {
	if len(tokens) > nearTokens {
		return false
	}
	n.low, n.high = ends(w)
	n.size, n.tokens = uint8(len(w)), uint8(len(tokens))
	for i, t := range tokens {
		n.ids[i], n.ends[i] = t.id, uint8(t.end)
	}
	return true
}

// give writes the word's tokens to sc.tokens.
func (n *nearWord) give(sc *scratch) {
	sc.tokens = sc.tokens[:0]
	for i := range int(n.tokens) {
		sc.tokens = append(sc.tokens, token{n.ids[i], int32(n.ends[i])})
	}
}
