package jinja

import (
	"math"
	"math/big"
	"strings"
	"unicode/utf8"
)

// percent is Python's s % v.
func percent(st *state, self Value, s string, v Value) Value {
	p := &percentFormat{st: st, s: s, arg: v, safe: false}
	_, p.safe = self.(markup)
	if all, ok := asTuple(v); ok {
		p.tuple, p.isTuple = all, true
	}
	switch v.(type) {
	case *Dict, *List, *rangeObj, *undefined:
		p.mapping = v
	}
	out := p.run()
	return like(self, out)
}

type percentFormat struct {
	st      *state
	s       string
	pos     int
	arg     Value
	tuple   []Value
	isTuple bool
	mapping Value // what %(name)s looks names up in
	used    int
	safe    bool
	out     strings.Builder
}

func (p *percentFormat) run() string {
	for {
		i := strings.IndexByte(p.s[p.pos:], '%')
		if i < 0 {
			p.write(p.s[p.pos:])
			break
		}
		p.write(p.s[p.pos : p.pos+i])
		p.pos += i + 1
		p.one()
	}
	if p.isTuple && p.used < len(p.tuple) || !p.isTuple && p.used == 0 && p.mapping == nil {
		raise("TypeError", "not all arguments converted during string formatting")
	}
	return p.out.String()
}

func (p *percentFormat) write(s string) {
	p.st.grow(p.out.Len(), len(s))
	p.out.WriteString(s)
}

func (p *percentFormat) peek() byte {
	if p.pos >= len(p.s) {
		raise("ValueError", "incomplete format")
	}
	return p.s[p.pos]
}

func (p *percentFormat) next() Value {
	if p.isTuple {
		if p.used >= len(p.tuple) {
			raise("TypeError", "not enough arguments for format string")
		}
		p.used++
		return p.tuple[p.used-1]
	}
	if p.used > 0 {
		raise("TypeError", "not enough arguments for format string")
	}
	p.used = 1
	return p.arg
}

// count reads a width or a precision, digits or a *; -1 = none is there.
func (p *percentFormat) count() int64 {
	if p.peek() == '*' {
		p.pos++
		n, ok := asInt(p.next())
		if !ok {
			raise("TypeError", "* wants int")
		}
		return n
	}
	n, any := int64(0), false
	for isDecimal(p.peek()) {
		n, any = n*10+int64(p.peek()-'0'), true
		if n > maxWidth {
			raise("LimitError", "a width or precision is more than %d", maxWidth)
		}
		p.pos++
	}
	if !any {
		return -1
	}
	return n
}

func (p *percentFormat) one() {
	var keyed Value
	if p.peek() == '(' {
		keyed = p.key()
	}
	f := formatSpec{fill: " ", precision: -1}
	left := false
	for strings.IndexByte("-+ #0", p.peek()) >= 0 {
		switch c := p.peek(); c {
		case '-':
			left = true
		case '#':
			f.alternate = true
		case '0':
			f.fill = "0"
		case '+':
			f.sign = '+'
		case ' ':
			if f.sign == 0 {
				f.sign = ' '
			}
		}
		p.pos++
	}
	if f.width = p.count(); f.width < -1 {
		left, f.width = true, -f.width
	}
	if p.peek() == '.' {
		p.pos++
		f.precision = max(p.count(), 0)
	}
	for strings.IndexByte("hlL", p.peek()) >= 0 {
		p.pos++
	}
	if f.width > maxWidth || f.precision > maxWidth {
		raise("LimitError", "a width or precision is more than %d", maxWidth)
	}
	kind := p.peek()
	p.pos++
	if kind == '%' {
		p.write("%")
		return
	}
	v := keyed
	if v == nil {
		v = p.next()
	}
	f.align = '>'
	if left {
		f.align = '<'
	}
	p.convert(kind, v, f, left)
}

