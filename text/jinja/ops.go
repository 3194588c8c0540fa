package jinja

import (
	"cmp"
	"math"
	"math/big"
	"strings"
)

// binary computes a op b; op is one of + - * / % and f for //, ^ for **.
func binary(st *state, op byte, a, b Value) Value {
	if x, ok := a.(Str); ok && op == '+' {
		if y, ok := b.(Str); ok {
			st.charge(len(x) + len(y))
			return x + y
		}
	}
	if isNumber(a) && isNumber(b) {
		return number(st, op, a, b)
	}
	if _, ok := asStr(a); ok && op == '%' {
		unsupported("formatting a text with %")
	}
	if u, ok := a.(*undefined); ok {
		u.use()
	}
	if u, ok := b.(*undefined); ok {
		u.use()
	}
	switch op {
	case '+':
		if v := add(st, a, b); v != nil {
			return v
		}
	case '*':
		if v := repeated(st, a, b); v != nil {
			return v
		}
		if v := repeated(st, b, a); v != nil {
			return v
		}
		if v := cannotRepeat(a, b); v != "" {
			raise("TypeError", "can't multiply sequence by non-int of type '%s'", v)
		}
	}
	name := map[byte]string{'f': "//", '^': "** or pow()"}[op]
	if name == "" {
		name = string(op)
	}
	raise("TypeError", "unsupported operand type(s) for %s: '%s' and '%s'", name, a.typeName(), b.typeName())
	return nil
}

// repeated evaluates v times n; nil = they are no sequence and count.
func repeated(st *state, v, n Value) Value {
	count, ok := indexOf(n)
	if !ok || !isSequence(v) {
		return nil
	}
	if _, big := n.(bigInt); big {
		raise("OverflowError", "cannot fit 'int' into an index-sized integer")
	}
	return repeat(st, v, count)
}

// indexOf returns an int as a count; one beyond 64 bits becomes the largest of its sign.
func indexOf(v Value) (int64, bool) {
	if b, ok := v.(bigInt); ok {
		if b.n.Sign() < 0 {
			return math.MinInt64, true
		}
		return math.MaxInt64, true
	}
	return asInt(v)
}

func cannotRepeat(a, b Value) string {
	if isSequence(a) {
		return b.typeName()
	}
	if isSequence(b) {
		return a.typeName()
	}
	return ""
}

func isSequence(v Value) bool {
	switch v.(type) {
	case Str, markup, *List, *Tuple:
		return true
	}
	return false
}

// add concatenates two sequences of one kind; nil = they are not.
func add(st *state, a, b Value) Value {
	x, aStr := asStr(a)
	y, bStr := asStr(b)
	switch {
	case aStr && bStr:
		_, aSafe := a.(markup)
		_, bSafe := b.(markup)
		st.charge(len(x) + len(y))
		switch {
		case aSafe && !bSafe:
			return markup(x + escapeHTML(st, y))
		case bSafe && !aSafe:
			return markup(escapeHTML(st, x) + y)
		case aSafe:
			return markup(x + y)
		}
		return Str(x + y)
	case aStr:
		raise("TypeError", `can only concatenate str (not "%s") to str`, b.typeName())
	}
	if l, ok := a.(*List); ok {
		m, ok := b.(*List)
		if !ok {
			raise("TypeError", `can only concatenate list (not "%s") to list`, b.typeName())
		}
		return &List{joinItems(st, l.Items, m.Items)}
	}
	if l, ok := asTuple(a); ok {
		m, ok := asTuple(b)
		if !ok {
			raise("TypeError", `can only concatenate tuple (not "%s") to tuple`, b.typeName())
		}
		return &Tuple{joinItems(st, l, m)}
	}
	return nil
}

// valueSize is the size in bytes that a value in a list counts for.
const valueSize = 16

func joinItems(st *state, a, b []Value) []Value {
	st.charge(valueSize * (2 + len(a) + len(b)))
	return append(append(make([]Value, 0, len(a)+len(b)), a...), b...)
}

// repeat concatenates n copies of a sequence; nil = v is not a sequence.
func repeat(st *state, v Value, n int64) Value {
	if s, ok := asStr(v); ok {
		r := repeatString(st, s, n)
		if _, safe := v.(markup); safe {
			return markup(r)
		}
		return Str(r)
	}
	if l, ok := v.(*List); ok {
		return &List{repeatItems(st, l.Items, n)}
	}
	if l, ok := asTuple(v); ok {
		return &Tuple{repeatItems(st, l, n)}
	}
	return nil
}

func repeatString(st *state, s string, n int64) string {
	if n <= 0 || s == "" {
		return ""
	}
	st.charge(product(len(s), n))
	return strings.Repeat(s, int(n))
}

func repeatItems(st *state, items []Value, n int64) []Value {
	if n <= 0 || len(items) == 0 {
		return nil
	}
	st.charge(product(valueSize*len(items), n))
	st.step(product(len(items), n) / 8)
	out := make([]Value, 0, len(items)*int(n))
	for range n {
		out = append(out, items...)
	}
	return out
}

// product returns a times b, at most the largest int.
func product(a int, b int64) int {
	if b > math.MaxInt64/int64(a) {
		return math.MaxInt64
	}
	return a * int(b)
}

// equal evaluates Python's a == b.
func equal(st *state, a, b Value) bool { return equalDeep(st, a, b, 0) }

