package tokenizer

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

const (
	cacheSlots   = 1 << 16
	maxCacheWord = 64 // in bytes; longer words rarely occur again
)

// wordCache caches the tokens of recent words. A slot holds one word, and a new word replaces the slot's content, so
// the size is bounded and readers and writers need no lock. Its content never affects results.
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

// put stores a copy of a word's tokens in the slot that slot(word) returned.
func (c *wordCache) put(slot *atomic.Pointer[cachedWord], word string, tokens []token) {
	slot.Store(&cachedWord{strings.Clone(word), append([]token(nil), tokens...)})
}