// key reads (name) and looks it up.
func (p *percentFormat) key() Value {
	start, depth := p.pos+1, 0
	for ; ; p.pos++ {
		if p.pos >= len(p.s) {
			raise("ValueError", "incomplete format key")
		}
		switch p.s[p.pos] {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 {
			break
		}
	}
	name := p.s[start:p.pos]
	p.st.scan(len(name))
	p.pos++
	d, ok := p.mapping.(*Dict)
	if u, undef := p.mapping.(*undefined); undef {
		u.use()
	}
	if !ok {
		raise("TypeError", "format requires a mapping")
	}
	v := d.lookup(name)
	if v == nil {
		raise("KeyError", "%s", quote(name))
	}
	return v
}

func (p *percentFormat) text(v Value, asRepr bool) string {
	s := ""
	switch {
	case asRepr:
		s = repr(p.st, v)
	default:
		s = str(p.st, v)
	}
	if p.safe {
		if _, marked := v.(markup); !marked || asRepr {
			s = escapeHTML(p.st, s)
		}
	}
	return s
}

func (p *percentFormat) convert(kind byte, v Value, f formatSpec, left bool) {
	switch kind {
	case 's', 'r', 'a':
		s := p.text(v, kind != 's')
		if kind == 'a' {
			s = asciiRepr(p.st, s)
		}
		f.fill = " "
		if f.precision >= 0 && int64(utf8.RuneCountInString(s)) > f.precision {
			s = s[:byteOffset(s, int(f.precision))]
		}
		p.write(f.pad(p.st, "", s, '>'))
	case 'c':
		f.fill = " "
		p.write(f.pad(p.st, "", percentChar(v), '>'))
	case 'd', 'i', 'u', 'o', 'x', 'X':
		p.integer(kind, v, f, left)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		x := percentFloat(v)
		if f.precision < 0 {
			f.precision = 6
		}
		if f.fill == "0" && !left {
			f.align = '='
		}
		if left {
			f.fill = " "
		}
		p.st.charge(2 * int(f.precision))
		body := floatDigits(math.Abs(x), kind, int(f.precision), f.alternate)
		p.write(f.pad(p.st, f.signOf(math.Signbit(x) && x == x), body, '>'))
	default:
		r, _ := utf8.DecodeRuneInString(p.s[p.pos-1:])
		raise("ValueError", "unsupported format character '%c' (0x%x)", r, r)
	}
}

func (p *percentFormat) integer(kind byte, v Value, f formatSpec, left bool) {
	n, ok := asBig(v)
	if !ok {
		x, isFloat := v.(Float)
		if u, undef := v.(*undefined); undef {
			u.use()
		}
		if !isFloat || kind == 'o' || kind == 'x' || kind == 'X' {
			what := "a real number"
			if kind == 'o' || kind == 'x' || kind == 'X' {
				what = "an integer"
			}
			raise("TypeError", "%%%c format: %s is required, not %s", kind, what, v.typeName())
		}
		n, _ = asBig(intOfFloat(float64(x)))
	}
	p.st.step(1 + n.BitLen()>>4)
	abs := new(big.Int).Abs(n)
	digits, prefix := "", ""
	switch kind {
	case 'o':
		digits, prefix = abs.Text(8), "0o"
	case 'x':
		digits, prefix = abs.Text(16), "0x"
	case 'X':
		digits, prefix = strings.ToUpper(abs.Text(16)), "0X"
	default:
		digits = str(p.st, norm(abs))
	}
	if missing := f.precision - int64(len(digits)); missing > 0 {
		digits = repeatString(p.st, "0", missing) + digits
	}
	sign := f.signOf(n.Sign() < 0)
	if f.alternate {
		sign += prefix
	}
	if f.fill == "0" && !left {
		f.align = '='
	}
	if left {
		f.fill = " "
	}
	p.write(f.pad(p.st, sign, digits, '>'))
}

func percentChar(v Value) string {
	if s, ok := asStr(v); ok {
		if utf8.RuneCountInString(s) != 1 {
			raise("TypeError", "%%c requires int or char")
		}
		return s
	}
	n, ok := indexOf(v)
	if !ok {
		raise("TypeError", "%%c requires int or char")
	}
	if n < 0 || n > utf8.MaxRune {
		raise("OverflowError", "%%c arg not in range(0x110000)")
	}
	return char(n)
}

func percentFloat(v Value) float64 {
	if u, ok := v.(*undefined); ok {
		u.use()
	}
	if !isNumber(v) {
		raise("TypeError", "must be real number, not %s", v.typeName())
	}
	return toFloat(v)
}

// asciiRepr escapes what lies beyond ASCII.
func asciiRepr(st *state, s string) string {
	st.step(2 * len(s))
	n := len(s)
	for _, r := range s {
		if r >= utf8.RuneSelf {
			n += len(escapedTwice(r))
		}
	}
	st.charge(n)
	var b strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
		} else {
			b.WriteString(escapedTwice(r))
		}
	}
	return b.String()
}
