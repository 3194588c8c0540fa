package tokenizer

// casedWords is patternO200k, with up to three digits and English contractions at the end of a word, or patternTekken,
// with one digit and without contractions. A word's capitals come before its small letters; letters without case and
// marks may be in both parts.
type casedWords struct {
	class        *[classTableSize]uint8
	digits       int
	contractions bool
}

func (w casedWords) next(s string, i int) int {
	t := w.class
	c, n := classAt(t, s, i)
	switch {
	case c&isLetter != 0:
		end, _ := w.word(s, i)
		return w.ending(s, end)
	case c&isNumber != 0:
		return numbers(t, s, i+n, w.digits-1)
	}
	if c&isNewline == 0 {
		// One other character may precede a word. A word with small letters takes precedence over one without, wherever
		// it begins.
		end, small := w.word(s, i+n)
		if !small && c&isSmall != 0 {
			end, _ = w.word(s, i)
		}
		if end > i+n || end > i && c&isSmall != 0 {
			return w.ending(s, end)
		}
	}
	if c&isSpace == 0 {
		return slashes(s, run(t, s, i+n, 0))
	}
	if s[i] == ' ' && i+1 < len(s) {
		if c, n := classAt(t, s, i+1); c&kindMask == 0 {
			return slashes(s, run(t, s, i+1+n, 0))
		}
	}
	return blanks(t, s, i)
}

// word returns the end of the word at s[i], i for none, and whether it has small letters. A run of capitals without a
// following small letter ends after the last character that may be small, if there is one.
func (w casedWords) word(s string, i int) (end int, small bool) {
	t, last := w.class, -1
	for end = i; end < len(s); {
		c, n := classAt(t, s, end)
		if c&isCapital == 0 {
			if c&isSmall == 0 {
				break
			}
			for end += n; end < len(s); end += n {
				if c, n = classAt(t, s, end); c&isSmall == 0 {
					break
				}
			}
			return end, true
		}
		end += n
		if c&isSmall != 0 {
			last = end
		}
	}
	if last >= 0 {
		return last, true
	}
	return end, false
}

// ending returns end, or the end of a contraction that begins there.
func (w casedWords) ending(s string, end int) int {
	if w.contractions && end < len(s) && s[end] == '\'' {
		if n := contraction(s[end+1:], true); n > 0 {
			return end + 1 + n
		}
	}
	return end
}

// slashes returns the end of the run of \r, \n and / at s[i].
func slashes(s string, i int) int {
	for i < len(s) && (s[i] == '\n' || s[i] == '\r' || s[i] == '/') {
		i++
	}
	return i
}
