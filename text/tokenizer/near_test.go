package tokenizer

import (
	"math/rand/v2"
	"testing"
)

// TestNearWords: a place that holds a word is never taken for another one's, and gives back what was put in.
func TestNearWords(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for size := 1; size <= maxNearWord; size++ {
		for range 2000 {
			word := make([]byte, size)
			for i := range word {
				word[i] = byte(rng.IntN(4)) // zeros too
			}
			var n nearWord
			if n.is(string(word)) {
				t.Fatalf("the empty place holds %q", word)
			}
			tokens := []token{{7, 1}, {1 << 30, int32(size)}}
			if !n.put(string(word), tokens) || !n.is(string(word)) {
				t.Fatalf("%q was not put in", word)
			}
			var sc scratch
			if n.give(&sc); len(sc.tokens) != 2 || sc.tokens[0] != tokens[0] || sc.tokens[1] != tokens[1] {
				t.Fatalf("%q: %v, want %v", word, sc.tokens, tokens)
			}
			other := append([]byte(nil), word...)
			other[rng.IntN(size)] ^= byte(1 + rng.IntN(255))
			if n.is(string(other)) || n.is(string(word)+"\x00") || n.is(string(word[:size-1])+"xy") {
				t.Fatalf("%q is taken for another word", word)
			}
			if n.put(string(word), make([]token, nearTokens+1)) {
				t.Fatal("too many tokens were put in")
			}
		}
	}
}
