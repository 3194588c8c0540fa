package jinja

import (
	"strings"
)

// formatString is str.format with the sandbox's rules for attributes.
func formatString(st *state, self Value, a args) string {
	f := &formatter{st: st, pos: a.pos, auto: 0}
	_, f.safe = self.(markup)
	f.named = func(name string) Value {
		st.step(len(a.kw))
		for _, k := range a.kw {
			if k.name == name {
				return k.v
			}
		}
		return nil
	}
	return f.run(text(self), 2)
}

// formatMap is str.format_map.
func formatMap(st *state, self Value, a args) Value {
	if len(a.kw) > 0 {
		raise("TypeError", "format_map() takes no keyword arguments")
	}
	if len(a.pos) != 1 {
		raise("TypeError", "format_map() takes exactly one argument (%d given)", len(a.pos))
	}
	f := &formatter{st: st}
	_, f.safe = self.(markup)
	m := a.pos[0]
	f.named = func(name string) Value {
		if _, isDict := m.(*Dict); !isDict {
			if u, ok := m.(*undefined); ok {
				u.use()
			}
			raise("TypeError", "'%s' object is not a mapping", m.typeName())
		}
		return item(st, m, Str(name))
	}
	return like(self, f.run(text(self), 2))
}

type formatter struct {
	st    *state
	pos   []Value
	named func(name string) Value
	auto  int // the next {}; -1 once a number was given
	safe  bool
}

// run replaces the fields of s; levels is how deep fields may lie in format specifications.
func (f *formatter) run(s string, levels int) string {
	if levels < 0 {
		raise("ValueError", "Max string recursion exceeded")
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c != '{' && c != '}':
			n := strings.IndexAny(s[i:], "{}")
			if n < 0 {
				n = len(s) - i
			}
			f.st.grow(b.Len(), n)
			b.WriteString(s[i : i+n])
			i += n
		case i+1 < len(s) && s[i+1] == c:
			b.WriteByte(c)
			i += 2
		case c == '}':
			raise("ValueError", "Single '}' encountered in format string")
		default:
			n := fieldEnd(s[i+1:])
			f.st.step(n)
			field := f.field(s[i+1:i+1+n], levels)
			f.st.grow(b.Len(), len(field))
			b.WriteString(field)
			i += n + 2
		}
		f.st.step(1)
	}
	return b.String()
}

// fieldEnd is where the field that s begins with ends: at the } that belongs to it.
func fieldEnd(s string) int {
	if s == "" {
		raise("ValueError", "Single '{' encountered in format string")
	}
	depth, bracket := 1, false
	for i := range len(s) {
		switch c := s[i]; {
		case bracket:
			bracket = c != ']'
		case c == '[':
			bracket = true
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	raise("ValueError", "expected '}' before end of string")
	return 0
}

func (f *formatter) field(s string, levels int) string {
	name, spec, conversion := s, "", byte(0)
	bracket := false
	for i := range len(s) {
		c := s[i]
		if bracket {
			bracket = c != ']'
			continue
		}
		if c == '[' {
			bracket = true
		}
		if c == '{' {
			raise("ValueError", "unexpected '{' in field name")
		}
		if c != '!' && c != ':' {
			continue
		}
		name = s[:i]
		rest := s[i+1:]
		if c == '!' {
			if rest == "" || len(rest) > 1 && rest[1] != ':' {
				raise("ValueError", "expected ':' after conversion specifier")
			}
			conversion = rest[0]
			if len(rest) > 1 {
				spec = rest[2:]
			}
		} else {
			spec = rest
		}
		break
	}
	v := f.value(name)
	switch conversion {
	case 0:
	case 's':
		v = Str(str(f.st, v))
	case 'r':
		v = Str(repr(f.st, v))
	case 'a':
		v = Str(asciiRepr(f.st, repr(f.st, v)))
	default:
		raise("ValueError", "Unknown conversion specifier %c", conversion)
	}
	spec = f.run(spec, levels-1)
	if !f.safe {
		return format(f.st, v, spec)
	}
	if m, ok := v.(markup); ok {
		if spec != "" {
			raise("ValueError", "Unsupported format specification for Markup.")
		}
		return string(m)
	}
	return escapeHTML(f.st, format(f.st, v, spec))
}

// value looks a field up: a number, a name or nothing, then .attributes and [items].
func (f *formatter) value(name string) Value {
	first := name
	if i := strings.IndexAny(name, ".["); i >= 0 {
		first = name[:i]
	}
	rest := name[len(first):]
	v := f.first(first)
	for rest != "" {
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[")
			if end < 0 {
				end = len(rest) - 1
			}
			attr := rest[1 : 1+end]
			if attr == "" {
				raise("ValueError", "Empty attribute in format string")
			}
			v, rest = getattr(f.st, v, attr), rest[1+end:]
			continue
		}
		if rest[0] != '[' {
			raise("ValueError", "Only '.' or '[' may follow ']' in format field specifier")
		}
		end := strings.IndexByte(rest, ']')
		if end < 0 {
			raise("ValueError", "Missing ']' in format string")
		}
		key := rest[1:end]
		if key == "" {
			raise("ValueError", "Empty attribute in format string")
		}
		v, rest = getitem(f.st, v, keyOf(key)), rest[end+1:]
	}
	return v
}

func isNumeral(s string) bool {
	for i := range len(s) {
		if !isDecimal(s[i]) {
			return false
		}
	}
	return s != "" && len(s) < 18
}

func keyOf(s string) Value {
	if isNumeral(s) {
		return Int(atoi(s))
	}
	return Str(s)
}

func atoi(s string) int64 {
	n := int64(0)
	for i := range len(s) {
		n = n*10 + int64(s[i]-'0')
	}
	return n
}

func (f *formatter) first(name string) Value {
	if name != "" && !isNumeral(name) {
		v := f.named(name)
		if v == nil {
			raise("KeyError", "%s", quote(name))
		}
		return v
	}
	var i int64
	if name == "" {
		if f.auto < 0 {
			raise("ValueError", "cannot switch from manual field specification to automatic field numbering")
		}
		i = int64(f.auto)
		f.auto++
	} else {
		if f.auto > 0 {
			raise("ValueError", "cannot switch from automatic field numbering to manual field specification")
		}
		f.auto = -1
		i = atoi(name)
	}
	if i >= int64(len(f.pos)) {
		raise("IndexError", "Replacement index %d out of range for positional args tuple", i)
	}
	return f.pos[i]
}
