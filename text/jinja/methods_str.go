package jinja

import (
	"math"
	"strings"
	"unicode/utf8"
)

var strMethods map[string]*method

func init() { // the methods refer to the table through getattr
	strMethods = table(map[string]func(*state, Value, *[maxParams]Value) Value{
		"strip(chars, /)": func(st *state, v Value, b *[maxParams]Value) Value {
			return like(v, strip(st, text(v), b[0], true, true))
		},
		"lstrip(chars, /)": func(st *state, v Value, b *[maxParams]Value) Value {
			return like(v, strip(st, text(v), b[0], true, false))
		},
		"rstrip(chars, /)": func(st *state, v Value, b *[maxParams]Value) Value {
			return like(v, strip(st, text(v), b[0], false, true))
		},
		"upper()":      cased(upper),
		"lower()":      cased(lower),
		"title()":      cased(title),
		"capitalize()": cased(capitalize),
		"isalnum()":    every(func(r rune) bool { return isAlpha(r) || isNumeric(r) }),
		"isalpha()":    every(isAlpha),
		"isdigit()":    every(isDigit),
		"isnumeric()":  every(isNumeric),
		"isspace()":    every(isSpace),
		"islower()":    func(st *state, v Value, _ *[maxParams]Value) Value { return Bool(isLower(looked(st, text(v)))) },
		"isupper()":    func(st *state, v Value, _ *[maxParams]Value) Value { return Bool(isUpper(looked(st, text(v)))) },
		"startswith(*prefix, start, end, /)": func(st *state, v Value, b *[maxParams]Value) Value {
			return Bool(affix(st, "startswith", text(v), b, strings.HasPrefix))
		},
		"endswith(*suffix, start, end, /)": func(st *state, v Value, b *[maxParams]Value) Value {
			return Bool(affix(st, "endswith", text(v), b, strings.HasSuffix))
		},
		"find(*sub, start, end, /)":   func(st *state, v Value, b *[maxParams]Value) Value { return Int(find(st, "find", text(v), b, false)) },
		"rfind(*sub, start, end, /)":  func(st *state, v Value, b *[maxParams]Value) Value { return Int(find(st, "rfind", text(v), b, true)) },
		"index(*sub, start, end, /)":  func(st *state, v Value, b *[maxParams]Value) Value { return mustFind(st, "index", text(v), b, false) },
		"rindex(*sub, start, end, /)": func(st *state, v Value, b *[maxParams]Value) Value { return mustFind(st, "rindex", text(v), b, true) },
		"count(*sub, start, end, /)": func(st *state, v Value, b *[maxParams]Value) Value {
			sub := needStr("count", b[0])
			s, _, ok := window(st, text(v), b)
			if !ok {
				return Int(0)
			}
			return Int(strings.Count(s, sub))
		},
		"replace(*old, *new, count, /)": replaceMethod,
		"split(sep, maxsplit)": func(st *state, v Value, b *[maxParams]Value) Value {
			return split(st, "split", v, b, splitLeft)
		},
		"rsplit(sep, maxsplit)": func(st *state, v Value, b *[maxParams]Value) Value {
			return split(st, "rsplit", v, b, splitRight)
		},
		"splitlines(keepends)": func(st *state, v Value, b *[maxParams]Value) Value {
			return listLike(st, v, splitLines(st, text(v), b[0] != nil && needShort("splitlines", b[0]) != 0))
		},
		"join(*iterable, /)":  joinMethod,
		"partition(*sep, /)":  func(st *state, v Value, b *[maxParams]Value) Value { return partition(v, b[0], false) },
		"rpartition(*sep, /)": func(st *state, v Value, b *[maxParams]Value) Value { return partition(v, b[0], true) },
		"removeprefix(*prefix, /)": func(st *state, v Value, b *[maxParams]Value) Value {
			return like(v, strings.TrimPrefix(text(v), needStr("removeprefix", b[0])))
		},
		"removesuffix(*suffix, /)": func(st *state, v Value, b *[maxParams]Value) Value {
			return like(v, strings.TrimSuffix(text(v), needStr("removesuffix", b[0])))
		},
	})
	refuseMethods(strMethods, "str", refusedStrMethods)
}

func text(v Value) string {
	s, _ := asStr(v)
	return s
}

// like returns s as a str, marked as safe if v is.
func like(v Value, s string) Value {
	if _, ok := v.(markup); ok {
		return markup(s)
	}
	return Str(s)
}

func listLike(st *state, v Value, parts []string) Value {
	st.charge(valueSize * len(parts))
	l := &List{make([]Value, len(parts))}
	for i, p := range parts {
		l.Items[i] = like(v, p)
	}
	return l
}

func needStr(fn string, v Value) string {
	s, ok := asStr(v)
	if !ok {
		raise("TypeError", "%s() argument must be str, not %s", fn, v.typeName())
	}
	return s
}

func needInt(fn string, v Value) int64 {
	n, ok := indexOf(v)
	if !ok {
		raise("TypeError", "%s(): '%s' object cannot be interpreted as an integer", fn, v.typeName())
	}
	if _, big := v.(bigInt); big {
		raise("OverflowError", "Python int too large to convert to C ssize_t")
	}
	return n
}

// needShort does what needInt does, for C's int.
func needShort(fn string, v Value) int64 {
	n := needInt(fn, v)
	if n != int64(int32(n)) {
		raise("OverflowError", "Python int too large to convert to C int")
	}
	return n
}

