package jinja

import (
	"html"
	"strings"
	"unicode"
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

// looked counts a look at every code point of s.
func looked(st *state, s string) string {
	st.step(len(s))
	return s
}

// changed is s with other letters, whose work and length it counts: a letter can become three, and where not all
// are ASCII, each word may be looked up on its own.
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

// escapeValue is v as safe HTML.
func escapeValue(st *state, v Value) Value {
	if m, ok := v.(markup); ok {
		return m
	}
	return markup(escapeHTML(st, str(st, v)))
}

// titleWords is the filter title: words begin after space, a hyphen or an opening bracket.
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

// stripTags takes SGML tags and comments out, makes runs of space one space, and reads entities.
func stripTags(st *state, s string) string {
	st.step(len(s))
	st.charge(3 * len(s))
	st.charge(2 * valueSize * countFields(s))
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '<')
		if i < 0 {
			break
		}
		end := 0
		if strings.HasPrefix(s[i:], "<!--") {
			n := strings.Index(s[i+4:], "-->")
			if n < 0 {
				break
			}
			end = i + 4 + n + 3
		} else {
			n := strings.IndexByte(s[i:], '>')
			if n < 0 {
				break
			}
			end = i + n + 1
		}
		b.WriteString(s[:i])
		s = s[end:]
	}
	b.WriteString(s)
	return html.UnescapeString(strings.Join(splitLeft(b.String(), "", -1), " "))
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
		binary(st, '+', b[0], Str("\n")) // raises what Python does
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

func filterTruncate(st *state, b *[maxParams]Value) Value {
	size, end, leeway := Value(Int(255)), "...", Value(Int(5))
	if b[1] != nil {
		size = b[1]
	}
	if b[3] != nil {
		end = needStr("truncate", b[3])
	}
	if _, none := b[4].(None); b[4] != nil && !none {
		leeway = b[4]
	}
	n := Int(utf8.RuneCountInString(end))
	if !order(st, ">=", size, n) {
		raise("AssertionError", "expected length >= %d, got %s", n, str(st, size))
	}
	if !order(st, ">=", leeway, Int(0)) {
		raise("AssertionError", "expected leeway >= 0, got %s", str(st, leeway))
	}
	have, ok := length(st, b[0])
	if !ok {
		raise("TypeError", "object of type '%s' has no len()", b[0].typeName())
	}
	if order(st, "<=", Int(have), binary(st, '+', size, leeway)) {
		return b[0]
	}
	s, ok := asStr(b[0])
	if !ok {
		raise("TypeError", "truncate wants a str, not %s", b[0].typeName())
	}
	s = sliceString(st, s, [3]Value{1: binary(st, '-', size, n)})
	if b[2] == nil || !truthy(st, b[2]) {
		if i := strings.LastIndexByte(s, ' '); i >= 0 {
			s = s[:i]
		}
	}
	st.charge(len(s) + len(end))
	return like(b[0], s+end)
}

func countWords(s string) int {
	n, inside := 0, false
	for _, r := range s {
		word := isAlpha(r) || isNumeric(r) || r == '_'
		if word && !inside {
			n++
		}
		inside = word
	}
	return n
}

func urlQuote(st *state, v Value, safe string) string {
	s := str(st, v)
	st.step(2 * len(s))
	st.charge(3 * len(s))
	safe = "_.-~" + safe
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case c < utf8.RuneSelf && (unicode.IsLetter(rune(c)) || isDecimal(c)) || strings.IndexByte(safe, c) >= 0:
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

func filterURLEncode(st *state, b *[maxParams]Value) Value {
	v := b[0]
	if d, ok := v.(*Dict); ok {
		v = &dictView{d, "dict_items"}
	}
	if _, isStr := asStr(v); isStr || iterOf(v) == nil {
		return Str(urlQuote(st, v, "/"))
	}
	var parts []string
	for next := mustIter(v); ; {
		pair := next(st)
		if pair == nil {
			return Str(join(st, parts, "&"))
		}
		st.use(itemSize)
		kv := &Tuple{make([]Value, 2)}
		tupleTarget{itemTarget{kv, 0}, itemTarget{kv, 1}}.assign(&frame{st: st}, pair)
		for i, v := range kv.items {
			st.use(itemSize)
			kv.items[i] = Str(strings.ReplaceAll(urlQuote(st, v, ""), "%20", "+"))
		}
		st.charge(len(text(kv.items[0])) + len(text(kv.items[1])))
		parts = append(parts, text(kv.items[0])+"="+text(kv.items[1]))
	}
}

// itemTarget unpacks into a tuple.
type itemTarget struct {
	to *Tuple
	i  int
}

func (t itemTarget) assign(_ *frame, v Value) { t.to.items[t.i] = v }

func filterXMLAttr(st *state, b *[maxParams]Value) Value {
	d, ok := b[0].(*Dict)
	if !ok {
		if u, ok := b[0].(*undefined); ok {
			u.use()
		}
		raise("AttributeError", "'%s' object has no attribute 'items'", b[0].typeName())
	}
	var parts []string
	for i, k := range d.keys {
		st.use(itemSize)
		v := d.vals[i]
		if _, none := v.(None); none || isUndefined(v) {
			continue
		}
		key, ok := asStr(k)
		if !ok {
			raise("TypeError", "expected string or bytes-like object, got '%s'", k.typeName())
		}
		st.step(len(key))
		if strings.ContainsAny(key, " \t\n\r\f\v/>=") {
			raise("ValueError", "Invalid character in attribute name: %s", quote(key))
		}
		name, value := text(escapeValue(st, k)), text(escapeValue(st, v))
		st.charge(len(name) + len(value))
		parts = append(parts, name+`="`+value+`"`)
	}
	s := join(st, parts, " ")
	if s != "" && (b[1] == nil || truthy(st, b[1])) {
		s = " " + s
	}
	return Str(s)
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
