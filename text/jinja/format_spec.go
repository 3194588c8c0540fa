package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// formatSpec is Python's mini-language of format(): [[fill]align][sign][z][#][0][width][grouping][.precision][type].
type formatSpec struct {
	fill      string
	align     byte // 0 = by the type
	sign      byte
	alternate bool
	noMinus   bool
	width     int64
	group     byte
	precision int64 // -1 = none
	kind      byte
}

// maxWidth bounds widths and precisions, which a template may compute.
const maxWidth = 1 << 20

func parseSpec(spec string, v Value) formatSpec {
	s := formatSpec{fill: " ", precision: -1}
	rest := spec
	isAlign := func(c byte) bool { return c == '<' || c == '>' || c == '=' || c == '^' }
	if _, n := utf8.DecodeRuneInString(rest); n > 0 && len(rest) > n && isAlign(rest[n]) {
		s.fill, s.align, rest = rest[:n], rest[n], rest[n+1:]
	} else if rest != "" && isAlign(rest[0]) {
		s.align, rest = rest[0], rest[1:]
	}
	take := func(chars string) byte {
		if rest != "" && strings.IndexByte(chars, rest[0]) >= 0 {
			c := rest[0]
			rest = rest[1:]
			return c
		}
		return 0
	}
	s.sign = take("+- ")
	s.noMinus = take("z") != 0
	s.alternate = take("#") != 0
	if strings.HasPrefix(rest, "0") {
		if s.align == 0 {
			s.align = '='
			s.fill = "0"
			if _, isString := asStr(v); isString {
				s.align = '<'
			}
		} else if s.fill == " " && spec != "" && !isAlign(spec[min(1, len(spec)-1)]) {
			s.fill = "0"
		}
		rest = rest[1:]
	}
	number := func() int64 {
		n := digitsAt(rest, isDecimal)
		if i := strings.IndexByte(rest[:n], '_'); i >= 0 {
			n = i
		}
		if n == 0 {
			return -1
		}
		w, err := strconv.ParseInt(rest[:n], 10, 64)
		if err != nil {
			raise("ValueError", "Too many decimal digits in format string")
		}
		rest = rest[n:]
		return w
	}
	s.width = number()
	s.group = take(",_")
	if s.group != 0 && rest != "" && (rest[0] == ',' || rest[0] == '_') {
		raise("ValueError", "Cannot specify both ',' and '_'.")
	}
	if take(".") != 0 {
		if s.precision = number(); s.precision < 0 {
			raise("ValueError", "Format specifier missing precision")
		}
	}
	if len(rest) > 1 {
		raise("ValueError", "Invalid format specifier '%s' for object of type '%s'", spec, v.typeName())
	}
	if rest != "" {
		s.kind = rest[0]
	}
	if s.width > maxWidth || s.precision > maxWidth {
		raise("LimitError", "a width or precision is more than %d", maxWidth)
	}
	return s
}

// format is Python's format(v, spec).
func format(st *state, v Value, spec string) string {
	if spec == "" {
		return str(st, v)
	}
	switch v := v.(type) {
	case Str, markup:
		return formatText(st, text(v), parseSpec(spec, v))
	case Int, bigInt:
		return formatInt(st, v, parseSpec(spec, v))
	case Bool:
		return formatInt(st, Int(boolInt(bool(v))), parseSpec(spec, v))
	case Float:
		s := parseSpec(spec, v)
		return formatFloat(st, float64(v), s, v)
	}
	raise("TypeError", "unsupported format string passed to %s.__format__", v.typeName())
	return ""
}

