package tokenizer

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

const (
	cacheSlots   = 1 << 16
	maxCacheWord = 64 // bytes; longer words seldom come back
)

// wordCache remembers the tokens of recent words. A slot holds one word and a new word takes the slot over,
// so its size is bounded and readers and writers need no lock. What it returns never depends on what it holds.
type wordCache struct {
	seed  maphash.Seed
	slots []atomic.Pointer[cachedWord]
}

type cachedWord struct {
	word   string
	tokens []token
}

func newWordCache() *wordCache {
	return &wordCache{seed: maphash.MakeSeed(), slots: make([]atomic.Pointer[cachedWord], cacheSlots)}
}

func (c *wordCache) slot(word string) *atomic.Pointer[cachedWord] {
	return &c.slots[maphash.String(c.seed, word)&(cacheSlots-1)]
}

// put keeps a copy of tokens under word in a slot that slot(word) gave.
func (c *wordCache) put(slot *atomic.Pointer[cachedWord], word string, tokens []token) {
	slot.Store(&cachedWord{strings.Clone(word), append([]token(nil), tokens...)})
}