func equalDeep(st *state, a, b Value, depth int) bool {
	st.step(1)
	if depth > maxNest {
		raise("RecursionError", "values lie more than %d deep in each other", maxNest)
	}
	if x, ok := asStr(a); ok {
		y, ok := asStr(b)
		if ok && len(x) == len(y) {
			st.scan(len(x))
			return x == y
		}
		return false
	}
	if isNumber(a) {
		return isNumber(b) && compareNumbers(st, a, b) == 0
	}
	if x, ok := asTuple(a); ok {
		y, ok := asTuple(b)
		return ok && equalItems(st, x, y, depth)
	}
	switch a := a.(type) {
	case *List:
		b, ok := b.(*List)
		return ok && (a == b || equalItems(st, a.Items, b.Items, depth))
	case *Dict:
		b, ok := b.(*Dict)
		if !ok || a.Len() != b.Len() {
			return false
		}
		if a == b {
			return true
		}
		for i, k := range a.keys {
			j := b.findKey(st, hashKey(st, k))
			if j < 0 || !identical(st, a.vals[i], b.vals[j]) && !equalDeep(st, a.vals[i], b.vals[j], depth+1) {
				return false
			}
		}
		return true
	case *undefined:
		return isUndefined(b)
	case *rangeObj:
		b, ok := b.(*rangeObj)
		return ok && hashKey(st, a) == hashKey(st, b)
	case *dictView:
		b, ok := b.(*dictView)
		return ok && (a == b || a.kind != "dict_values" && b.kind != "dict_values" && a.sameSet(st, b))
	}
	return a == b
}

// identical evaluates a == b of Go: the same object, or the same text or number.
func identical(st *state, a, b Value) bool {
	if s, ok := asStr(a); ok {
		if t, ok := asStr(b); ok && len(s) == len(t) {
			st.scan(len(s))
		}
	}
	return a == b
}

func equalItems(st *state, a, b []Value, depth int) bool {
	if len(a) != len(b) {
		return false
	}
	st.step(len(a))
	for i := range a {
		if !identical(st, a[i], b[i]) && !equalDeep(st, a[i], b[i], depth+1) {
			return false
		}
	}
	return true
}

// notANumber is the result of compareNumbers if one side is NaN.
const notANumber = 2

// compareNumbers compares exactly: it does not round an int to compare it with a float.
func compareNumbers(st *state, a, b Value) int {
	for _, v := range [2]Value{a, b} {
		if n, ok := v.(bigInt); ok {
			st.stepBig(n)
		}
	}
	x, aSmall := asInt(a)
	y, bSmall := asInt(b)
	if aSmall && bSmall {
		return cmp.Compare(x, y)
	}
	f, aFloat := a.(Float)
	g, bFloat := b.(Float)
	switch {
	case aFloat && bFloat:
		if f != f || g != g {
			return notANumber
		}
		return cmp.Compare(f, g)
	case aFloat:
		if r := compareNumbers(st, b, a); r != notANumber {
			return -r
		}
		return notANumber
	case bFloat:
		switch {
		case g != g:
			return notANumber
		case math.IsInf(float64(g), 1):
			return -1
		case math.IsInf(float64(g), -1):
			return 1
		}
		n, _ := asBig(a)
		return new(big.Float).SetPrec(maxBits).SetInt(n).Cmp(big.NewFloat(float64(g)))
	}
	n, _ := asBig(a)
	m, _ := asBig(b)
	return n.Cmp(m)
}

// order evaluates a op b for op one of < <= > >=, whose names are lt, le, gt and ge.
func order(st *state, op string, a, b Value) bool { return orderDeep(st, op, a, b, 0) }

func orderDeep(st *state, op string, a, b Value, depth int) bool {
	st.step(1)
	if depth > maxNest {
		raise("RecursionError", "values lie more than %d deep in each other", maxNest)
	}
	if x, ok := asStr(a); ok {
		if y, ok := asStr(b); ok {
			st.scan(min(len(x), len(y)))
			return holds(op, strings.Compare(x, y))
		}
	}
	if isNumber(a) && isNumber(b) {
		r := compareNumbers(st, a, b)
		return r != notANumber && holds(op, r)
	}
	x, aList := a.(*List)
	y, bList := b.(*List)
	if aList && bList {
		return orderItems(st, op, x.Items, y.Items, depth)
	}
	s, aTuple := asTuple(a)
	t, bTuple := asTuple(b)
	if aTuple && bTuple {
		return orderItems(st, op, s, t, depth)
	}
	if u, ok := a.(*undefined); ok {
		u.use()
	}
	if u, ok := b.(*undefined); ok {
		u.use()
	}
	if v, ok := a.(*dictView); ok {
		if w, ok := b.(*dictView); ok && v.kind != "dict_values" && w.kind != "dict_values" {
			return v.subset(st, op, w)
		}
	}
	raise("TypeError", "'%s' not supported between instances of '%s' and '%s'", op, a.typeName(), b.typeName())
	return false
}

func orderItems(st *state, op string, a, b []Value, depth int) bool {
	st.step(min(len(a), len(b)))
	for i := range min(len(a), len(b)) {
		if !identical(st, a[i], b[i]) && !equalDeep(st, a[i], b[i], depth+1) {
			return orderDeep(st, op, a[i], b[i], depth+1)
		}
	}
	return holds(op, cmp.Compare(len(a), len(b)))
}

func holds(op string, c int) bool {
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}
