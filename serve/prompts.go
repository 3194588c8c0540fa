package serve

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/tierlora/tierlora/infer"
)

// wantPrompt describes the types of a prompt.
const wantPrompt = "a string, a list of strings, a list of token ids, or a list of lists of token ids"

// texts reads a key of a request that has texts or token ids. It decodes a value only after checking its length: a body
// can be far shorter than the lists into which it decodes.
type texts struct {
	*Library
	f       *fields
	key     string // of the request
	noun    string // of one text, in errors
	most    int    // texts
	longest int    // tokens of a list of token ids
}

// readPrompts reads prompt: a string, a list of strings, a list of token ids, or a list of such lists.
func (l *Library) readPrompts(f *fields) []prompt {
	t := texts{Library: l, f: f, key: "prompt", noun: "prompt", most: maxPrompts, longest: l.MaxLen - 1}
	plain, ids := t.read()
	if f.err != nil {
		return nil
	}
	return l.prompts(f, plain, ids)
}

// read returns the texts or the lists of token ids of the key.
func (t *texts) read() (plain []string, ids [][]int32) {
	v := t.f.raw(t.key)
	if v == nil {
		t.f.wrong(t.key, "is missing: want a string, a list of strings, or token ids")
		return nil, nil
	}
	list := bytes.TrimSpace(v)
	first := firstOf(list)
	ok := true
	switch {
	case list[0] == '"':
		var text string
		text, ok = as[string](v)
		plain = []string{text}
	case first == ']' || first == '"':
		if ok = t.count(extentOf(list).values - 1); ok {
			plain, ok = as[[]string](v)
		}
	case first == '[':
		if ok = t.count(topValues(list)); ok {
			var lists []json.RawMessage
			if lists, ok = as[[]json.RawMessage](v); ok {
				ids, ok = t.readLists(lists)
			}
		}
	case first == '-' || first >= '0' && first <= '9':
		ids, ok = t.readLists([]json.RawMessage{list})
	default:
		ok = false
	}
	if !ok {
		t.f.wrong(t.key, "is %s, want %s", kindOf(v), wantPrompt)
	}
	if t.f.err == nil {
		t.count(len(plain) + len(ids))
	}
	return plain, ids
}

// firstOf returns the first byte of a list's first element; 0 for a value that is no list.
func firstOf(list []byte) byte {
	if list[0] == '[' {
		if in := bytes.TrimLeft(list[1:], " \t\r\n"); len(in) > 0 {
			return in[0]
		}
	}
	return 0
}

// count checks the number of texts.
func (t *texts) count(n int) bool {
	if n == 0 || n > t.most {
		t.f.wrong(t.key, "has %d %ss, want 1 to %d", n, t.noun, t.most)
	}
	return t.f.err == nil
}

// topValues returns the number of values in a list of lists.
func topValues(list []byte) int {
	depth, n := 0, 0
	for _, c := range list {
		switch c {
		case '[':
			if depth++; depth == 2 {
				n++
			}
		case ']':
			depth--
		}
	}
	return n
}

// readLists reads lists of token ids; false = an element is something else. It checks a list's length before it reads
// the list.
func (t *texts) readLists(lists []json.RawMessage) ([][]int32, bool) {
	all := make([][]int32, len(lists))
	for i, list := range lists {
		inner := bytes.TrimSpace(list)
		if len(inner) < 2 || inner[0] != '[' || bytes.ContainsAny(inner, `"{tfn`) ||
			bytes.Count(inner, []byte("[")) != 1 {
			return nil, false
		}
		inner = bytes.TrimSpace(inner[1 : len(inner)-1])
		if len(inner) == 0 {
			continue
		}
		n := bytes.Count(inner, []byte(",")) + 1
		if n > t.longest {
			t.f.err = t.tooLong(t.key, "the "+t.noun, n)
			return nil, true
		}
		all[i] = make([]int32, 0, n)
		for word := range bytes.SplitSeq(inner, []byte(",")) {
			x, err := strconv.ParseFloat(string(bytes.TrimSpace(word)), 64)
			id := int32(x)
			if err != nil || float64(id) != x || id < 0 || int(id) >= t.Vocabulary {
				t.f.wrong(t.key, "%s %d holds %v, which is no token of this model: ids are 0 to %d", t.noun, i, x,
					t.Vocabulary-1)
				return nil, true
			}
			all[i] = append(all[i], id)
		}
	}
	return all, true
}

// prompts tokenises texts. It checks the length of each before the next.
func (l *Library) prompts(f *fields, texts []string, ids [][]int32) []prompt {
	var all []prompt
	for _, text := range texts {
		if f.err = l.tooLarge("prompt", "the prompt", len(text)); f.err != nil {
			return nil
		}
		all = append(all, prompt{Prompt: infer.Prompt{IDs: l.Tokenizer.IDs(text, true)}, echo: text})
		if n := len(all[len(all)-1].IDs); n >= l.MaxLen {
			f.err = l.tooLong("prompt", "the prompt", n)
			return nil
		}
	}
	for _, list := range ids {
		all = append(all, prompt{Prompt: infer.Prompt{IDs: list}, echo: l.Tokenizer.Decode(list, false)})
	}
	for i, p := range all {
		if len(p.IDs) == 0 {
			f.wrong("prompt", "prompt %d has no token", i)
		}
	}
	return all
}

// tooLong returns the error for a prompt of the given number of tokens.
func (l *Library) tooLong(key, what string, tokens int) *Error {
	e := invalid(key, "%s: %s has %d tokens, and a sequence may have %d%s", key, what, tokens, l.MaxLen, l.withAnswer())
	e.Code = "context_length_exceeded"
	return e
}

// withAnswer ends a message about a sequence's most tokens.
func (l *Library) withAnswer() string {
	if l.Heads() {
		return ""
	}
	return " with its answer"
}

// leastLongest is the assumed length, in bytes, of the longest token of a text, at least.
const leastLongest = 32

// tooLarge returns an error if a text of n bytes has more tokens than a sequence with every tokenizer; nil = it may
// fit.
func (l *Library) tooLarge(key, what string, n int) *Error {
	l.longestOnce.Do(func() { l.longest = max(leastLongest, l.Tokenizer.LongestToken()) })
	if n/l.longest < l.MaxLen {
		return nil
	}
	e := invalid(key,
		"%s: %s has %d bytes, more than %d tokens of at most %d bytes, and a sequence may have %d%s",
		key, what, n, l.MaxLen, l.longest, l.MaxLen, l.withAnswer())
	e.Code = "context_length_exceeded"
	return e
}