func formatText(st *state, s string, f formatSpec) string {
	if f.kind != 0 && f.kind != 's' {
		unknownKind(f.kind, "str")
	}
	if f.sign != 0 {
		raise("ValueError", "Sign not allowed in string format specifier")
	}
	if f.noMinus {
		raise("ValueError", "Negative zero coercion (z) not allowed in string format specifier")
	}
	if f.alternate {
		raise("ValueError", "Alternate form (#) not allowed in string format specifier")
	}
	if f.group != 0 {
		raise("ValueError", "Cannot specify '%c' with 's'.", f.group)
	}
	if f.align == '=' {
		raise("ValueError", "'=' alignment not allowed in string format specifier")
	}
	if f.precision >= 0 && int64(utf8.RuneCountInString(s)) > f.precision {
		s = s[:byteOffset(s, int(f.precision))]
	}
	return f.pad(st, "", s, '<')
}

// char is Python's chr(n), but for half of a surrogate pair, which no text can hold.
func char(n int64) string {
	if n >= 0xD800 && n < 0xE000 {
		raise("UnicodeEncodeError", "character U+%04X is half of a surrogate pair", n)
	}
	return string(rune(n))
}

func unknownKind(kind byte, typ string) {
	raise("ValueError", "Unknown format code '%c' for object of type '%s'", kind, typ)
}

// pad fills sign and body up to the width.
func (f *formatSpec) pad(st *state, sign, body string, align byte) string {
	if f.align != 0 {
		align = f.align
	}
	st.scan(len(body))
	n := f.width - int64(utf8.RuneCountInString(sign)+utf8.RuneCountInString(body))
	st.charge(len(sign) + len(body))
	if n <= 0 {
		return sign + body
	}
	switch align {
	case '<':
		return sign + body + repeatString(st, f.fill, n)
	case '=':
		return sign + repeatString(st, f.fill, n) + body
	case '^':
		return repeatString(st, f.fill, n/2) + sign + body + repeatString(st, f.fill, n-n/2)
	}
	return repeatString(st, f.fill, n) + sign + body
}

func (f *formatSpec) signOf(negative bool) string {
	switch {
	case negative:
		return "-"
	case f.sign == '+' || f.sign == ' ':
		return string(f.sign)
	}
	return ""
}

func formatInt(st *state, v Value, f formatSpec) string {
	n, _ := asBig(v)
	if strings.IndexByte("eEfFgG%", f.kind) >= 0 && f.kind != 0 {
		return formatFloat(st, toFloat(v), f, Float(0))
	}
	if f.precision >= 0 {
		raise("ValueError", "Precision not allowed in integer format specifier")
	}
	if f.noMinus {
		raise("ValueError", "Negative zero coercion (z) not allowed in integer format specifier")
	}
	st.step(1 + n.BitLen()>>3)
	st.charge(n.BitLen())
	abs := new(big.Int).Abs(n)
	digits, prefix, every := "", "", 3
	switch f.kind {
	case 0, 'd', 'n':
		digits = strings.TrimPrefix(str(st, norm(n)), "-")
	case 'b':
		digits, prefix, every = abs.Text(2), "0b", 4
	case 'o':
		digits, prefix, every = abs.Text(8), "0o", 4
	case 'x':
		digits, prefix, every = abs.Text(16), "0x", 4
	case 'X':
		digits, prefix, every = strings.ToUpper(abs.Text(16)), "0X", 4
	case 'c':
		if f.sign != 0 {
			raise("ValueError", "Sign not allowed with integer format specifier 'c'")
		}
		if f.alternate {
			raise("ValueError", "Alternate form (#) not allowed with integer format specifier 'c'")
		}
		if !n.IsInt64() || n.Int64() < 0 || n.Int64() > utf8.MaxRune {
			raise("OverflowError", "%%c arg not in range(0x110000)")
		}
		return f.pad(st, "", char(n.Int64()), '<')
	default:
		unknownKind(f.kind, "int")
	}
	if f.group == ',' && every == 4 || f.group != 0 && f.kind == 'n' {
		raise("ValueError", "Cannot specify '%c' with '%c'.", f.group, f.kind)
	}
	sign := f.signOf(n.Sign() < 0)
	if f.alternate {
		sign += prefix
	}
	return f.grouped(st, sign, digits, "", every)
}

