package llamacpp

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// lowest is the score of tokens that are not joined from others: below that of every merge.
const lowest = -1e6

// sentencePiece adds a tokenizer of SentencePiece's kind: characters are joined to the token with the best score, where
// merges would join the pair that stands first. Both are the same where the ranks of the pairs that make a token stand
// together and every pair that makes a token is a merge; that is checked, but for added tokens, which are matched
// before.
func (p *Plan) sentencePiece(f *file, list []string, kinds []int32) error {
	space, err := p.spaces(f)
	if err != nil {
		return err
	}
	scores := make([]float32, len(list))
	added := map[string]bool{}
	for id, token := range list {
		if kinds[id] == kindControl || kinds[id] == kindOwn {
			added[token], added[strings.ReplaceAll(token, " ", "▁")] = true, true
		}
	}
	rank := map[string]int{} // of tokens that merges make: the first pair's
	pairs := make(map[[2]string]bool, len(f.merges))
	last := ""
	for i, m := range f.merges {
		made := m[0] + m[1]
		pairs[m] = true
		if added[made] {
			continue
		}
		if _, again := rank[made]; again && made != last {
			return fmt.Errorf(
				"the merges of %q do not stand together (merge %d): a score for each token can't say their order", made,
				i)
		} else if !again {
			rank[made] = i
		}
		last = made
	}
	for id, token := range list {
		switch kinds[id] {
		case kindControl, kindOwn, kindUnused:
			scores[id] = lowest
			continue
		case kindByte:
			continue
		}
		if r, ok := rank[token]; ok {
			scores[id] = -float32(r)
		} else {
			scores[id] = -float32(len(f.merges))
		}
		if err := closed(f, token, pairs, added); err != nil {
			return err
		}
	}
	p.add("tokenizer.ggml.model", "llama")
	p.add("tokenizer.ggml.pre", "default")
	p.add("tokenizer.ggml.scores", scores)
	p.add("tokenizer.ggml.add_space_prefix", space)
	return nil
}

// closed checks that every pair of tokens that makes this one is a merge.
func closed(f *file, token string, pairs map[[2]string]bool, added map[string]bool) error {
	for i := range token {
		if i == 0 {
			continue
		}
		left, right := token[:i], token[i:]
		if added[left] || added[right] {
			continue
		}
		if _, ok := f.vocab[left]; !ok {
			continue
		}
		if _, ok := f.vocab[right]; ok && !pairs[[2]string{left, right}] {
			return fmt.Errorf("%q and %q are tokens and so is %q, but no merge joins them, which llama.cpp would do",
				left, right, token)
		}
	}
	return nil
}

// spaces tells whether texts get a space before them.
func (p *Plan) spaces(f *file) (before bool, err error) {
	replaced := false
	for _, n := range parts(f.Normalizer) {
		text, _ := n.pattern()
		switch {
		case n.Type == "Prepend" && n.Prepend == "▁":
			before = true
		case n.Type == "Replace" && text == " " && n.Content == "▁":
			replaced = true
		default:
			return false, fmt.Errorf("its normalizer %s", n.Type)
		}
	}
	for _, s := range parts(f.PreTokenizer) {
		text, _ := s.pattern()
		switch {
		case s.Type == "Metaspace" && s.Replacement == "▁" && !replaced:
			replaced = true
			before = s.Scheme != "never" && (s.PrefixSpace == nil || *s.PrefixSpace)
			if s.Scheme == "first" {
				p.note("the tokenizer puts a space before the first text alone, llama.cpp before the text behind " +
					"each special token too: chat prompts differ in it")
			}
			if before {
				p.note("the tokenizer puts no space before a text that begins with one, llama.cpp does")
			}
			if s.Split == nil || *s.Split {
				if token := spaceInside(f); token != "" {
					return false, fmt.Errorf("it splits texts at spaces, but tokens such as %q have one inside", token)
				}
			}
		case s.Type == "Split" && text == " " && replaced: // nothing is left to split at
		default:
			return false, fmt.Errorf("its pre-tokenizer %s", s.Type)
		}
	}
	if !replaced {
		return false, fmt.Errorf("it has no mark for spaces")
	}
	return before, nil
}

// spaceInside is a token with a space mark behind another character, the first of several by the alphabet; "" = there
// is none.
func spaceInside(f *file) (found string) {
	for token := range f.vocab {
		_, n := utf8.DecodeRuneInString(token)
		if strings.Contains(token[n:], "▁") && (found == "" || token < found) {
			found = token
		}
	}
	return found
}
