package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxNest is the largest depth of nested values that are printed, compared or written as JSON.
const maxNest = 900

// str evaluates Python's str(v).
func str(st *state, v Value) string {
	switch v := v.(type) {
	case Str:
		return string(v)
	case markup:
		return string(v)
	case Int:
		return strconv.FormatInt(int64(v), 10)
	case *undefined:
		return ""
	}
	var w reprWriter
	w.st = st
	w.value(v, 0)
	w.grow(0)
	return w.String()
}

// repr evaluates Python's repr(v).
func repr(st *state, v Value) string {
	w := reprWriter{st: st}
	w.value(v, 0)
	w.grow(0)
	return w.String()
}

// safeRepr returns repr for messages, or a short description if repr would raise or be long.
func safeRepr(v Value) (s string) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(*raised); !ok {
				panic(r)
			}
			s = "<" + v.typeName() + ">"
		}
	}()
	st := &state{limits: Limits{Steps: 1 << 16, Memory: 1 << 16}.withDefaults()}
	return repr(st, v)
}

type reprWriter struct {
	st *state
	strings.Builder
	charged int
}

// grow counts the bytes written since the last call, and n bytes that follow.
func (w *reprWriter) grow(n int) {
	w.st.grow(w.charged, w.Len()+n-w.charged)
	w.charged = w.Len() + n
}

// quoted writes a str as Python's repr does.
func (w *reprWriter) quoted(s string) {
	w.st.step(len(s))
	n := quotedLen(s)
	w.grow(2 * n) // once as a separate text, once here
	w.WriteString(quote(s))
}

func (w *reprWriter) value(v Value, depth int) {
	if depth > maxNest {
		raise("RecursionError", "values lie more than %d deep in each other", maxNest)
	}
	w.st.step(1)
	if w.Len()-w.charged > 4096 {
		w.grow(0)
	}
	switch v := v.(type) {
	case None:
		w.WriteString("None")
	case Bool:
		w.WriteString(map[bool]string{true: "True", false: "False"}[bool(v)])
	case Int:
		w.WriteString(strconv.FormatInt(int64(v), 10))
	case bigInt:
		w.st.stepBig(v)
		w.WriteString(bigString(v))
	case Float:
		w.WriteString(floatRepr(float64(v)))
	case Str:
		w.quoted(string(v))
	case markup:
		w.WriteString("Markup(")
		w.quoted(string(v))
		w.WriteByte(')')
	case *undefined:
		w.WriteString("Undefined")
	case *List:
		w.items('[', v.Items, ']', depth)
	case *Tuple:
		w.tuple(v.items, depth)
	case *Dict:
		w.dict(v, depth)
	case *dictView:
		w.WriteString(v.kind + "(")
		w.items('[', v.list(w.st), ']', depth)
		w.WriteByte(')')
	case *namespace:
		w.WriteString("<Namespace ")
		w.dict(v.attrs, depth)
		w.WriteByte('>')
	case *rangeObj:
		fmt.Fprintf(w, "range(%d, %d", v.start, v.stop)
		if v.step != 1 {
			fmt.Fprintf(w, ", %d", v.step)
		}
		w.WriteByte(')')
	case *macro:
		w.WriteString("<Macro " + v.reprName() + ">")
	case *loopContext:
		fmt.Fprintf(w, "<LoopContext %d/%d>", v.index0+1, v.len(w.st))
	case *function:
		if v.kind != "type" {
			raise("TypeError", "%s is a function: its text would be an address in memory; call it with ()", v.name)
		}
		w.WriteString("<class '" + v.name + "'>")
	case *iterator:
		raise("TypeError", "a %s is printed, whose text would be an address in memory; add |list", v.kind)
	default:
		raise("TypeError", "a %s is printed, whose text would be an address in memory", v.typeName())
	}
}

func (w *reprWriter) items(open byte, items []Value, end byte, depth int) {
	w.WriteByte(open)
	for i, v := range items {
		if i > 0 {
			w.WriteString(", ")
		}
		w.value(v, depth+1)
	}
	w.WriteByte(end)
}

func (w *reprWriter) tuple(items []Value, depth int) {
	if len(items) != 1 {
		w.items('(', items, ')', depth)
		return
	}
	w.WriteByte('(')
	w.value(items[0], depth+1)
	w.WriteString(",)")
}

func (w *reprWriter) dict(d *Dict, depth int) {
	w.WriteByte('{')
	for i, k := range d.keys {
		if i > 0 {
			w.WriteString(", ")
		}
		w.value(k, depth+1)
		w.WriteString(": ")
		w.value(d.vals[i], depth+1)
	}
	w.WriteByte('}')
}

// quotedLen returns an upper bound of the length of quote(s), close to it.
func quotedLen(s string) int {
	n := len(s) + 2
	for _, r := range s {
		switch {
		case r == '\'' || r == '\\':
			n++
		case r < ' ' || r == 0x7f:
			n += 3
		case r >= utf8.RuneSelf && !unicode.IsPrint(r):
			n += 10
		}
	}
	return n
}

// quote evaluates Python's repr of a str.
func quote(s string) string {
	q := byte('\'')
	if strings.IndexByte(s, '\'') >= 0 && strings.IndexByte(s, '"') < 0 {
		q = '"'
	}
	b := make([]byte, 0, len(s)+2)
	b = append(b, q)
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			i++
			switch {
			case c == q || c == '\\':
				b = append(b, '\\', c)
			case c == '\n':
				b = append(b, `\n`...)
			case c == '\r':
				b = append(b, `\r`...)
			case c == '\t':
				b = append(b, `\t`...)
			case c < ' ' || c == 0x7f:
				b = fmt.Appendf(b, `\x%02x`, c)
			default:
				b = append(b, c)
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case unicode.IsPrint(r):
			b = append(b, s[i:i+n]...)
		case r < 0x100:
			b = fmt.Appendf(b, `\x%02x`, r)
		case r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = fmt.Appendf(b, `\U%08x`, r)
		}
		i += n
	}
	return string(append(b, q))
}

// floatRepr evaluates Python's repr of a float: the shortest digits that read back, an exponent below 1e-4 and from
// 1e16.
func floatRepr(f float64) string {
	switch {
	case f != f:
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	if e, _ := strconv.Atoi(exponent); e < -4 || e >= 16 {
		return mantissa + "e" + exponent
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if strings.IndexByte(s, '.') < 0 {
		s += ".0"
	}
	return s
}