// grouped parts the digits, which zeros that fill the width take part in, and pads.
func (f *formatSpec) grouped(st *state, sign, digits, tail string, every int) string {
	if f.group == 0 {
		return f.pad(st, sign, digits+tail, '>')
	}
	want := int64(0)
	if f.fill == "0" && f.align == '=' {
		want = f.width - int64(len(sign)+len(tail))
	}
	n, size := int64(len(digits)), int64(every)
	for ; n+(n-1)/size < want; n++ {
		if (n+1)%size == 0 && n+1+(n+1)/size == want {
			n += 2
			break
		}
	}
	digits = repeatString(st, "0", n-int64(len(digits))) + digits
	st.step(2 * len(digits))
	st.charge(3 * len(digits))
	var b strings.Builder
	for i := range len(digits) {
		if i > 0 && (len(digits)-i)%every == 0 {
			b.WriteByte(f.group)
		}
		b.WriteByte(digits[i])
	}
	return f.pad(st, sign, b.String()+tail, '>')
}

func formatFloat(st *state, x float64, f formatSpec, v Value) string {
	percent := f.kind == '%'
	kind := f.kind
	precision := int(f.precision)
	switch kind {
	case 0, 'e', 'E', 'f', 'F', 'g', 'G', 'n':
	case '%':
		x, kind = x*100, 'f'
	default:
		unknownKind(kind, v.typeName())
	}
	if kind == 'n' && f.group != 0 {
		raise("ValueError", "Cannot specify '%c' with 'n'.", f.group)
	}
	st.charge(2 * max(precision, 0))
	st.step(max(precision, 0))
	negative := math.Signbit(x) && x == x
	body := floatDigits(math.Abs(x), kind, precision, f.alternate)
	if f.noMinus && negative && strings.Trim(body, "0.eE+-") == "" {
		negative = false
	}
	if percent {
		body += "%"
	}
	sign := f.signOf(negative)
	n := digitsAt(body, isDecimal)
	return f.grouped(st, sign, body[:n], body[n:], 3)
}

// floatDigits writes a float that is not negative in one of Python's presentations.
func floatDigits(x float64, kind byte, precision int, alternate bool) string {
	upper := kind == 'E' || kind == 'F' || kind == 'G'
	kind |= 0x20
	s := ""
	switch {
	case x != x:
		s = "nan"
	case math.IsInf(x, 0):
		s = "inf"
	case kind == 'e' || kind == 'f':
		if precision < 0 {
			precision = 6
		}
		s = strconv.FormatFloat(x, kind, precision, 64)
		if alternate && precision == 0 {
			mantissa, exponent, found := strings.Cut(s, "e")
			if s = mantissa + "."; found {
				s += "e" + exponent
			}
		}
	case kind == 0x20 && precision < 0: // none: as repr
		s = floatRepr(x)
	default:
		if precision < 0 {
			precision = 6
		}
		s = generalFloat(x, max(precision, 1), alternate, kind == 0x20)
	}
	if upper {
		s = strings.ToUpper(s)
	}
	return s
}

// generalFloat is %g: so many significant digits, an exponent where the number is very small or large.
func generalFloat(x float64, precision int, alternate, asRepr bool) string {
	s := strconv.FormatFloat(x, 'e', precision-1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	e, _ := strconv.Atoi(exponent)
	limit := precision
	if asRepr {
		limit = precision - 1 // a float without a type keeps a digit after its point
	}
	if e < -4 || e >= max(limit, 1) && !(asRepr && precision == 1 && e < 0) {
		if !alternate && strings.IndexByte(mantissa, '.') >= 0 {
			mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
		}
		return mantissa + "e" + exponent
	}
	s = strconv.FormatFloat(x, 'f', max(precision-1-e, 0), 64)
	if !alternate && strings.IndexByte(s, '.') >= 0 {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if strings.IndexByte(s, '.') < 0 {
		if alternate {
			s += "."
		} else if asRepr {
			s += ".0"
		}
	}
	return s
}