// strip removes characters from the ends of s; chars missing or None means space.
func strip(st *state, s string, chars Value, left, right bool) string {
	is := isSpace
	if _, none := chars.(None); chars != nil && !none {
		set := needStr("strip", chars)
		is = func(r rune) bool { return strings.ContainsRune(set, r) }
		if len(set) > 64 {
			st.step(len(set))
			st.charge(4 * valueSize * len(set))
			found := map[rune]bool{}
			for _, r := range set {
				found[r] = true
			}
			is = func(r rune) bool { return found[r] }
		}
	}
	one := is
	is = func(r rune) bool { st.step(1); return one(r) }
	if left {
		s = strings.TrimLeftFunc(s, is)
	}
	if right {
		s = strings.TrimRightFunc(s, is)
	}
	return s
}

func cased(f func(string) string) func(*state, Value, *[maxParams]Value) Value {
	return func(st *state, v Value, _ *[maxParams]Value) Value {
		return like(v, changed(st, text(v), f))
	}
}

func every(is func(rune) bool) func(*state, Value, *[maxParams]Value) Value {
	return func(st *state, v Value, _ *[maxParams]Value) Value {
		s := looked(st, text(v))
		return Bool(s != "" && strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0)
	}
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// window returns s[start:end] for the arguments b[1] and b[2], and the number of code points before it; false = it is
// outside.
func window(st *state, s string, b *[maxParams]Value) (string, int64, bool) {
	if b[1] == nil && b[2] == nil {
		return s, 0, true
	}
	st.scan(3 * len(s))
	n := int64(utf8.RuneCountInString(s))
	clip := func(v Value, otherwise int64) int64 {
		i, given := sliceIndex(v)
		if !given {
			return otherwise
		}
		if i < 0 {
			i = max(i+n, 0)
		}
		return i
	}
	start, end := clip(b[1], 0), min(clip(b[2], n), n)
	if start > end {
		return "", 0, false
	}
	from := byteOffset(s, int(start))
	return s[from : from+byteOffset(s[from:], int(end-start))], start, true
}

func affix(st *state, fn, s string, b *[maxParams]Value, has func(s, affix string) bool) bool {
	w, _, ok := window(st, s, b)
	if all, isTuple := asTuple(b[0]); isTuple {
		for _, v := range all {
			a, isStr := asStr(v)
			if !isStr {
				raise("TypeError", "tuple for %s must only contain str, not %s", fn, v.typeName())
			}
			st.step(1)
			st.scan(len(a))
			if ok && has(w, a) {
				return true
			}
		}
		return false
	}
	a, isStr := asStr(b[0])
	if !isStr {
		raise("TypeError", "%s first arg must be str or a tuple of str, not %s", fn, b[0].typeName())
	}
	return ok && has(w, a)
}

func find(st *state, fn, s string, b *[maxParams]Value, last bool) int64 {
	sub := needStr(fn, b[0])
	w, before, ok := window(st, s, b)
	if !ok {
		return -1
	}
	st.scan(2 * len(w))
	i := strings.Index(w, sub)
	if last {
		i = strings.LastIndex(w, sub)
	}
	if i < 0 {
		return -1
	}
	return before + int64(utf8.RuneCountInString(w[:i]))
}

func mustFind(st *state, fn, s string, b *[maxParams]Value, last bool) Value {
	i := find(st, fn, s, b, last)
	if i < 0 {
		raise("ValueError", "substring not found")
	}
	return Int(i)
}

func containsString(st *state, s, sub string) bool {
	st.scan(len(s))
	return strings.Contains(s, sub)
}

func replaceMethod(st *state, v Value, b *[maxParams]Value) Value {
	old, with := needStr("replace", b[0]), needStr("replace", b[1])
	n := int64(-1)
	if b[2] != nil {
		n = needInt("replace", b[2])
	}
	if _, safe := v.(markup); safe {
		with = text(escapeValue(st, b[1]))
	}
	return like(v, replace(st, text(v), old, with, n))
}

func replace(st *state, s, old, with string, n int64) string {
	st.scan(2 * len(s))
	count := int64(strings.Count(s, old))
	if n >= 0 {
		count = min(count, n)
	}
	if count == 0 {
		return s
	}
	more := 0
	if grown := len(with) - len(old); grown > 0 {
		more = product(grown, count)
	}
	st.grow(len(s), more)
	st.use(len(s))
	st.step(int(min(count, int64(len(s)))))
	return strings.Replace(s, old, with, int(min(max(n, -1), math.MaxInt32)))
}

func joinMethod(st *state, v Value, b *[maxParams]Value) Value {
	next := iterOf(b[0])
	if next == nil {
		raise("TypeError", "can only join an iterable")
	}
	all := drain(st, next)
	_, safe := v.(markup)
	parts := make([]string, len(all))
	st.charge(valueSize * len(all))
	for i, item := range all {
		s, ok := asStr(item)
		switch {
		case safe:
			s = text(escapeValue(st, item))
		case !ok:
			raise("TypeError", "sequence item %d: expected str instance, %s found", i, item.typeName())
		}
		parts[i] = s
	}
	return like(v, join(st, parts, text(v)))
}

func join(st *state, parts []string, sep string) string {
	n := 0
	for _, p := range parts {
		st.grow(n, len(p)+len(sep))
		n += len(p) + len(sep)
	}
	return strings.Join(parts, sep)
}

func partition(v, sep Value, last bool) Value {
	s, by := text(v), needStr("partition", sep)
	if by == "" {
		raise("ValueError", "empty separator")
	}
	i := strings.Index(s, by)
	if last {
		i = strings.LastIndex(s, by)
	}
	switch {
	case i >= 0:
		return NewTuple(like(v, s[:i]), like(v, by), like(v, s[i+len(by):]))
	case !last:
		return NewTuple(like(v, s), like(v, ""), like(v, ""))
	}
	return NewTuple(like(v, ""), like(v, ""), like(v, s))
}
