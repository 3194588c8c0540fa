package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

func filterAbs(st *state, b *[maxParams]Value) Value {
	switch v := b[0].(type) {
	case Float:
		return Float(math.Abs(float64(v)))
	case *undefined:
		raise("TypeError", "bad operand type for abs(): 'Undefined'")
	}
	n, ok := asBig(b[0])
	if !ok {
		raise("TypeError", "bad operand type for abs(): '%s'", b[0].typeName())
	}
	return norm(new(big.Int).Abs(n))
}

// parseInt evaluates Python's int(s, base); nil = s is no such number.
func parseInt(s string, base int64) Value {
	s = stripNumber(s)
	sign := ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = s[:1], s[1:]
	}
	prefixed := false
	for i, p := range []string{"0b", "0o", "0x"} {
		of := []int64{2, 8, 16}[i]
		if len(s) > 2 && strings.EqualFold(s[:2], p) && (base == of || base == 0) {
			s, base, prefixed = strings.TrimPrefix(s[2:], "_"), of, true
		}
	}
	if base == 0 {
		if strings.HasPrefix(s, "0") && strings.Trim(s, "0_") != "" {
			return nil
		}
		base = 10
	}
	_ = prefixed
	if s == "" || s[0] == '_' || s[len(s)-1] == '_' || strings.Contains(s, "__") || strings.ContainsAny(s, "+-") {
		return nil
	}
	s = asciiDigits(strings.ReplaceAll(s, "_", ""))
	if len(s) > maxIntDigits && base&(base-1) != 0 {
		return nil
	}
	if len(s) > maxBits/4 {
		raise("LimitError", "an integer has more than %d bits", maxBits)
	}
	n, ok := new(big.Int).SetString(strings.TrimPrefix(sign, "+")+s, int(base))
	if !ok {
		return nil
	}
	return norm(n)
}

// stripNumber removes the space that Python allows around a number. In an ASCII text only C's white space counts.
func stripNumber(s string) string {
	if isASCII(s) {
		return strings.Trim(s, "\t\n\v\f\r ")
	}
	return strings.TrimFunc(s, isSpace)
}

// asciiDigits replaces the digits of other scripts with ASCII digits.
func asciiDigits(s string) string {
	if isASCII(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if d := digitValue(r); d >= 0 {
			return '0' + rune(d)
		}
		return r
	}, s)
}

// parseFloat evaluates Python's float(s); false = s is no number.
func parseFloat(s string) (float64, bool) {
	s = asciiDigits(stripNumber(s))
	body := strings.ToLower(strings.TrimLeft(s, "+-"))
	if len(s)-len(body) > 1 {
		return 0, false
	}
	switch body {
	case "inf", "infinity", "nan":
	default:
		if body == "" || strings.Trim(body, "0123456789.e+-_") != "" || body[0] == '_' {
			return 0, false
		}
		for i := range len(body) {
			if body[i] == '_' && (i+1 == len(body) || !isDecimal(body[i-1]) || !isDecimal(body[i+1])) {
				return 0, false
			}
		}
		s = strings.ReplaceAll(s, "_", "")
	}
	f, err := strconv.ParseFloat(s, 64)
	if e, ok := err.(*strconv.NumError); ok && e.Err == strconv.ErrSyntax {
		return 0, false
	}
	return f, true
}

// filterInt returns int(value), int(float(value)), or the default.
func filterInt(st *state, b *[maxParams]Value) Value {
	base := int64(10)
	if b[2] != nil {
		n, ok := indexOf(b[2])
		base = n
		if !ok {
			base = -1
		}
	}
	otherwise := b[1]
	if otherwise == nil {
		otherwise = Int(0)
	}
	switch v := b[0].(type) {
	case Str, markup:
		if base == 0 || base >= 2 && base <= 36 {
			if n := parseInt(text(v), base); n != nil {
				return n
			}
		}
		f, ok := parseFloat(text(v))
		if !ok || f != f || math.IsInf(f, 0) {
			return otherwise
		}
		return intOfFloat(f)
	case Float:
		if math.IsInf(float64(v), 0) {
			raise("OverflowError", "cannot convert float infinity to integer")
		}
		if v != v {
			return otherwise
		}
		return intOfFloat(float64(v))
	case *undefined:
		v.use()
	}
	if n, ok := asBig(b[0]); ok {
		return norm(n)
	}
	return otherwise
}

