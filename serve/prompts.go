package serve

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/tierlora/tierlora/infer"
)

// wantPrompt describes the types of a prompt.
const wantPrompt = "a string, a list of strings, a list of token ids, or a list of lists of token ids"

// readPrompts reads prompt: a string, a list of strings, a list of token ids, or a list of such lists. It decodes a
// value only after checking its length: a body can be far shorter than the lists into which it decodes.
func (l *Library) readPrompts(f *fields) []prompt {
	v := f.raw("prompt")
	if v == nil {
		f.wrong("prompt", "is missing: want a string, a list of strings, or token ids")
		return nil
	}
	list := bytes.TrimSpace(v)
	first := byte(0) // first byte of the first element
	if list[0] == '[' {
		if in := bytes.TrimLeft(list[1:], " \t\r\n"); len(in) > 0 {
			first = in[0]
		}
	}
	var texts []string
	var ids [][]int32
	ok := true
	switch {
	case list[0] == '"':
		var text string
		text, ok = as[string](v)
		texts = []string{text}
	case first == ']' || first == '"':
		if ok = l.count(f, extentOf(list).values-1); ok {
			texts, ok = as[[]string](v)
		}
	case first == '[':
		if ok = l.count(f, topValues(list)); ok {
			var lists []json.RawMessage
			if lists, ok = as[[]json.RawMessage](v); ok {
				ids, ok = l.readLists(f, lists)
			}
		}
	case first == '-' || first >= '0' && first <= '9':
		ids, ok = l.readLists(f, []json.RawMessage{list})
	default:
		ok = false
	}
	if !ok {
		f.wrong("prompt", "is %s, want %s", kindOf(v), wantPrompt)
	}
	if f.err != nil || !l.count(f, len(texts)+len(ids)) {
		return nil
	}
	return l.prompts(f, texts, ids)
}

// count checks the number of prompts.
func (l *Library) count(f *fields, n int) bool {
	if n == 0 || n > maxPrompts {
		f.wrong("prompt", "has %d prompts, want 1 to %d", n, maxPrompts)
	}
	return f.err == nil
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

// readLists reads lists of token ids; false = an element is something else. It checks a list's length against a
// sequence's before it reads the list.
func (l *Library) readLists(f *fields, lists []json.RawMessage) ([][]int32, bool) {
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
		if n >= l.MaxLen {
			f.err = l.tooLong("prompt", "the prompt", n)
			return nil, true
		}
		all[i] = make([]int32, 0, n)
		for word := range bytes.SplitSeq(inner, []byte(",")) {
			x, err := strconv.ParseFloat(string(bytes.TrimSpace(word)), 64)
			id := int32(x)
			if err != nil || float64(id) != x || id < 0 || int(id) >= l.Vocabulary {
				f.wrong("prompt", "prompt %d holds %v, which is no token of this model: ids are 0 to %d", i, x,
					l.Vocabulary-1)
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
	e := invalid(key, "%s: %s has %d tokens, and a sequence may have %d with its answer", key, what, tokens, l.MaxLen)
	e.Code = "context_length_exceeded"
	return e
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
		"%s: %s has %d bytes, more than %d tokens of at most %d bytes, and a sequence may have %d with its answer",
		key, what, n, l.MaxLen, l.longest, l.MaxLen)
	e.Code = "context_length_exceeded"
	return e
}
