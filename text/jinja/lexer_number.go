package jinja

import (
	"math/big"
	"strconv"
	"strings"
)

func (l *lexer) numberToken(s string) bool {
	if s[0] < '0' || s[0] > '9' {
		return false
	}
	if l.pos == 0 || l.src[l.pos-1] != '.' {
		if n := floatAt(s); n > 0 {
			f, err := strconv.ParseFloat(strings.ReplaceAll(s[:n], "_", ""), 64)
			if err != nil && f == 0 {
				fail(l.line, "%s is not a number", s[:n])
			}
			l.number(s[:n], Float(f))
			return true
		}
	}
	n, base := integerAt(s)
	digits := strings.ReplaceAll(s[:n], "_", "")
	if base != 10 {
		digits = digits[2:]
	}
	if base == 10 && len(digits) > maxIntDigits {
		fail(l.line, "Exceeds the limit (%d digits) for integer string conversion", maxIntDigits)
	}
	v, ok := new(big.Int).SetString(digits, base)
	if !ok || v.BitLen() > maxBits {
		fail(l.line, "%.40s is not an integer that a template may hold", s[:n])
	}
	l.number(s[:n], norm(v))
	return true
}

func (l *lexer) number(text string, v Value) {
	l.add("number", text)
	l.tokens[len(l.tokens)-1].value = v
	l.pos += len(text)
}

// digitsAt returns the length of digits that single underscores may separate.
func digitsAt(s string, is func(c byte) bool) int {
	n := 0
	for n < len(s) && (is(s[n]) || s[n] == '_' && n > 0 && s[n-1] != '_' && n+1 < len(s) && is(s[n+1])) {
		n++
	}
	return n
}

func isDecimal(c byte) bool { return c >= '0' && c <= '9' }

// floatAt returns the length of a float: digits with a fraction, an exponent, or both.
func floatAt(s string) int {
	n := digitsAt(s, isDecimal)
	found := false
	if n < len(s) && s[n] == '.' {
		if m := digitsAt(s[n+1:], isDecimal); m > 0 {
			n += 1 + m
			found = true
		}
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		m := n + 1
		if m < len(s) && (s[m] == '+' || s[m] == '-') {
			m++
		}
		if d := digitsAt(s[m:], isDecimal); d > 0 {
			return m + d
		}
	}
	if found {
		return n
	}
	return 0
}

// integerAt returns the length and base of the integer that s begins with.
func integerAt(s string) (n, base int) {
	if s[0] != '0' {
		return digitsAt(s, isDecimal), 10
	}
	if len(s) > 1 {
		is, base := func(byte) bool { return false }, 10
		switch s[1] | 0x20 {
		case 'b':
			is, base = func(c byte) bool { return c == '0' || c == '1' }, 2
		case 'o':
			is, base = func(c byte) bool { return c >= '0' && c <= '7' }, 8
		case 'x':
			is, base = func(c byte) bool { return isDecimal(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }, 16
		}
		rest := s[2:]
		under := strings.HasPrefix(rest, "_")
		if under {
			rest = rest[1:]
		}
		if n := digitsAt(rest, is); n > 0 {
			return 2 + int(boolInt(under)) + n, base
		}
	}
	return digitsAt(s, func(c byte) bool { return c == '0' }), 10
}