func filterFloat(st *state, b *[maxParams]Value) Value {
	otherwise := b[1]
	if otherwise == nil {
		otherwise = Float(0)
	}
	if s, ok := asStr(b[0]); ok {
		if f, ok := parseFloat(s); ok {
			return Float(f)
		}
		return otherwise
	}
	if u, ok := b[0].(*undefined); ok {
		u.use()
	}
	if isNumber(b[0]) {
		return Float(toFloat(b[0]))
	}
	return otherwise
}

func filterRound(st *state, b *[maxParams]Value) Value {
	method := "common"
	if b[2] != nil {
		m, ok := asStr(b[2])
		if !ok {
			hashKey(st, b[2])
		}
		method = m
	}
	if method != "common" && method != "ceil" && method != "floor" {
		raise("FilterArgumentError", "method must be common, ceil or floor")
	}
	precision := b[1]
	if precision == nil {
		precision = Int(0)
	}
	if method == "common" {
		return roundValue(st, b[0], precision)
	}
	scale := binary(st, '^', Int(10), precision)
	x := toFloat2(binary(st, '*', b[0], scale))
	if method == "ceil" {
		x = math.Ceil(x)
	} else {
		x = math.Floor(x)
	}
	return binary(st, '/', intOfFloat(x), scale)
}

// toFloat2 returns the argument of math.ceil: an int stays exact if a float of 53 bits can hold it.
func toFloat2(v Value) float64 {
	if u, ok := v.(*undefined); ok {
		u.use()
	}
	return toFloat(v)
}

// roundValue evaluates Python's round(v, n), which rounds halves to even.
func roundValue(st *state, v, precision Value) Value {
	_, none := precision.(None)
	n, ok := indexOf(precision)
	if !ok && !none {
		if !isNumber(v) {
			raise("TypeError", "type %s doesn't define __round__ method", v.typeName())
		}
		raise("TypeError", "'%s' object cannot be interpreted as an integer", precision.typeName())
	}
	if x, ok := v.(Float); ok {
		if none {
			return intOfFloat(math.RoundToEven(float64(x)))
		}
		return roundFloat(float64(x), n)
	}
	i, ok := asBig(v)
	if !ok {
		raise("TypeError", "type %s doesn't define __round__ method", v.typeName())
	}
	if n >= 0 {
		return norm(i)
	}
	st.step(1 + i.BitLen()/64)
	if -float64(n) > float64(i.BitLen())*math.Log10(2)+2 { // more digits than the int has
		return Int(0)
	}
	ten := new(big.Int).Exp(big.NewInt(10), big.NewInt(-n), nil)
	q, r := new(big.Int).DivMod(i, ten, new(big.Int))
	if c := new(big.Int).Lsh(r, 1).Cmp(ten); c > 0 || c == 0 && q.Bit(0) == 1 {
		q.Add(q, big.NewInt(1))
	}
	return norm(q.Mul(q, ten))
}

func roundFloat(x float64, n int64) Value {
	switch {
	case x != x || math.IsInf(x, 0) || n > 323:
		return Float(x)
	case n < -308:
		return Float(math.Copysign(0, x))
	case n >= 0:
		f, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'f', int(n), 64), 64)
		return Float(f)
	}
	// digits before the point: round the exact decimal expansion, halves to even
	exact, _ := new(big.Rat).SetString(strconv.FormatFloat(x, 'f', -1, 64))
	exact.SetFloat64(x)
	ten := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(-n), nil))
	exact.Quo(exact, ten)
	q := new(big.Int)
	r := new(big.Int)
	q.DivMod(exact.Num(), exact.Denom(), r)
	if c := r.Lsh(r, 1).Cmp(exact.Denom()); c > 0 || c == 0 && q.Bit(0) == 1 {
		q.Add(q, big.NewInt(1))
	}
	f, _ := new(big.Rat).Mul(new(big.Rat).SetInt(q), ten).Float64()
	return Float(math.Copysign(f, x))
}

// digitValue returns the value of a decimal digit of any script, -1 if r is no digit.
func digitValue(r rune) int {
	if !unicode.Is(unicode.Nd, r) {
		return -1
	}
	zero := r // the digits of a script are consecutive, ten at a time
	for zero > 0 && r-zero < 9 && unicode.Is(unicode.Nd, zero-1) {
		zero--
	}
	return int(r-zero) % 10
}
