package tokenizer

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that is matched in the text before anything else.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// finder finds added tokens in a text: leftmost first, longest first among those that start together.
type finder struct {
	nodes []trieNode
	start [256]bool // at least one token begins with this byte
	only  int       // the byte that all tokens begin with, or -1
}

type trieNode struct {
	edges []trieEdge // edges by byte
	token *addedToken
}

type trieEdge struct {
	b  byte
	to int32
}

// newFinder returns a finder of tokens; texts has the text by which each is matched.
func newFinder(texts []string, tokens []*addedToken) *finder {
	if len(texts) == 0 {
		return nil
	}
	f := &finder{nodes: make([]trieNode, 1), only: -1}
	for k, text := range texts {
		if text == "" {
			continue
		}
		n := int32(0)
		for i := range len(text) {
			n = f.child(n, text[i])
		}
		if f.nodes[n].token == nil {
			f.nodes[n].token = tokens[k]
		}
		f.start[text[0]] = true
	}
	if root := f.nodes[0].edges; len(root) == 1 {
		f.only = int(root[0].b)
	}
	return f
}

// child returns the node below n for b, and creates it if necessary.
func (f *finder) child(n int32, b byte) int32 {
	edges := f.nodes[n].edges
	k := sort.Search(len(edges), func(k int) bool { return edges[k].b >= b })
	if k < len(edges) && edges[k].b == b {
		return edges[k].to
	}
	to := int32(len(f.nodes))
	f.nodes = append(f.nodes, trieNode{})
	edges = append(edges, trieEdge{})
	copy(edges[k+1:], edges[k:])
	edges[k] = trieEdge{b, to}
	f.nodes[n].edges = edges
	return to
}

// at returns the longest token that begins at s[i].
func (f *finder) at(s string, i int, w *work) (found *addedToken, end int) {
	n := int32(0)
	for k := i; k < len(s); k++ {
		edges, next := f.nodes[n].edges, int32(-1)
		for _, e := range edges {
			if e.b == s[k] {
				next = e.to
				break
			}
		}
		if next < 0 {
			break
		}
		n = next
		w.spend(1)
		if t := f.nodes[n].token; t != nil {
			found, end = t, k+1
		}
	}
	return found, end
}

// found is an added token in a text.
type found struct {
	token      *addedToken // nil = none was found
	start, end int         // range including the white space that the token absorbs
	core       cut         // range without that white space
}

// next returns the first valid token at or after s[from]; done is the end of the text that is already processed.
func (f *finder) next(s string, from, done int, w *work) found {
	for i := from; i < len(s); {
		if f.only >= 0 {
			k := strings.IndexByte(s[i:], byte(f.only))
			if k < 0 {
				break
			}
			i += k
		} else if !f.start[s[i]] {
			i++
			continue
		}
		t, end := f.at(s, i, w)
		if t == nil {
			i++
			continue
		}
		start, core := i, cut{i, end}
		if t.SingleWord && !alone(s, start, end) {
			i = end
			continue
		}
		if t.LStrip {
			start = max(len(strings.TrimRightFunc(s[:start], unicode.IsSpace)), done)
		}
		if t.RStrip {
			end = len(s) - len(strings.TrimLeftFunc(s[end:], unicode.IsSpace))
		}
		w.spend(end - start)
		return found{t, start, end, core}
	}
	return found{}
}

// alone reports whether no word character touches s[start:end].
func alone(s string, start, end int) bool {
	before, n := utf8.DecodeLastRuneInString(s[:start])
	after, m := utf8.DecodeRuneInString(s[end:])
	return (n == 0 || !isWord(before)) && (m == 0 || !isWord(after))
}
