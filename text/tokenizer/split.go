package tokenizer

// wordSplitter splits a whole text into words: next returns the end of the word that begins at s[i]. The
// implementations here are the known look-ahead patterns, written by hand because Go's regexp has no look-ahead.
type wordSplitter interface {
	next(s string, i int) int
}

// The patterns in the spelling of tokenizer files.
const (
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternO200k  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternTekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// handWritten returns the hand-written form of a known pattern.
func handWritten(pattern string) (wordSplitter, bool) {
	switch pattern {
	case patternGPT2:
		return gpt2Words{classes()}, true
	case patternLlama3:
		return llama3Words{classes(), 3}, true
	case patternQwen2:
		return llama3Words{classes(), 1}, true
	case patternO200k:
		return casedWords{classes(), 3, true}, true
	case patternTekken:
		return casedWords{classes(), 1, false}, true
	}
	return nil, false
}

// gpt2Words is patternGPT2.
type gpt2Words struct{ class *[classTableSize]uint8 }

func (g gpt2Words) next(s string, i int) int {
	t := g.class
	if s[i] == '\'' {
		if n := contraction(s[i+1:], false); n > 0 {
			return i + 1 + n
		}
	}
	c, n := classAt(t, s, i)
	if c&isSpace == 0 {
		return run(t, s, i+n, c&kindMask)
	}
	if s[i] == ' ' && i+1 < len(s) {
		if c, n := classAt(t, s, i+1); c&isSpace == 0 {
			return run(t, s, i+1+n, c&kindMask)
		}
	}
	return spaces(t, s, i)
}

// llama3Words is patternLlama3 with digits up to three, or patternQwen2 with one.
type llama3Words struct {
	class  *[classTableSize]uint8
	digits int
}

func (l llama3Words) next(s string, i int) int {
	t := l.class
	if s[i] == '\'' {
		if n := contraction(s[i+1:], true); n > 0 {
			return i + 1 + n
		}
	}
	c, n := classAt(t, s, i)
	switch {
	case c&isLetter != 0:
		return run(t, s, i+n, isLetter)
	case c&isNumber != 0:
		return numbers(t, s, i+n, l.digits-1)
	}
	if c&isNewline == 0 && i+n < len(s) {
		if c, m := classAt(t, s, i+n); c&isLetter != 0 {
			return run(t, s, i+n+m, isLetter)
		}
	}
	if c&isSpace == 0 {
		return newlines(s, run(t, s, i+n, 0))
	}
	if s[i] == ' ' && i+1 < len(s) {
		if c, n := classAt(t, s, i+1); c&kindMask == 0 {
			return newlines(s, run(t, s, i+1+n, 0))
		}
	}
	return blanks(t, s, i)
}

// numbers returns the end of up to most number characters at s[i].
func numbers(t *[classTableSize]uint8, s string, i, most int) int {
	for ; most > 0 && i < len(s); most-- {
		c, n := classAt(t, s, i)
		if c&isNumber == 0 {
			break
		}
		i += n
	}
	return i
}

// blanks matches \s*[\r\n]+|\s+(?!\S)|\s+ at s[i], which is white space.
func blanks(t *[classTableSize]uint8, s string, i int) int {
	end := run(t, s, i, isSpace)
	for k := end; k > i; k-- {
		if s[k-1] == '\n' || s[k-1] == '\r' {
			return k
		}
	}
	return spaces(t, s, i)
}

// newlines returns the end of the run of \r and \n at s[i].
func newlines(s string, i int) int {
	for i < len(s) && (s[i] == '\n' || s[i] == '\r') {
		i++
	}
	return i
}

// spaces matches \s+(?!\S)|\s+: the run of white space at s[i] without its last character, unless the text ends there
// or the run is only that character.
func spaces(t *[classTableSize]uint8, s string, i int) int {
	last, end := i, i
	for end < len(s) {
		c, n := classAt(t, s, end)
		if c&isSpace == 0 {
			if last > i {
				return last
			}
			return end
		}
		last, end = end, end+n
	}
	return end
}

// contraction returns the length of s, t, re, ve, m, ll or d at the start of s, or 0. With anyCase it also accepts S,
// T, … and U+017F, which folds to s.
func contraction(s string, anyCase bool) int {
	if s == "" {
		return 0
	}
	a, b := s[0], byte(0)
	if len(s) > 1 {
		b = s[1]
	}
	if anyCase {
		if a == 0xC5 && b == 0xBF {
			return 2
		}
		a, b = lower(a), lower(b)
	}
	switch a {
	case 's', 't', 'm', 'd':
		return 1
	case 'r', 'v':
		if b == 'e' {
			return 2
		}
	case 'l':
		if b == 'l' {
			return 2
		}
	}
	return 0
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}
