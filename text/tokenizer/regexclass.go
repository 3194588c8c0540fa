package tokenizer

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// escaped parses an escape that represents a set of code points.
func (p *regexParser) escaped() (runeSet, error) {
	r, err := p.rune()
	if err != nil {
		return nil, err
	}
	single := map[rune]rune{'n': '\n', 'r': '\r', 't': '\t', 'f': '\f', 'v': '\v', 'a': '\a', 'e': 0x1B}
	if set, ok := shorthands[r]; ok {
		return set(), nil
	}
	if set, ok := shorthands[unicode.ToLower(r)]; ok {
		return set().not(), nil
	}
	switch r {
	case 'p', 'P':
		end := strings.IndexByte(p.s[p.i:], '}')
		if !p.take("{") || end < 0 {
			return nil, p.wrong("\\%c without {name}", r)
		}
		name := p.s[p.i : p.i+end-1]
		p.i += end
		s, err := property(name)
		if err != nil {
			return nil, p.wrong("%v", err)
		}
		if r == 'P' {
			s = s.not()
		}
		return s, nil
	case 'x', 'u':
		c, err := p.hex(r)
		return runeSet{{c, c}}, err
	case '0':
		return runeSet{{0, 0}}, nil
	}
	if c, ok := single[r]; ok {
		return runeSet{{c, c}}, nil
	}
	if r < utf8.RuneSelf && (r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
		return nil, p.wrong("\\%c cannot be run", r)
	}
	return runeSet{{r, r}}, nil
}

// hex parses the digits of \xHH, \x{H...} or \uHHHH.
func (p *regexParser) hex(kind rune) (rune, error) {
	digits, after := "", 0
	if end := strings.IndexByte(p.s[p.i:], '}'); kind == 'x' && p.peek("{") && end > 0 {
		digits, after = p.s[p.i+1:p.i+end], p.i+end+1
	} else {
		n := 2
		if kind == 'u' {
			n = 4
		}
		digits = p.s[p.i:min(p.i+n, len(p.s))]
		after = p.i + len(digits)
	}
	c, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || c > maxRune || kind == 'x' && after == p.i+2 && c >= utf8.RuneSelf {
		return 0, p.wrong("\\%c%s is no code point", kind, digits)
	}
	p.i = after
	return rune(c), nil
}

// class parses the text after an opening square bracket: the code points, and whether the class is negated.
func (p *regexParser) class() (set runeSet, negated bool, err error) {
	if p.depth++; p.depth > maxRegexDepth {
		return nil, false, p.wrong("classes lie too deep")
	}
	defer func() { p.depth-- }()
	negated = p.take("^")
	var all, part runeSet
	intersected := false
	finish := func() {
		part = part.tidy()
		if intersected {
			part = all.and(part)
		}
	}
	for first := true; ; first = false {
		switch {
		case p.i >= len(p.s):
			return nil, false, p.wrong("a class does not end")
		case p.peek("]") && !(first && strings.Contains(p.s[p.i+1:], "]")):
			p.i++
			finish()
			return part, negated, nil
		case p.take("&&"):
			finish()
			all, part, intersected = part, nil, true
			continue
		}
		s, single, err := p.member()
		if err != nil {
			return nil, false, err
		}
		if single && p.peek("-") && !p.peek("-]") && !p.peek("-&&") {
			at := p.i
			p.i++
			to, one, err := p.member()
			if err != nil {
				return nil, false, err
			}
			if !one { // a literal -
				p.i = at
			} else if to[0][0] < s[0][0] {
				return nil, false, p.wrong("a range that ends before it begins")
			} else {
				s = runeSet{{s[0][0], to[0][0]}}
			}
		}
		part = append(part, s...)
	}
}

// member parses one part of a class; single reports that it is one character, which may begin a range.
func (p *regexParser) member() (s runeSet, single bool, err error) {
	switch {
	case p.peek("[:") && strings.Contains(p.s[p.i:], ":]"):
		end := strings.Index(p.s[p.i:], ":]")
		name, negated := strings.CutPrefix(p.s[p.i+2:p.i+end], "^")
		set, ok := posixSets[name]
		if !ok {
			return nil, false, p.wrong("unknown class [:%s:]", name)
		}
		p.i += end + 2
		s := set()
		if negated {
			s = s.not()
		}
		return s, false, nil
	case p.take("["):
		var negated bool
		if s, negated, err = p.class(); negated {
			s = s.not()
		}
		return s, false, err
	case p.take(`\`):
		switch {
		case p.take("b"):
			return runeSet{{'\b', '\b'}}, true, nil
		case p.take("w"): // differs from \w outside a class
			return posixWord(), false, nil
		case p.take("W"):
			return posixWord().not(), false, nil
		}
		s, err = p.escaped()
		return s, err == nil && len(s) == 1 && s[0][0] == s[0][1], err
	}
	r, err := p.rune()
	return runeSet{{r, r}}, true, err
}
