package jinja

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// jsonWriter writes values as Python's json.dumps does.
type jsonWriter struct {
	st       *state
	b        []byte
	charged  int
	ascii    bool
	indent   string
	pretty   bool
	itemSep  string
	keySep   string
	sortKeys bool
}

var tojsonSig = sig("tojson(*x, ensure_ascii, indent, separators, sort_keys)")

func tojson(st *state, b *[maxParams]Value) Value {
	w := &jsonWriter{st: st, itemSep: ", ", keySep: ": "}
	w.ascii = b[1] != nil && truthy(st, b[1])
	w.sortKeys = b[4] != nil && truthy(st, b[4])
	if _, none := b[2].(None); b[2] != nil && !none {
		w.pretty, w.itemSep = true, ","
		if s, ok := asStr(b[2]); ok {
			w.indent = s
		} else if n, ok := indexOf(b[2]); ok {
			w.indent = repeatString(st, " ", n)
		} else {
			if u, ok := b[2].(*undefined); ok {
				u.use()
			}
			raise("TypeError", "can't multiply sequence by non-int of type '%s'", b[2].typeName())
		}
	}
	if _, none := b[3].(None); b[3] != nil && !none {
		pair := drain(st, mustIter(b[3]))
		if len(pair) != 2 {
			raise("ValueError", "separators must be two strings, got %d", len(pair))
		}
		var ok1, ok2 bool
		w.itemSep, ok1 = asStr(pair[0])
		w.keySep, ok2 = asStr(pair[1])
		if !ok1 || !ok2 {
			raise("TypeError", "separators must be two strings")
		}
	}
	w.value(b[0], 0)
	w.grow(0)
	st.charge(len(w.b)) // the text, in addition to the buffer
	return Str(w.b)
}

// grow counts the bytes written since the last call, and n bytes that follow.
func (w *jsonWriter) grow(n int) {
	w.st.grow(w.charged, len(w.b)+n-w.charged)
	w.charged = len(w.b) + n
}

// put writes a text of any length.
func (w *jsonWriter) put(s string) {
	if len(s) > 256 {
		w.grow(len(s))
	}
	w.b = append(w.b, s...)
}

func (w *jsonWriter) value(v Value, depth int) {
	if depth > maxNest {
		raise("RecursionError", "values lie more than %d deep in each other", maxNest)
	}
	w.st.step(1)
	if len(w.b)-w.charged > 4096 {
		w.grow(0)
	}
	switch v := v.(type) {
	case Str:
		w.text(string(v))
	case markup:
		w.text(string(v))
	case None:
		w.b = append(w.b, "null"...)
	case Bool:
		w.b = strconv.AppendBool(w.b, bool(v))
	case Int:
		w.b = strconv.AppendInt(w.b, int64(v), 10)
	case bigInt:
		w.st.stepBig(v)
		w.put(bigString(v))
	case Float:
		w.b = append(w.b, jsonFloat(float64(v))...)
	case *List:
		w.list(v.Items, depth)
	case *Tuple:
		w.list(v.items, depth)
	case *Dict:
		w.dict(v, depth)
	default:
		raise("TypeError", "Object of type %s is not JSON serializable", v.typeName())
	}
}

func jsonFloat(f float64) string {
	switch {
	case f != f:
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatRepr(f)
}

func (w *jsonWriter) newline(depth int) {
	if w.pretty {
		w.grow(1 + depth*len(w.indent))
		w.b = append(w.b, '\n')
		for range depth {
			w.b = append(w.b, w.indent...)
		}
	}
}

func (w *jsonWriter) list(items []Value, depth int) {
	if len(items) == 0 {
		w.b = append(w.b, "[]"...)
		return
	}
	w.b = append(w.b, '[')
	for i, v := range items {
		if i > 0 {
			w.put(w.itemSep)
		}
		w.newline(depth + 1)
		w.value(v, depth+1)
	}
	w.newline(depth)
	w.b = append(w.b, ']')
}

func (w *jsonWriter) dict(d *Dict, depth int) {
	if d.Len() == 0 {
		w.b = append(w.b, "{}"...)
		return
	}
	w.st.charge(8 * d.Len())
	order := make([]int, d.Len())
	for i := range order {
		order[i] = i
	}
	if w.sortKeys {
		slices.SortStableFunc(order, func(i, j int) int {
			w.st.step(1)
			switch {
			case lessKey(w.st, d.keys[i], d.keys[j]):
				return -1
			case lessKey(w.st, d.keys[j], d.keys[i]):
				return 1
			}
			return 0
		})
	}
	w.b = append(w.b, '{')
	for n, i := range order {
		if n > 0 {
			w.put(w.itemSep)
		}
		w.newline(depth + 1)
		w.key(d.keys[i])
		w.put(w.keySep)
		w.value(d.vals[i], depth+1)
	}
	w.newline(depth)
	w.b = append(w.b, '}')
}

// lessKey evaluates a < b.
func lessKey(st *state, a, b Value) bool { return order(st, "<", a, b) }

func (w *jsonWriter) key(k Value) {
	switch k := k.(type) {
	case Str:
		w.text(string(k))
	case markup:
		w.text(string(k))
	case Float:
		w.text(jsonFloat(float64(k)))
	case Bool:
		w.text(strconv.FormatBool(bool(k)))
	case None:
		w.text("null")
	case Int, bigInt:
		w.text(str(w.st, k))
	default:
		raise("TypeError", "keys must be str, int, float, bool or None, not %s", k.typeName())
	}
}

func (w *jsonWriter) text(s string) {
	w.st.scan(2 * len(s))
	w.grow(len(s) + 2)
	w.b = append(w.b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && (c < 0x7f || !w.ascii) {
			i++
			continue
		}
		if len(w.b)+len(s)-start+16 > w.charged { // escapes are longer than the characters that they represent
			w.grow(len(s) - start + 4096)
		}
		w.st.step(1)
		w.b = append(w.b, s[start:i]...)
		n := 1
		switch c {
		case '"', '\\':
			w.b = append(w.b, '\\', c)
		case '\n':
			w.b = append(w.b, `\n`...)
		case '\r':
			w.b = append(w.b, `\r`...)
		case '\t':
			w.b = append(w.b, `\t`...)
		case '\b':
			w.b = append(w.b, `\b`...)
		case '\f':
			w.b = append(w.b, `\f`...)
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			n = size
			if r >= 0x10000 {
				w.b = fmt.Appendf(w.b, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
			} else {
				w.b = fmt.Appendf(w.b, `\u%04x`, r)
			}
		}
		i += n
		start = i
	}
	w.b = append(append(w.b, s[start:]...), '"')
}
