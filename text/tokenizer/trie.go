package tokenizer

import "sort"

// trie finds every token that begins a text. The children of a node are stored side by side, sorted by their byte.
type trie struct {
	first []int32 // by node: its first child
	count []int16 // by node: the number of its children
	label []byte  // by node: the byte of the edge to it
	id    []int32 // by node: the token that ends at it, -1 = none
	root  [256]int32
}

func newTrie(vocab map[string]int32) *trie {
	tokens := make([]string, 0, len(vocab))
	for t := range vocab {
		if t != "" {
			tokens = append(tokens, t)
		}
	}
	sort.Strings(tokens)
	t := &trie{}
	type stretch struct{ from, to, depth int } // range of tokens that share depth bytes
	all := []stretch{{0, len(tokens), 0}}
	t.grow(0)
	for node := 0; node < len(all); node++ {
		s := all[node]
		if s.from < s.to && len(tokens[s.from]) == s.depth {
			t.id[node] = vocab[tokens[s.from]]
			s.from++
		}
		t.first[node] = int32(len(all))
		for from := s.from; from < s.to; {
			b, to := tokens[from][s.depth], from
			for to < s.to && tokens[to][s.depth] == b {
				to++
			}
			all = append(all, stretch{from, to, s.depth + 1})
			t.grow(b)
			t.count[node]++
			from = to
		}
	}
	for b := range t.root {
		t.root[b] = t.find(0, byte(b))
	}
	return t
}

func (t *trie) grow(label byte) {
	t.first, t.count, t.label, t.id = append(t.first, 0), append(t.count, 0), append(t.label, label), append(t.id, -1)
}

// find returns the child of a node for a byte, -1 for none.
func (t *trie) find(node int32, b byte) int32 {
	low := int(t.first[node])
	below := t.label[low : low+int(t.count[node])]
	if len(below) > 8 {
		k := sort.Search(len(below), func(k int) bool { return below[k] >= b })
		if k < len(below) && below[k] == b {
			return int32(low + k)
		}
		return -1
	}
	for k := range below {
		if below[k] == b {
			return int32(low + k)
		}
	}
	return -1
}
