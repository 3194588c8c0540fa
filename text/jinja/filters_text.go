package jinja

import (
	"strings"
	"unicode/utf8"
)

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

func escapeHTML(st *state, s string) string {
	st.scan(8 * len(s))
	n := len(s)
	for i := range len(s) {
		if strings.IndexByte("&<>'\"", s[i]) >= 0 {
			n += len("&amp;") - 1
		}
	}
	st.charge(n)
	return escaper.Replace(s)
}

// looked counts the work of reading every code point of s.
func looked(st *state, s string) string {
	st.step(len(s))
	return s
}

// changed returns change(s) and counts its work and length. A letter can become three, and in a text that is not ASCII
// each word may be looked up separately.
func changed(st *state, s string, change func(string) string) string {
	if isASCII(s) {
		st.step(len(s))
		st.charge(2 * len(s))
	} else {
		st.step(16 * len(s))
		st.charge(4 * len(s))
	}
	return change(s)
}

// escapeValue returns v as safe HTML.
func escapeValue(st *state, v Value) Value {
	if m, ok := v.(markup); ok {
		return m
	}
	return markup(escapeHTML(st, str(st, v)))
}

// titleWords implements the filter title: words begin after space, a hyphen or an opening bracket.
func titleWords(s string) string {
	var b strings.Builder
	opens := func(r rune) bool { return isSpace(r) || strings.ContainsRune("-({[<", r) }
	for s != "" {
		n := strings.IndexFunc(s, opens)
		if n < 0 {
			n = len(s)
		}
		if n > 0 {
			_, first := utf8.DecodeRuneInString(s)
			b.WriteString(upper(s[:first]) + lower(s[first:n]))
		}
		m := strings.IndexFunc(s[n:], func(r rune) bool { return !opens(r) })
		if m < 0 {
			m = len(s) - n
		}
		b.WriteString(s[n : n+m])
		s = s[n+m:]
	}
	return b.String()
}

func filterIndent(st *state, b *[maxParams]Value) Value {
	width := "    "
	if b[1] != nil {
		if s, ok := asStr(b[1]); ok {
			width = s
		} else {
			n, ok := indexOf(b[1])
			if !ok {
				raise("TypeError", "can't multiply sequence by non-int of type '%s'", b[1].typeName())
			}
			width = repeatString(st, " ", n)
		}
	}
	s, ok := asStr(b[0])
	if !ok {
		binary(st, '+', b[0], Str("\n")) // raises Python's error
	}
	first := b[2] != nil && truthy(st, b[2])
	blank := b[3] != nil && truthy(st, b[3])
	lines := splitLines(st, s+"\n", false)
	st.charge(len(s) + product(len(lines), int64(len(width))+1))
	var out strings.Builder
	for i, line := range lines {
		if i > 0 {
			out.WriteByte('\n')
			if blank || line != "" {
				out.WriteString(width)
			}
		} else if first {
			out.WriteString(width)
		}
		out.WriteString(line)
	}
	return like(b[0], out.String())
}

func filterJoin(st *state, b *[maxParams]Value) Value {
	sep := ""
	if b[1] != nil {
		sep = str(st, b[1])
	}
	get := func(_ *state, v Value) Value { return v }
	if _, none := b[2].(None); b[2] != nil && !none {
		get = attrGetter(st, b[2], false, nil)
	}
	var parts []string
	for next := mustIter(b[0]); ; {
		v := next(st)
		if v == nil {
			return Str(join(st, parts, sep))
		}
		st.use(itemSize)
		parts = append(parts, str(st, get(st, v)))
	}
}
