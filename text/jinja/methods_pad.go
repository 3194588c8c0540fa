package jinja

import (
	"strings"
	"unicode/utf8"
)

// pad fills s up to a width: at its end, its start, or both.
func pad(st *state, fn string, v Value, b *[maxParams]Value, where int) Value {
	width := needInt(fn, b[0])
	fill := " "
	if b[1] != nil {
		fill = needStr(fn, b[1])
		if utf8.RuneCountInString(fill) != 1 {
			raise("TypeError", "The fill character must be exactly one character long")
		}
		if _, safe := v.(markup); safe {
			if fill = text(escapeValue(st, b[1])); utf8.RuneCountInString(fill) != 1 {
				raise("TypeError", "The fill character must be exactly one character long")
			}
		}
	}
	s := text(v)
	n := width - int64(utf8.RuneCountInString(s))
	if n <= 0 {
		return v
	}
	left, right := int64(0), n
	switch where {
	case 1:
		left, right = n, 0
	case 2:
		left = n/2 + n&width&1
		right = n - left
	}
	st.charge(len(s))
	return like(v, repeatString(st, fill, left)+s+repeatString(st, fill, right))
}

func zfill(st *state, v Value, b *[maxParams]Value) Value {
	s := text(v)
	n := needInt("zfill", b[0]) - int64(utf8.RuneCountInString(s))
	if n <= 0 {
		return v
	}
	st.charge(len(s))
	zeros := repeatString(st, "0", n)
	if s != "" && (s[0] == '+' || s[0] == '-') {
		return like(v, s[:1]+zeros+s[1:])
	}
	return like(v, zeros+s)
}

func expandTabs(st *state, v Value, b *[maxParams]Value) Value {
	size := int64(8)
	if b[0] != nil {
		size = needShort("expandtabs", b[0])
	}
	st.step(len(text(v)))
	st.charge(2 * len(text(v)))
	var out strings.Builder
	column := int64(0)
	for _, r := range text(v) {
		switch {
		case r == '\t':
			if size > 0 {
				n := size - column%size
				st.grow(out.Len(), int(n))
				out.WriteString(repeatString(st, " ", n))
				column += n
			}
			continue
		case r == '\n' || r == '\r':
			column = 0
		default:
			column++
		}
		out.WriteRune(r)
	}
	return like(v, out.String())
}
