package jinja

import (
	"slices"
	"strings"
)

// attrGetter returns a function that looks up attributes such as "address.0.city" by the rules of x[...].
func attrGetter(st *state, attr Value, foldCase bool, otherwise Value) func(*state, Value) Value {
	parts := attrParts(st, attr)
	return func(st *state, v Value) Value {
		st.step(len(parts))
		for _, p := range parts {
			v = getitem(st, v, p)
			if otherwise != nil && isUndefined(v) {
				v = otherwise
			}
		}
		if foldCase {
			return ignoreCase(st, v)
		}
		return v
	}
}

func attrParts(st *state, attr Value) []Value {
	s, ok := asStr(attr)
	if _, none := attr.(None); attr == nil || none {
		return nil
	}
	if !ok {
		return []Value{attr}
	}
	var parts []Value
	st.step(len(s))
	st.charge(6 * valueSize * (1 + strings.Count(s, ".")))
	for _, p := range strings.Split(s, ".") {
		if n := parseInt(p, 10); n != nil && p != "" && strings.IndexFunc(p, func(r rune) bool { return !isDigit(r) }) < 0 {
			parts = append(parts, n)
		} else {
			parts = append(parts, Str(p))
		}
	}
	return parts
}

func ignoreCase(st *state, v Value) Value {
	switch v := v.(type) {
	case Str:
		return Str(changed(st, string(v), lower))
	case markup:
		return markup(changed(st, string(v), lower))
	}
	return v
}

func flag(st *state, v Value) bool { return v != nil && truthy(st, v) }

func filterLast(st *state, b *[maxParams]Value) Value {
	back := reversed(st, b[0])
	if back == nil {
		raise("TypeError", "'%s' object is not reversible", b[0].typeName())
	}
	if v := back.next(st); v != nil {
		return v
	}
	return &undefined{hint: "No last item, sequence was empty."}
}

func filterReverse(st *state, b *[maxParams]Value) Value {
	if s, ok := asStr(b[0]); ok {
		st.charge(5 * len(s))
		st.step(len(s))
		runes := []rune(s)
		slices.Reverse(runes)
		return like(b[0], string(runes))
	}
	if back := reversed(st, b[0]); back != nil {
		return back
	}
	next := iterOf(b[0])
	if next == nil {
		raise("FilterArgumentError", "argument must be iterable")
	}
	all := drain(st, next)
	slices.Reverse(all)
	return &List{all}
}

// sortBy sorts stably by keys as Python's sorted does.
func sortBy(st *state, all []Value, reverse bool, key func(*state, Value) Value) []Value {
	st.charge(8 * valueSize * len(all))
	type keyed struct{ key, v Value }
	ks := make([]keyed, len(all))
	for i, v := range all {
		ks[i] = keyed{key(st, v), v}
	}
	slices.SortStableFunc(ks, func(a, b keyed) int {
		st.step(1)
		if reverse {
			a, b = b, a
		}
		switch {
		case order(st, "<", a.key, b.key):
			return -1
		case order(st, "<", b.key, a.key):
			return 1
		}
		return 0
	})
	out := make([]Value, len(all))
	for i, k := range ks {
		out[i] = k.v
	}
	return out
}

func filterDictsort(st *state, b *[maxParams]Value) Value {
	at := 0
	if b[2] != nil {
		by, ok := asStr(b[2])
		switch {
		case ok && by == "value":
			at = 1
		case !ok || by != "key":
			raise("FilterArgumentError", `You can only sort by either "key" or "value"`)
		}
	}
	d, ok := b[0].(*Dict)
	if !ok {
		if u, ok := b[0].(*undefined); ok {
			u.use()
		}
		raise("AttributeError", "'%s' object has no attribute 'items'", b[0].typeName())
	}
	view := &dictView{d, "dict_items"}
	sensitive := flag(st, b[1])
	return &List{sortBy(st, view.list(st), flag(st, b[3]), func(st *state, v Value) Value {
		key := v.(*Tuple).items[at]
		if !sensitive {
			key = ignoreCase(st, key)
		}
		return key
	})}
}

func filterSort(st *state, b *[maxParams]Value) Value {
	fold := !flag(st, b[2])
	var getters []func(*state, Value) Value
	if s, ok := asStr(b[3]); ok {
		st.charge(6 * valueSize * (1 + strings.Count(s, ",")))
		for _, part := range strings.Split(s, ",") {
			getters = append(getters, attrGetter(st, Str(part), fold, nil))
		}
	} else {
		getters = append(getters, attrGetter(st, b[3], fold, nil))
	}
	all := drain(st, mustIter(b[0]))
	return &List{sortBy(st, all, flag(st, b[1]), func(st *state, v Value) Value {
		st.use(valueSize * (2 + len(getters)))
		key := &List{make([]Value, len(getters))}
		for i, get := range getters {
			key.Items[i] = get(st, v)
		}
		return key
	})}
}

func extreme(st *state, b *[maxParams]Value, op string) Value {
	get := attrGetter(st, b[2], !flag(st, b[1]), nil)
	next := mustIter(b[0])
	best := next(st)
	if best == nil {
		return &undefined{hint: "No aggregated item, sequence was empty."}
	}
	bestKey := get(st, best)
	for {
		v := next(st)
		if v == nil {
			return best
		}
		if key := get(st, v); order(st, op, key, bestKey) {
			best, bestKey = v, key
		}
	}
}

func filterSum(st *state, b *[maxParams]Value) Value {
	sum := b[2]
	if sum == nil {
		sum = Int(0)
	}
	if _, ok := asStr(sum); ok {
		raise("TypeError", "sum() can't sum strings [use ''.join(seq) instead]")
	}
	get := attrGetter(st, b[1], false, nil)
	for next := mustIter(b[0]); ; {
		v := next(st)
		if v == nil {
			return sum
		}
		sum = binary(st, '+', sum, get(st, v))
	}
}
